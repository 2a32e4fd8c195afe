//! Where artifacts are found besides a file that somebody names: a directory of them, and a registry directory whose
//! list is signed.
//!
//! A source finds and hands over bytes; whether they may be installed is asked of every artifact alike. What the daemon
//! remembers of a registry is in the journal: its key, and the newest list that was seen, so that an older list is not
//! taken for a newer one.

use super::{OpenSkills, blocking};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{JournalEvent, Problem, PublicKey, Timestamp};
use palyra_skills::registry::{
    DirectoryListing, IndexEntry, RegistryError, RegistryPin, VersionReq, fetch, list_directory, open_registry,
    registry_name, select,
};
use palyra_skills::{KeyId, SkillId};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory in which artifacts are.
#[derive(Debug, Clone)]
pub struct SkillSource {
    /// Where it is; absolute.
    pub directory: PathBuf,
    /// Whether it is a registry, whose list is signed.
    pub is_registry: bool,
    /// The registry's key, where it is not known from before.
    pub key: Option<PublicKey>,
}

/// What a source offers.
#[derive(Debug, Clone, Serialize)]
pub struct SourceListing {
    /// The registry's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// The key that signed its list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// Which list it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The artifacts, by skill and version.
    pub artifacts: Vec<IndexEntry>,
    /// Files that are no artifacts, and why.
    pub refused: Vec<(String, String)>,
}

fn refused(error: &RegistryError) -> EngineError {
    let (kind, hint) = match error {
        RegistryError::NotFound { .. } => (ErrorKind::NotFound, "`palyra skills available` lists what there is"),
        RegistryError::Missing { .. } => (ErrorKind::NotFound, "name a directory with packages, or a registry"),
        RegistryError::Disk { .. } => (ErrorKind::Unavailable, "the daemon must be able to read it"),
        _ => (ErrorKind::Forbidden, "ask the registry's owner"),
    };
    EngineError::new(kind, Problem::new(error.code(), error.to_string(), hint))
}

impl OpenSkills {
    /// The key and the newest list of a registry, as far as they are known.
    fn pin(&self, source: &SkillSource, name: &str) -> Result<RegistryPin, EngineError> {
        let known = self.book().registry(name);
        match (known, source.key) {
            (Some((known, _)), Some(given)) if known != given => {
                let message =
                    format!("the registry `{name}` is known by the key {}, not by this one", KeyId::of(&known));
                let hint = "if its owner says that the key is a new one, keep it under another name";
                Err(EngineError::new(ErrorKind::Forbidden, Problem::new("registry_other_key", message, hint)))
            }
            (Some((key, seen_revision)), _) => Ok(RegistryPin { key, seen_revision }),
            (None, Some(key)) => Ok(RegistryPin { key, seen_revision: 0 }),
            (None, None) => {
                let message = format!("the key of the registry `{name}` is not known yet");
                let hint = "ask its owner for the key, then name it once: `--registry-key KEY`";
                Err(EngineError::new(ErrorKind::Forbidden, Problem::new("registry_key_unknown", message, hint)))
            }
        }
    }

    /// Looks through a source. Blocks.
    fn look_through(
        &self,
        source: &SkillSource,
        now: Timestamp,
    ) -> Result<(SourceListing, Option<PublicKey>), EngineError> {
        if !source.is_registry {
            let DirectoryListing { artifacts, refused } =
                list_directory(&source.directory).map_err(|e| self::refused(&e))?;
            return Ok((SourceListing { registry: None, key_id: None, revision: None, artifacts, refused }, None));
        }
        let name = registry_name(&source.directory).map_err(|error| refused(&error))?;
        let pin = self.pin(source, &name)?;
        let registry = open_registry(&source.directory, &pin, now).map_err(|error| refused(&error))?;
        let index = registry.index;
        let listing = SourceListing {
            registry: Some(index.name),
            key_id: Some(KeyId::of(&pin.key)),
            revision: Some(index.revision),
            artifacts: index.artifacts,
            refused: Vec::new(),
        };
        Ok((listing, Some(pin.key)))
    }
}

impl Engine {
    /// What a source offers. A registry's key and its newest list are remembered.
    ///
    /// # Errors
    /// The peer may not, or the source cannot be used.
    pub async fn skill_source(&self, peer: &VerifiedPeer, source: SkillSource) -> Result<SourceListing, EngineError> {
        self.authorize(peer, PolicyAction::SkillManage, PolicyResource::Daemon, None)?;
        let open = self.open_skills()?;
        let (at, now) = (Arc::clone(&open), self.clock().now());
        let (listing, key) = blocking(move || at.look_through(&source, now)).await??;
        if let (Some(name), Some(key), Some(revision)) = (&listing.registry, key, listing.revision) {
            let _one_change_at_a_time = open.changing.lock().await;
            let known = open.book().registry(name);
            if known.is_none_or(|(_, seen)| seen < revision) {
                let (by, registry) = (peer.effective().clone(), name.clone());
                self.note_skill(&open, JournalEvent::SkillRegistrySeen { by, registry, key, revision }).await?;
            }
        }
        Ok(listing)
    }

    /// The newest artifact of a skill in a source that fits a requirement (`^1.2`, `*`).
    ///
    /// # Errors
    /// The peer may not, the source cannot be used, or holds none.
    pub async fn fetch_skill(
        &self,
        peer: &VerifiedPeer,
        source: SkillSource,
        (skill, wanted): (SkillId, &str),
    ) -> Result<Vec<u8>, EngineError> {
        let wanted = VersionReq::parse(wanted).map_err(|error| {
            let message = format!("`{wanted}` is no requirement of versions: {error}");
            EngineError::invalid("skill_requirement", message, "write `acme.weather@^1.2`")
        })?;
        let directory = source.directory.clone();
        let listing = self.skill_source(peer, source).await?;
        blocking(move || {
            let entry = select(&listing.artifacts, &skill, &wanted)?;
            fetch(Path::new(&directory), entry)
        })
        .await?
        .map_err(|error| refused(&error))
    }
}
