//! The registry of one daemon: its state in memory, its file, and what is only counted.

use crate::attempts::Attempts;
use crate::document::RegistryDocument;
use crate::edit::{Edit, Edited, forget_long_dead};
use crate::error::AccessError;
use crate::feature::Feature;
use crate::file::RegistryFile;
use crate::measure;
use crate::own_rights::Standing;
use crate::state::{Admitted, State, TokenRefusal};
use crate::usage;
use palyra_protocol::access::{AccessChange, WorkspaceRecord};
use palyra_protocol::{Clock, Digest, JournalId, Principal, Timestamp, WorkspaceId};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The registry in force.
#[derive(Debug)]
pub struct Registry {
    file: RegistryFile,
    usage: PathBuf,
    home: WorkspaceRecord,
    home_is_new: bool,
    clock: Arc<dyn Clock>,
    state: RwLock<Arc<State>>,
    attempts: Attempts,
}

/// A change that is made to a copy and not in force yet.
#[derive(Debug)]
pub struct Draft<T> {
    /// What the one who asked for it is told.
    pub told: T,
    /// What the journal is told.
    pub what: AccessChange,
    /// The changed copy.
    pub document: RegistryDocument,
}

impl Registry {
    /// The registry in a state directory, with a document that was accepted and the digest of its file, if there is
    /// one.
    ///
    /// It writes nothing: a workspace that is new is added to the document in memory. Whoever serves it registers it.
    #[must_use]
    pub fn open(
        state_dir: &Path,
        accepted: Option<(RegistryDocument, Digest)>,
        workspace_root: &Path,
        journal: &JournalId,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (mut document, digest) = match accepted {
            Some((document, digest)) => (document, Some(digest)),
            None => (RegistryDocument::empty(), None),
        };
        let root = workspace_root.to_string_lossy().into_owned();
        let known = document.workspaces.iter().find(|w| w.root == root).cloned();
        let home_is_new = known.is_none();
        let home = known.unwrap_or_else(|| document.add_workspace(journal, root, clock.now()));
        let state = State::new(document, digest, None, clock.now());
        let usage = state_dir.join(usage::FILE);
        usage::restore(&usage, &state);
        let (file, state) = (RegistryFile::within(state_dir), RwLock::new(Arc::new(state)));
        Self { file, usage, home, home_is_new, clock, state, attempts: Attempts::default() }
    }

    /// The workspace that the daemon was started with.
    #[must_use]
    pub fn home(&self) -> &WorkspaceRecord {
        &self.home
    }

    /// Whether the workspace that the daemon was started with was registered by this start.
    #[must_use]
    pub fn home_is_new(&self) -> bool {
        self.home_is_new
    }

    /// What is in force now.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn feature(&self, feature: Feature) -> bool {
        self.state().document().feature(feature)
    }

    /// The time that the registry goes by.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The registry's file.
    #[must_use]
    pub fn file(&self) -> &RegistryFile {
        &self.file
    }

    /// Refused attempts, which are recorded in sums.
    #[must_use]
    pub fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// Checks a token, and counts the request.
    ///
    /// # Errors
    /// It does not open.
    pub fn check(&self, text: &str) -> Result<Admitted, TokenRefusal> {
        self.state().check(text, self.now())
    }

    /// Makes a change to a copy of the document, in a workspace. `token` is the one that whoever asks has shown.
    ///
    /// # Errors
    /// The change is refused.
    pub fn draft<T>(
        &self,
        workspace: &WorkspaceId,
        by: Principal,
        token: Option<Admitted>,
        edit: impl FnOnce(Edit<'_>) -> Edited<T>,
    ) -> Result<Draft<T>, AccessError> {
        let mut document = self.state().document().clone();
        let now = self.now();
        let by = Standing::in_document(&document, workspace, by, token);
        let (told, what) = edit(Edit { document: &mut document, workspace, by: &by, now })?;
        forget_long_dead(&mut document, now);
        Ok(Draft { told, what, document })
    }

    /// Puts a document in force that was recorded. What is known of tokens besides their records is carried over.
    pub fn install(&self, document: RegistryDocument, digest: Digest) {
        let earlier = self.state();
        let state = State::new(document, Some(digest), Some(&earlier), self.now());
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Writes down when tokens were last used.
    pub fn save_usage(&self) {
        usage::save(&self.usage, &self.state());
    }

    /// Many tokens at once, for measuring: a registry with this many, none of it on disk, and the text of some.
    #[doc(hidden)]
    #[must_use]
    pub fn measured(count: usize, clock: Arc<dyn Clock>) -> Option<(Self, Vec<String>)> {
        let (document, texts) = measure::with_tokens(count, clock.now())?;
        let home = document.workspaces.first()?.clone();
        let state = State::new(document, None, None, clock.now());
        let (file, state) = (RegistryFile::within(Path::new("")), RwLock::new(Arc::new(state)));
        Some((
            Self { file, usage: PathBuf::new(), home, home_is_new: false, clock, state, attempts: Attempts::default() },
            texts,
        ))
    }
}
