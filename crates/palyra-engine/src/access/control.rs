//! Access control put together: the registry in memory, its file, its place in the journal.

use super::attempts::Attempts;
use super::document::{RegistryDocument, RegistryFlaw};
use super::feature::Feature;
use super::state::{Admitted, State, TokenRefusal};
use super::store::RegistryFile;
use super::usage;
use palyra_journal::{JournalError, JournalStore};
use palyra_policy::{MembershipError, Registered};
use palyra_protocol::access::{MemberRecord, WorkspaceRecord};
use palyra_protocol::{
    Clock, Digest, JournalEvent, JournalId, Principal, Problem, Timestamp, WorkspaceId, WorkspaceRole,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The registry's name in the state directory.
pub const REGISTRY_FILE: &str = "access_registry.json";

/// Why the registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file cannot be read or written.
    #[error("the access registry `{}` {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not the one that the daemon wrote last, or not one at all.
    #[error("the access registry `{}` is not accepted: {why}. Nobody's rights are guessed. {WAYS_OUT}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: Option<Digest>,
        /// What the journal knows.
        expected: Option<Digest>,
        /// Why.
        why: String,
    },
    /// A program would own or manage.
    #[error("the access registry says what cannot be: {0}")]
    Membership(#[from] MembershipError),
    /// The journal failed.
    #[error("{0}")]
    Journal(#[from] JournalError),
}

const WAYS_OUT: &str = "Put the file back as it was; or read it, and if it says what you want, accept it with `palyrad access accept`; \
     or start over with no tokens and `user:local` as the only owner: `palyrad access reset`";

/// Access control of one daemon in one workspace.
#[derive(Debug)]
pub struct AccessControl {
    file: RegistryFile,
    usage: PathBuf,
    workspace: WorkspaceRecord,
    clock: Arc<dyn Clock>,
    state: RwLock<Arc<State>>,
    /// One change at a time.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    pub(super) attempts: Attempts,
    pub(super) attempts_tended: Tended,
    pub(super) usage_tended: Tended,
}

/// Whether somebody is on the way to write down what is only in memory.
#[derive(Debug, Default)]
pub(super) struct Tended(AtomicBool);

impl Tended {
    /// True for the one who is to go.
    pub(super) fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    pub(super) fn release(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl AccessControl {
    /// Opens the registry in a state directory, for the workspace that is served.
    ///
    /// # Errors
    /// The registry cannot be used; if it is not accepted, the journal has an event that says so.
    pub async fn open(
        state_dir: &Path,
        workspace_root: &Path,
        journal: &JournalStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AccessError> {
        let file = RegistryFile::new(state_dir.join(REGISTRY_FILE));
        let (mut document, digest) = match stored(&file, journal).await {
            Err(error) => {
                note_refusal(journal, &error).await?;
                return Err(error);
            }
            Ok(Some((document, digest))) => (document, Some(digest)),
            Ok(None) => (RegistryDocument::empty(), None),
        };
        // A start writes nothing: a directory that is new here is kept in mind, and written with the first change.
        let root = workspace_root.to_string_lossy().into_owned();
        let workspace = match document.workspaces.iter().find(|w| w.root == root) {
            Some(workspace) => workspace.clone(),
            None => add_workspace(&mut document, journal.origin(), root, clock.now()),
        };
        let state = State::new(document, digest, &workspace.workspace_id, None, clock.now());
        let usage = state_dir.join(usage::FILE);
        usage::restore(&usage, &state);
        let control = Self {
            file,
            usage,
            workspace,
            clock,
            state: RwLock::new(Arc::new(state)),
            writing: Arc::default(),
            attempts: Attempts::default(),
            attempts_tended: Tended::default(),
            usage_tended: Tended::default(),
        };
        control.registered()?;
        Ok(control)
    }

    /// The workspace that is served.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceRecord {
        &self.workspace
    }

    /// What rules see of the registry: roles and groups, beside the lists of the configuration.
    ///
    /// # Errors
    /// A program would own or manage, which no registry that was accepted says.
    pub fn registered(&self) -> Result<Registered, MembershipError> {
        self.registered_in(&self.state().document)
    }

    pub(super) fn registered_in(&self, document: &RegistryDocument) -> Result<Registered, MembershipError> {
        document.registered(&self.workspace.workspace_id)
    }

    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn feature(&self, feature: Feature) -> bool {
        self.state().document.feature(feature)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn file(&self) -> &RegistryFile {
        &self.file
    }

    /// Puts a document in force.
    pub(super) fn install(&self, document: RegistryDocument, digest: Digest) {
        let earlier = self.state();
        let state = State::new(document, Some(digest), &self.workspace.workspace_id, Some(&earlier), self.now());
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Checks a token.
    pub(super) fn check(&self, text: &str) -> Result<Admitted, TokenRefusal> {
        self.state().check(text, self.now())
    }

    /// Writes down when tokens were last used.
    pub(super) fn save_usage(&self) {
        usage::save(&self.usage, &self.state());
    }

    /// Many tokens at once, for measuring: a registry with this many, none of it on disk, and the text of some.
    #[doc(hidden)]
    #[must_use]
    pub fn measured(count: usize, clock: Arc<dyn Clock>) -> Option<(Self, Vec<String>)> {
        super::measure::with_tokens(count, clock)
    }

    /// The check alone, for measuring.
    #[doc(hidden)]
    #[must_use]
    pub fn opens(&self, text: &str) -> bool {
        self.check(text).is_ok()
    }

    pub(super) fn of_document(document: RegistryDocument, workspace: WorkspaceRecord, clock: Arc<dyn Clock>) -> Self {
        let state = State::new(document, None, &workspace.workspace_id, None, clock.now());
        Self {
            file: RegistryFile::new(PathBuf::new()),
            usage: PathBuf::new(),
            workspace,
            clock,
            state: RwLock::new(Arc::new(state)),
            writing: Arc::default(),
            attempts: Attempts::default(),
            attempts_tended: Tended::default(),
            usage_tended: Tended::default(),
        }
    }
}

pub(super) fn add_workspace(
    document: &mut RegistryDocument,
    journal: &JournalId,
    root: String,
    now: Timestamp,
) -> WorkspaceRecord {
    let workspace = WorkspaceRecord { workspace_id: WorkspaceId::of(journal, &root), root, created_at: now };
    document.workspaces.push(workspace.clone());
    document.members.push(MemberRecord {
        workspace: workspace.workspace_id.clone(),
        principal: Principal::local_owner(),
        role: WorkspaceRole::Owner,
        since: now,
        by: Principal::daemon(),
    });
    workspace
}

pub(super) fn io(file: &RegistryFile, what: &'static str) -> impl FnOnce(std::io::Error) -> AccessError {
    let path = file.path().to_owned();
    move |source| AccessError::Io { path, what, source }
}

/// Runs file work off the async threads.
async fn blocking<T: Send + 'static>(
    file: &RegistryFile,
    what: &'static str,
    work: impl FnOnce(&RegistryFile) -> std::io::Result<T> + Send + 'static,
) -> Result<T, AccessError> {
    let own = file.clone();
    let done = tokio::task::spawn_blocking(move || work(&own)).await;
    done.unwrap_or_else(|e| Err(std::io::Error::other(e))).map_err(io(file, what))
}

/// A change, as the journal is told of it.
pub(super) struct Change {
    pub(super) by: Principal,
    pub(super) what: Value,
    /// The registry that it is made to.
    pub(super) before: Option<Digest>,
    /// What whoever changes it has reason to expect in the file's place.
    pub(super) in_place: Option<Digest>,
    /// The rules before and after, where the change makes them others.
    pub(super) policy: Option<(Digest, Digest)>,
}

/// The four steps of a change; see `store.rs`. After the second the change counts, whatever becomes of the others.
pub(super) async fn commit(
    file: &RegistryFile,
    journal: &JournalStore,
    document: &mut RegistryDocument,
    change: Change,
) -> Result<Digest, AccessError> {
    let Change { by, what, before, in_place, policy } = change;
    document.revision += 1;
    let refused = |flaw: RegistryFlaw| refused(file, None, before, flaw.to_string());
    document.check().map_err(refused)?;
    let bytes = document.bytes().map_err(refused)?;
    let after = Digest::of(&bytes);
    blocking(file, "cannot be written", move |file| file.prepare(&bytes)).await?;
    let (policy_before, policy_after) = policy.unzip();
    let revision = document.revision;
    let event = JournalEvent::AccessChanged { by, change: what, revision, before, after, policy_before, policy_after };
    let noted = match policy_after {
        Some(policy_hash) => journal.note_rules(&event, policy_hash).await,
        None => journal.note(&event).await.map(drop),
    };
    if let Err(error) = noted {
        blocking(file, "cannot be removed", RegistryFile::abandon).await?;
        return Err(error.into());
    }
    look_before_replacing(file, journal, in_place, revision).await;
    if let Err(error) = blocking(file, "cannot be replaced", RegistryFile::replace).await {
        // It counts already; the next change, or the next start, puts the file in place.
        tracing::error!(error = &error as &dyn std::error::Error, "the access registry's file lags behind");
    }
    Ok(after)
}

/// Whoever wrote the file while the daemon ran has changed nobody's rights; but it is not overwritten in silence. It is kept
/// aside, and the journal says so. The change itself counts already, so nothing here can fail it.
async fn look_before_replacing(file: &RegistryFile, journal: &JournalStore, known: Option<Digest>, revision: u64) {
    let aside = blocking(file, "cannot be put aside", move |file| file.set_aside_unless(known, revision)).await;
    let noted = match aside {
        Ok(None) => Ok(()),
        Ok(Some(odd)) => {
            let kept = odd.aside.map_or_else(String::new, |path| format!("; it is kept as `{}`", path.display()));
            let why = format!("while the daemon ran, somebody else wrote or removed it{kept}");
            tracing::warn!(file = %file.path().display(), "the access registry was not as it was left: {why}");
            note_refusal(journal, &refused(file, odd.found, known, why)).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = noted {
        tracing::error!(error = &error as &dyn std::error::Error, "an access registry that is not ours was not kept");
    }
}

fn refused(file: &RegistryFile, found: Option<Digest>, expected: Option<Digest>, why: String) -> AccessError {
    AccessError::Refused { path: file.path().to_owned(), found, expected, why }
}

/// What the journal says the registry is: revision and digest.
async fn expected(journal: &JournalStore) -> Result<Option<(u64, Digest)>, AccessError> {
    Ok(match journal.last_access_change().await? {
        Some(JournalEvent::AccessChanged { revision, after, .. }) => Some((revision, after)),
        _ => None,
    })
}

/// The registry as it is stored, if it is the one that the journal knows.
async fn stored(
    file: &RegistryFile,
    journal: &JournalStore,
) -> Result<Option<(RegistryDocument, Digest)>, AccessError> {
    let expected = expected(journal).await?;
    let mut bytes = blocking(file, "cannot be read", RegistryFile::read).await?;
    let mut found = bytes.as_deref().map(Digest::of);
    let Some((revision, digest)) = expected else {
        let why = || "nothing in the journal says that the daemon wrote it".to_owned();
        return if bytes.is_none() { Ok(None) } else { Err(refused(file, found, None, why())) };
    };
    if found != Some(digest) && blocking(file, "cannot be replaced", move |file| file.finish(digest)).await? {
        tracing::warn!(revision, "a change of the access registry that was cut off is now complete");
        bytes = blocking(file, "cannot be read", RegistryFile::read).await?;
        found = bytes.as_deref().map(Digest::of);
    }
    if blocking(file, "cannot be made private", RegistryFile::make_private).await? {
        tracing::warn!(file = %file.path().display(), "others could read the access registry; it is private again");
    }
    let refuse = |why: String| refused(file, found, Some(digest), why);
    let Some(bytes) = bytes else { return Err(refuse(format!("it is missing; revision {revision} is the last one"))) };
    let document = RegistryDocument::parse(&bytes);
    if found != Some(digest) {
        let also = document.err().map_or_else(String::new, |flaw| format!("; besides, {flaw}"));
        return Err(refuse(format!("it is not revision {revision}, which the daemon wrote last{also}")));
    }
    Ok(Some((document.map_err(|flaw| refuse(flaw.to_string()))?, digest)))
}

async fn note_refusal(journal: &JournalStore, error: &AccessError) -> Result<(), AccessError> {
    if let AccessError::Refused { found, expected, why, .. } = error {
        let problem = Problem::plain("access_registry_refused", why.clone());
        let event = JournalEvent::AccessRegistryRefused { found: *found, expected: *expected, problem };
        journal.note(&event).await?;
    }
    Ok(())
}

/// What rules would see, as the file stands: for checking rules without serving.
///
/// # Errors
/// The file cannot be read, or contradicts itself.
pub fn peek(state_dir: &Path, workspace_root: &Path) -> Result<Registered, AccessError> {
    let file = RegistryFile::new(state_dir.join(REGISTRY_FILE));
    let Some(bytes) = file.read().map_err(io(&file, "cannot be read"))? else { return Ok(Registered::default()) };
    let document = RegistryDocument::parse(&bytes)
        .map_err(|flaw| refused(&file, Some(Digest::of(&bytes)), None, flaw.to_string()))?;
    let root = workspace_root.to_string_lossy();
    let here = document.workspaces.iter().find(|w| w.root == root).map(|w| w.workspace_id.clone());
    Ok(document.registered(&here.unwrap_or_else(WorkspaceId::mint))?)
}

/// Accepts the file as it is, deliberately, and records that. Returns its revision.
///
/// # Errors
/// There is no file, or it contradicts itself: that much is never accepted.
pub async fn accept(state_dir: &Path, journal: &JournalStore) -> Result<u64, AccessError> {
    let file = RegistryFile::new(state_dir.join(REGISTRY_FILE));
    let known = expected(journal).await?;
    let bytes = blocking(&file, "cannot be read", RegistryFile::read).await?;
    let found = bytes.as_deref().map(Digest::of);
    let refuse = |why: String| refused(&file, found, known.map(|(_, digest)| digest), why);
    let bytes = bytes.ok_or_else(|| refuse("it is missing".to_owned()))?;
    let mut document = RegistryDocument::parse(&bytes).map_err(|flaw| refuse(flaw.to_string()))?;
    // Revisions only grow, whatever the file says of itself.
    document.revision = document.revision.max(known.map_or(0, |(revision, _)| revision));
    let what = json!({ "change": "registry.accepted", "found": found });
    let before = known.map(|(_, digest)| digest);
    let change = Change { by: Principal::local_owner(), what, before, in_place: found, policy: None };
    commit(&file, journal, &mut document, change).await?;
    Ok(document.revision)
}

/// Starts over: the file is put aside, and there are no members but the local owner, and no tokens. Returns where the
/// old file is now.
///
/// # Errors
/// The files or the journal cannot be written.
pub async fn reset(state_dir: &Path, journal: &JournalStore, now: Timestamp) -> Result<Option<PathBuf>, AccessError> {
    let file = RegistryFile::new(state_dir.join(REGISTRY_FILE));
    let known = expected(journal).await?;
    let there = file.path().symlink_metadata().is_ok();
    let aside = match there {
        true => {
            let suffix = now.to_string();
            Some(blocking(&file, "cannot be put aside", move |file| file.set_aside(&suffix)).await?)
        }
        false => None,
    };
    let mut document = RegistryDocument::empty();
    document.revision = known.map_or(0, |(revision, _)| revision);
    let what = json!({ "change": "registry.reset", "aside": aside });
    let before = known.map(|(_, digest)| digest);
    let change = Change { by: Principal::local_owner(), what, before, in_place: None, policy: None };
    commit(&file, journal, &mut document, change).await?;
    Ok(aside)
}
