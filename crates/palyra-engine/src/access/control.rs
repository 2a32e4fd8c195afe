//! Access control put together: the registry in memory, its file, its place in the journal.

use palyra_access::{Feature, Registry, RegistryDocument, RegistryFile, RegistryFlaw, State};
use palyra_journal::{JournalError, JournalStore};
use palyra_policy::{MembershipError, Registered};
use palyra_protocol::access::{AccessChange, WorkspaceRecord};
use palyra_protocol::{Clock, Digest, JournalEvent, Principal, Problem, Timestamp, WorkspaceRole};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why the registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
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

/// Access control of one daemon.
#[derive(Debug)]
pub struct AccessControl {
    registry: Registry,
    /// One change at a time.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
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
    /// Opens the registry in a state directory, for a daemon that is started with this workspace.
    ///
    /// # Errors
    /// The registry cannot be used; if it is not accepted, the journal has an event that says so.
    pub async fn open(
        state_dir: &Path,
        workspace_root: &Path,
        journal: &JournalStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RegistryError> {
        let file = RegistryFile::within(state_dir);
        let accepted = match stored(&file, journal).await {
            Err(error) => {
                note_refusal(journal, &error).await?;
                return Err(error);
            }
            Ok(accepted) => accepted,
        };
        let registry = Registry::open(state_dir, accepted, workspace_root, journal.origin(), clock);
        let control = Self {
            registry,
            writing: Arc::default(),
            attempts_tended: Tended::default(),
            usage_tended: Tended::default(),
        };
        control.registered()?;
        Ok(control)
    }

    /// The workspace that the daemon was started with.
    #[must_use]
    pub fn home(&self) -> &WorkspaceRecord {
        self.registry.home()
    }

    /// What rules see of the registry: roles and groups, beside the lists of the configuration.
    ///
    /// # Errors
    /// A program would own or manage, which no registry that was accepted says.
    pub fn registered(&self) -> Result<Registered, MembershipError> {
        registered(self.state().document())
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.registry.state()
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn feature(&self, feature: Feature) -> bool {
        self.registry.feature(feature)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.registry.now()
    }
}

/// What rules see of a document: the people of each workspace, and agents, which are the same in all. The daemon's own
/// user owns them all by the configuration; so another workspace is no change of the rules.
pub(super) fn registered(document: &RegistryDocument) -> Result<Registered, MembershipError> {
    let mut registered = Registered::default();
    let agents = document.agents().iter().map(|agent| agent.principal.clone());
    registered = registered.with_role(WorkspaceRole::Operator, agents)?;
    for member in document.members().iter().filter(|member| member.principal != Principal::local_owner()) {
        let Some(workspace) = document.workspaces().iter().find(|w| w.workspace_id == member.workspace) else {
            continue;
        };
        registered = registered.with_role_within(&workspace.root, member.role, [member.principal.clone()])?;
    }
    for (name, members) in document.whole_groups() {
        registered = registered.with_group(name.as_str(), members);
    }
    Ok(registered)
}

pub(super) fn io(file: &RegistryFile, what: &'static str) -> impl FnOnce(std::io::Error) -> RegistryError {
    let path = file.path().to_owned();
    move |source| RegistryError::Io { path, what, source }
}

/// Runs file work off the async threads.
async fn blocking<T: Send + 'static>(
    file: &RegistryFile,
    what: &'static str,
    work: impl FnOnce(&RegistryFile) -> std::io::Result<T> + Send + 'static,
) -> Result<T, RegistryError> {
    let own = file.clone();
    let done = tokio::task::spawn_blocking(move || work(&own)).await;
    done.unwrap_or_else(|e| Err(std::io::Error::other(e))).map_err(io(file, what))
}

/// A change, as the journal is told of it.
pub(super) struct Change {
    pub(super) by: Principal,
    pub(super) what: AccessChange,
    /// The registry that it is made to.
    pub(super) before: Option<Digest>,
    /// The last revision that the journal knows, where it may be higher than the document's.
    pub(super) after_revision: u64,
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
) -> Result<Digest, RegistryError> {
    let Change { by, what, before, after_revision, in_place, policy } = change;
    let refused = |flaw: RegistryFlaw| refused(file, None, before, flaw.to_string());
    let bytes = document.sealed(after_revision).map_err(refused)?;
    let after = Digest::of(&bytes);
    blocking(file, "cannot be written", move |file| file.prepare(&bytes)).await?;
    let (policy_before, policy_after) = policy.unzip();
    let revision = document.revision();
    let event = JournalEvent::AccessChanged {
        by,
        change: Box::new(what),
        revision,
        before,
        after,
        policy_before,
        policy_after,
    };
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

/// Whoever wrote the file while the daemon ran has changed nobody's rights; but it is not overwritten in silence. It is
/// kept aside, and the journal says so. The change itself counts already, so nothing here can fail it.
async fn look_before_replacing(file: &RegistryFile, journal: &JournalStore, known: Option<Digest>, revision: u64) {
    let aside = blocking(file, "cannot be put aside", move |file| file.set_aside_unless(known, revision)).await;
    let noted = match aside {
        Ok(None) => Ok(()),
        Ok(Some(odd)) => {
            let kept = odd.aside.map_or_else(String::new, |path| format!("; it is kept as `{}`", path.display()));
            let why = format!("while the daemon ran, another program wrote or removed it{kept}");
            tracing::warn!(file = %file.path().display(), "the access registry was not as it was left: {why}");
            note_refusal(journal, &refused(file, odd.found, known, why)).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = noted {
        tracing::error!(error = &error as &dyn std::error::Error, "an access registry that is not ours was not kept");
    }
}

fn refused(file: &RegistryFile, found: Option<Digest>, expected: Option<Digest>, why: String) -> RegistryError {
    RegistryError::Refused { path: file.path().to_owned(), found, expected, why }
}

/// What the journal says the registry is: revision and digest.
async fn expected(journal: &JournalStore) -> Result<Option<(u64, Digest)>, RegistryError> {
    Ok(match journal.last_access_change().await? {
        Some(JournalEvent::AccessChanged { revision, after, .. }) => Some((revision, after)),
        _ => None,
    })
}

/// The registry as it is stored, if it is the one that the journal knows.
async fn stored(
    file: &RegistryFile,
    journal: &JournalStore,
) -> Result<Option<(RegistryDocument, Digest)>, RegistryError> {
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

async fn note_refusal(journal: &JournalStore, error: &RegistryError) -> Result<(), RegistryError> {
    if let RegistryError::Refused { found, expected, why, .. } = error {
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
pub fn peek(state_dir: &Path) -> Result<Registered, RegistryError> {
    let file = RegistryFile::within(state_dir);
    let Some(bytes) = file.read().map_err(io(&file, "cannot be read"))? else { return Ok(Registered::default()) };
    let document = RegistryDocument::parse(&bytes)
        .map_err(|flaw| refused(&file, Some(Digest::of(&bytes)), None, flaw.to_string()))?;
    Ok(registered(&document)?)
}

/// Accepts the file as it is, deliberately, and records that. Returns its revision.
///
/// # Errors
/// There is no file, or it contradicts itself: that much is never accepted.
pub async fn accept(state_dir: &Path, journal: &JournalStore) -> Result<u64, RegistryError> {
    let file = RegistryFile::within(state_dir);
    let known = expected(journal).await?;
    let bytes = blocking(&file, "cannot be read", RegistryFile::read).await?;
    let found = bytes.as_deref().map(Digest::of);
    let refuse = |why: String| refused(&file, found, known.map(|(_, digest)| digest), why);
    let bytes = bytes.ok_or_else(|| refuse("it is missing".to_owned()))?;
    let mut document = RegistryDocument::parse(&bytes).map_err(|flaw| refuse(flaw.to_string()))?;
    let what = AccessChange::RegistryAccepted { found };
    // Revisions only grow, whatever the file says of itself.
    let (after_revision, before) = known.map_or((0, None), |(revision, digest)| (revision, Some(digest)));
    let change = Change { by: Principal::local_owner(), what, before, after_revision, in_place: found, policy: None };
    commit(&file, journal, &mut document, change).await?;
    Ok(document.revision())
}

/// Starts over: the file is put aside, and there are no members but the local owner, and no tokens. Returns where the
/// old file is now.
///
/// # Errors
/// The files or the journal cannot be written.
pub async fn reset(state_dir: &Path, journal: &JournalStore, now: Timestamp) -> Result<Option<PathBuf>, RegistryError> {
    let file = RegistryFile::within(state_dir);
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
    let what = AccessChange::RegistryReset { aside: aside.clone() };
    let (after_revision, before) = known.map_or((0, None), |(revision, digest)| (revision, Some(digest)));
    let change = Change { by: Principal::local_owner(), what, before, after_revision, in_place: None, policy: None };
    commit(&file, journal, &mut document, change).await?;
    Ok(aside)
}
