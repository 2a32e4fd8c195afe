//! Where artifacts come from: a file, a directory of files, or a registry directory with a signed list.
//!
//! A source finds and hands over bytes, nothing more. Whether they may be installed is decided by verification and
//! audit, which treat every source alike.

mod index;
#[cfg(test)]
mod tests;

pub use index::{INDEX_FILE, INDEX_SIGNATURE_FILE, IndexEntry, RegistryIndex};

use crate::archive::ArchiveLimits;
use crate::artifact::Artifact;
use crate::constants::{ARTIFACT_EXTENSION, FORMAT};
use crate::files::{read_regular, write_durably};
use crate::ids::{KeyId, SkillId};
use crate::signature::PublisherKey;
use crate::text::excerpt;
use index::{MAX_INDEX_BYTES, MAX_INDEX_SIGNATURE_BYTES};
use palyra_protocol::{Digest, PublicKey, Timestamp};
pub use semver::VersionReq;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The most files of a directory that are looked at.
const MAX_FILES: usize = 100_000;

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The disk failed.
    #[error("`{}` cannot be read or written: {source}", path.display())]
    Disk {
        /// What was read.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that must be there.
    #[error("`{}` is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The list or its signature is none.
    #[error("the registry's list cannot be used: {reason}")]
    Index {
        /// Why.
        reason: String,
    },
    /// The list is signed by another key than the one that is expected.
    #[error("the registry's list is signed by the key {found}, not by {expected}")]
    OtherKey {
        /// Which is expected.
        expected: KeyId,
        /// Which signed.
        found: KeyId,
    },
    /// The signature does not hold.
    #[error("the signature of the registry's list does not hold")]
    Signature,
    /// The list is older than one that was seen before.
    #[error("the registry's list has revision {found}; {seen} was seen before")]
    Rollback {
        /// Its revision.
        found: u64,
        /// The highest that was seen.
        seen: u64,
    },
    /// The list is too old.
    #[error("the registry's list has expired; its owner must sign a new one")]
    Expired,
    /// The file is not the one that the list names.
    #[error("`{path}` is not the artifact that the registry's list names")]
    OtherFile {
        /// The file.
        path: String,
    },
    /// There is no such skill or version.
    #[error("there is no version of `{skill_id}` here that fits `{wanted}`")]
    NotFound {
        /// The skill.
        skill_id: SkillId,
        /// What was wanted.
        wanted: String,
    },
    /// There are more files than anybody has skills.
    #[error("`{}` has more than {MAX_FILES} files", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
}

impl RegistryError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "registry_disk",
            Self::Missing { .. } => "registry_missing",
            Self::Index { .. } => "registry_index",
            Self::OtherKey { .. } => "registry_other_key",
            Self::Signature => "registry_signature",
            Self::Rollback { .. } => "registry_rollback",
            Self::Expired => "registry_expired",
            Self::OtherFile { .. } => "registry_other_file",
            Self::NotFound { .. } => "registry_not_found",
            Self::TooMany { .. } => "registry_too_many",
        }
    }

    fn index(reason: impl ToString) -> Self {
        Self::Index { reason: excerpt(&reason.to_string()) }
    }
}

/// What a caller knows about a registry from before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryPin {
    /// Its key.
    pub key: PublicKey,
    /// The highest revision that was seen.
    pub seen_revision: u64,
}

/// Reads an artifact's file.
///
/// # Errors
/// It is missing, too large, or cannot be read.
pub fn read_artifact(path: &Path) -> Result<Vec<u8>, RegistryError> {
    let limit = ArchiveLimits::default().archive_bytes as u64;
    let read = read_regular(path, limit).map_err(|source| RegistryError::Disk { path: path.to_owned(), source })?;
    read.ok_or_else(|| RegistryError::Missing { path: path.to_owned() })
}

/// A directory that was looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryListing {
    /// The artifacts, sorted by skill and version.
    pub artifacts: Vec<IndexEntry>,
    /// Files that are no artifacts, and why.
    pub refused: Vec<(String, String)>,
}

/// Looks through a directory and reads every artifact in it. Of two files with the same skill and version the first by
/// name counts.
///
/// # Errors
/// The directory cannot be read.
pub fn list_directory(folder: &Path) -> Result<DirectoryListing, RegistryError> {
    let disk = |source| RegistryError::Disk { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(disk)? {
        let name = entry.map_err(disk)?.file_name();
        let ours = Path::new(&name).extension().is_some_and(|extension| extension == ARTIFACT_EXTENSION);
        names.extend(name.into_string().ok().filter(|_| ours));
        if names.len() > MAX_FILES {
            return Err(RegistryError::TooMany { path: folder.to_owned() });
        }
    }
    names.sort();
    let mut listing = DirectoryListing::default();
    for name in names {
        let read = read_artifact(&folder.join(&name)).map_err(|e| e.to_string());
        let opened = read.and_then(|bytes| match Artifact::open(&bytes) {
            Ok(artifact) => Ok(entry_of(&name, &bytes, &artifact)),
            Err(error) => Err(format!("{}: {error}", error.code())),
        });
        match opened {
            Ok(entry)
                if listing.artifacts.iter().any(|e| e.skill_id == entry.skill_id && e.version == entry.version) =>
            {
                listing.refused.push((name, "another file holds this version too".to_owned()));
            }
            Ok(entry) => listing.artifacts.push(entry),
            Err(reason) => listing.refused.push((name, reason)),
        }
    }
    listing.artifacts.sort_by(|a, b| (&a.skill_id, &a.version).cmp(&(&b.skill_id, &b.version)));
    Ok(listing)
}

fn entry_of(name: &str, bytes: &[u8], artifact: &Artifact) -> IndexEntry {
    let metadata = &artifact.manifest().metadata;
    IndexEntry {
        skill_id: metadata.skill_id.clone(),
        version: metadata.version.clone(),
        publisher: metadata.publisher.clone(),
        path: name.to_owned(),
        bytes: bytes.len() as u64,
        artifact_sha256: Digest::of(bytes),
        content_sha256: *artifact.content_digest(),
        is_withdrawn: false,
    }
}

/// Signs a list of the artifacts in a directory and writes it there. Versions that the list before withdrew stay
/// withdrawn.
///
/// # Errors
/// The directory cannot be read or written, or holds a file that is no artifact.
pub fn write_index(
    folder: &Path,
    name: &str,
    expires_at: Timestamp,
    withdrawn: &[(SkillId, crate::ids::SkillVersion)],
    key: &PublisherKey,
) -> Result<RegistryIndex, RegistryError> {
    let listing = list_directory(folder)?;
    if let Some((file, reason)) = listing.refused.first() {
        return Err(RegistryError::index(format!("`{}`: {reason}", excerpt(file))));
    }
    let before =
        match open_registry(folder, &RegistryPin { key: key.public(), seen_revision: 0 }, Timestamp::from_unix_ms(0)) {
            Ok(registry) => Some(registry.index),
            Err(RegistryError::Missing { .. }) => None,
            Err(error) => return Err(error),
        };
    let was_withdrawn = |entry: &IndexEntry| {
        let same = |other: &&IndexEntry| other.skill_id == entry.skill_id && other.version == entry.version;
        before.as_ref().and_then(|index| index.artifacts.iter().find(same)).is_some_and(|other| other.is_withdrawn)
            || withdrawn.iter().any(|(skill_id, version)| *skill_id == entry.skill_id && *version == entry.version)
    };
    let mut artifacts = listing.artifacts;
    artifacts.iter_mut().for_each(|entry| entry.is_withdrawn = was_withdrawn(entry));
    let revision = before.as_ref().map_or(1, |index| index.revision + 1);
    let index = RegistryIndex { format: FORMAT, name: name.to_owned(), revision, expires_at, artifacts };
    let (bytes, signature) = index.sign(key)?;
    for (file, content) in [(INDEX_FILE, bytes), (INDEX_SIGNATURE_FILE, signature)] {
        let path = folder.join(file);
        let aside = folder.join(format!(".{file}.new"));
        let written = write_durably(&aside, &content).and_then(|()| std::fs::rename(&aside, &path));
        written.map_err(|source| RegistryError::Disk { path, source })?;
    }
    crate::files::sync_directory(folder).map_err(|source| RegistryError::Disk { path: folder.to_owned(), source })?;
    Ok(index)
}

/// A registry whose list was verified.
#[derive(Debug, Clone)]
pub struct Registry {
    folder: PathBuf,
    /// The list. Its revision is what the caller keeps as `seen_revision`.
    pub index: RegistryIndex,
}

/// What a registry calls itself, which nobody has verified yet: by it a caller finds the key to verify it with.
///
/// # Errors
/// There is no list, or it has no name.
pub fn registry_name(folder: &Path) -> Result<String, RegistryError> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let path = folder.join(INDEX_FILE);
    let read = read_regular(&path, MAX_INDEX_BYTES as u64);
    let read = read.map_err(|source| RegistryError::Disk { path: path.clone(), source })?;
    let bytes = read.ok_or(RegistryError::Missing { path })?;
    let Named { name } = serde_json::from_slice(&bytes).map_err(RegistryError::index)?;
    index::check_registry_name(&name)?;
    Ok(name)
}

/// Opens a registry directory.
///
/// # Errors
/// The list is not signed by the expected key, is older than one that was seen, or has expired.
pub fn open_registry(folder: &Path, pin: &RegistryPin, now: Timestamp) -> Result<Registry, RegistryError> {
    let read = |file: &str, limit: usize| {
        let path = folder.join(file);
        match read_regular(&path, limit as u64) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(RegistryError::Missing { path }),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(RegistryError::index("it is too large")),
            Err(source) => Err(RegistryError::Disk { path, source }),
        }
    };
    let bytes = read(INDEX_FILE, MAX_INDEX_BYTES)?;
    let signature = read(INDEX_SIGNATURE_FILE, MAX_INDEX_SIGNATURE_BYTES)?;
    let index = RegistryIndex::verify(&bytes, &signature, &pin.key)?;
    if index.revision < pin.seen_revision {
        return Err(RegistryError::Rollback { found: index.revision, seen: pin.seen_revision });
    }
    if index.expires_at <= now {
        return Err(RegistryError::Expired);
    }
    Ok(Registry { folder: folder.to_owned(), index })
}

impl Registry {
    /// Reads the artifact that an entry of the list names.
    ///
    /// # Errors
    /// The file is missing, or is another.
    pub fn fetch(&self, entry: &IndexEntry) -> Result<Vec<u8>, RegistryError> {
        fetch(&self.folder, entry)
    }
}

/// Reads the artifact that an entry names, relative to a directory, and holds it to the entry's digest.
///
/// # Errors
/// The file is missing, or is another.
pub fn fetch(folder: &Path, entry: &IndexEntry) -> Result<Vec<u8>, RegistryError> {
    let bytes = read_artifact(&folder.join(&entry.path))?;
    if bytes.len() as u64 != entry.bytes || Digest::of(&bytes) != entry.artifact_sha256 {
        return Err(RegistryError::OtherFile { path: excerpt(&entry.path) });
    }
    Ok(bytes)
}

/// The newest version of a skill that fits, withdrawn ones left out. A pre-release counts only where the requirement
/// names one.
///
/// # Errors
/// There is none.
pub fn select<'a>(
    artifacts: &'a [IndexEntry],
    skill_id: &SkillId,
    wanted: &VersionReq,
) -> Result<&'a IndexEntry, RegistryError> {
    let fits = |entry: &&IndexEntry| {
        entry.skill_id == *skill_id && !entry.is_withdrawn && wanted.matches(entry.version.semver())
    };
    let newest = artifacts.iter().filter(fits).max_by(|a, b| a.version.cmp(&b.version));
    newest.ok_or_else(|| RegistryError::NotFound { skill_id: skill_id.clone(), wanted: wanted.to_string() })
}
