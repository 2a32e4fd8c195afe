//! The rules in force, and how others take their place.
//!
//! What decides is one pointer. A set is read, checked and tried beside it, and takes its place whole or not at all;
//! the journal says so first. A call keeps the answer it got: its grant or approval names the set it was decided under.

use crate::access::{RegistryError, VerifiedPeer};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::rehearse::Rehearsal;
use palyra_policy::{
    CheckedSet, Flaw, Note, PolicyAction, PolicyDiff, PolicyEngine, PolicyFile, PolicyFiles, PolicyLoader,
    PolicyResource, RefusedSet, RuleText,
};
use palyra_protocol::{Digest, JournalEvent, Principal, Problem, Timestamp};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The most flaws that the journal and the status keep of a refused set.
const MOST_FLAWS: usize = 20;

/// While it is held, no other rules take over.
pub(crate) type RulesStay = tokio::sync::OwnedRwLockReadGuard<()>;

/// What decides, and where it came from.
#[derive(Debug)]
pub(crate) struct RunningPolicy {
    engine: RwLock<PolicyEngine>,
    loader: PolicyLoader,
    state: Mutex<State>,
    /// One reading at a time.
    reloading: Arc<tokio::sync::Mutex<()>>,
    /// Held by whoever opens a call until that is recorded, and by whoever replaces the rules until they are in force.
    turn: Arc<tokio::sync::RwLock<()>>,
}

#[derive(Debug)]
struct State {
    files: Digest,
    cases: usize,
    notes: Vec<Note>,
    loaded_at: Timestamp,
    refused: Option<RefusedPolicy>,
}

/// A set that was read and may not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedPolicy {
    /// The files, where they could be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Digest>,
    /// When.
    pub at: Timestamp,
    /// What is wrong with it, as far as it is kept.
    pub flaws: Vec<Flaw>,
    /// The same in a sentence, where it is no flaw of a file.
    pub summary: String,
    /// How many flaws there are in all.
    pub count: usize,
}

/// How the rules stand.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyStatus {
    /// The set that decides.
    pub policy_hash: Digest,
    /// How many rules it has.
    pub rules: usize,
    /// How many of them are the operator's.
    pub operator_rules: usize,
    /// How many cases it answered as they expect.
    pub cases: usize,
    /// Where the operator's rules are read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The files it was made of.
    pub files: Digest,
    /// Since when it decides.
    pub loaded_at: Timestamp,
    /// What is worth a second look.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The set that was found there since, and may not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedPolicy>,
}

/// What reading the rules anew came to.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Reloaded {
    /// The same set; nothing changed.
    Unchanged,
    /// Another set decides from now on.
    Replaced {
        /// The set that decided until now.
        from: Digest,
    },
    /// The set may not run; the one before goes on.
    Refused(RefusedPolicy),
}

impl RunningPolicy {
    pub(crate) fn new(set: CheckedSet, loader: PolicyLoader, now: Timestamp) -> Self {
        let CheckedSet { engine, files, cases, notes } = set;
        Self {
            engine: RwLock::new(engine),
            loader,
            state: Mutex::new(State { files, cases, notes, loaded_at: now, refused: None }),
            reloading: Arc::default(),
            turn: Arc::default(),
        }
    }

    pub(crate) fn engine(&self) -> PolicyEngine {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the rules in force.
    pub(crate) async fn stay(&self) -> RulesStay {
        Arc::clone(&self.turn).read_owned().await
    }

    /// Waits until nobody relies on the rules in force, and keeps it so: from before their successors are recorded
    /// until they decide.
    pub(crate) async fn turn(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.turn.write().await
    }

    /// Keeps reloads out while the members change.
    pub(crate) async fn hold(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.reloading).lock_owned().await
    }

    /// The same rules for other members take their place.
    pub(crate) fn reseat(&self, engine: PolicyEngine) {
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = engine;
    }

    fn status(&self) -> PolicyStatus {
        let engine = self.engine();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        PolicyStatus {
            policy_hash: engine.policy_hash(),
            rules: engine.rules().count(),
            operator_rules: engine.operator_rules().count(),
            cases: state.cases,
            directory: self.loader.directory.clone(),
            files: state.files,
            loaded_at: state.loaded_at,
            notes: state.notes.clone(),
            refused: state.refused.clone(),
        }
    }

    fn install(&self, set: CheckedSet, since: Timestamp) {
        let CheckedSet { engine, files, cases, notes } = set;
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = engine;
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) =
            State { files, cases, notes, loaded_at: since, refused: None };
    }

    /// Keeps what was refused; says whether that is news.
    fn refuse(&self, refused: &RefusedPolicy) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.refused.as_ref().is_some_and(|known| {
            known.files == refused.files && known.flaws == refused.flaws && known.summary == refused.summary
        });
        state.refused = Some(refused.clone());
        !known
    }
}

impl RefusedPolicy {
    fn new(refused: RefusedSet, at: Timestamp) -> Self {
        let RefusedSet { files, error } = refused;
        let flaws = error.flaws();
        let kept = flaws.iter().take(MOST_FLAWS).cloned().collect();
        Self { files, at, flaws: kept, summary: error.to_string(), count: flaws.len().max(1) }
    }

    #[must_use]
    /// What is wrong with it, a line for each flaw.
    pub fn lines(&self) -> Vec<String> {
        if self.flaws.is_empty() {
            return vec![self.summary.clone()];
        }
        self.flaws.iter().map(ToString::to_string).collect()
    }
}

impl Engine {
    /// How the rules stand.
    ///
    /// # Errors
    /// The peer may not know.
    pub fn policy_status(&self, peer: &VerifiedPeer) -> Result<PolicyStatus, EngineError> {
        self.authorize(peer, PolicyAction::DaemonStatus, PolicyResource::Daemon, None)?;
        let mut status = self.running_policy().status();
        // Excerpts of rules are for those who may read them.
        if !self.may(peer, PolicyAction::PolicyShow, PolicyResource::PolicySet) {
            status.notes.clear();
            status.directory = None;
            if let Some(refused) = &mut status.refused {
                refused.flaws.clear();
                "a set of rules was refused".clone_into(&mut refused.summary);
            }
        }
        Ok(status)
    }

    /// The directory that the rules are read from.
    #[must_use]
    pub fn policy_directory(&self) -> Option<PathBuf> {
        self.running_policy().loader.directory.clone()
    }

    /// Reads the rules anew because somebody said so.
    ///
    /// # Errors
    /// The peer may not, or the journal cannot take it down.
    pub async fn reload_policy(&self, peer: &VerifiedPeer) -> Result<Reloaded, EngineError> {
        if let Err(refusal) = self.authorize(peer, PolicyAction::PolicyReload, PolicyResource::PolicySet, None) {
            let refused = JournalEvent::AccessRefused {
                by: peer.effective().clone(),
                action: PolicyAction::PolicyReload.as_str().to_owned(),
                resource: PolicyResource::PolicySet.to_string(),
                problem: refusal.problem.clone(),
            };
            self.journal().note(&refused).await?;
            return Err(refusal);
        }
        self.reload(peer.effective().clone()).await
    }

    /// Reads the rules anew because their files changed.
    ///
    /// # Errors
    /// The journal cannot take it down.
    pub async fn policy_files_changed(&self) -> Result<Reloaded, EngineError> {
        self.reload(Principal::daemon()).await
    }

    /// How the rules are read: with what the access registry says and the catalog holds now.
    fn policy_loader(&self) -> Result<PolicyLoader, EngineError> {
        let mut loader = self.running_policy().loader.clone();
        let registered = self.access().registered().map_err(RegistryError::from)?;
        loader.membership = loader.membership.with_registered(registered);
        // Cases may name every tool that there is by now.
        if loader.tools.is_some() {
            loader.tools = Some(Arc::new(Rehearsal::of(self.catalog())));
        }
        Ok(loader)
    }

    /// Once begun it is carried through: whoever asked for it may go away, and rules that are on record then decide.
    pub(crate) async fn reload(&self, by: Principal) -> Result<Reloaded, EngineError> {
        let engine = self.clone();
        let reloading = tokio::spawn(async move { engine.read_and_replace(by).await });
        reloading.await.map_err(|_| cut_off())?
    }

    async fn read_and_replace(&self, by: Principal) -> Result<Reloaded, EngineError> {
        let running = self.running_policy();
        let _one_at_a_time = running.reloading.lock().await;
        let loader = self.policy_loader()?;
        let loaded = tokio::task::spawn_blocking(move || loader.load()).await.map_err(|_| cut_off())?;
        let now = self.clock().now();
        let from = self.policy_hash();
        let set = match loaded {
            Ok(set) => set,
            Err(refused) => return self.note_refusal(RefusedPolicy::new(refused, now), from, by).await,
        };
        let to = set.engine.policy_hash();
        if to == from {
            let since = running.status().loaded_at;
            running.install(set, since);
            self.announce_rights();
            return Ok(Reloaded::Unchanged);
        }
        let event = JournalEvent::PolicyReloaded {
            from,
            to,
            files: set.files,
            rules: set.engine.rules().count() as u64,
            cases: set.cases as u64,
            by,
        };
        // Durable first: a decision under rules that the journal does not know of would be a riddle later.
        let turn = running.turn().await;
        self.journal().note_rules(&event, to).await?;
        running.install(set, now);
        drop(turn);
        self.announce_rights();
        self.reconsider().await;
        Ok(Reloaded::Replaced { from })
    }

    async fn note_refusal(
        &self,
        refused: RefusedPolicy,
        running: Digest,
        by: Principal,
    ) -> Result<Reloaded, EngineError> {
        if self.running_policy().refuse(&refused) {
            let event = JournalEvent::PolicyRejected {
                running,
                files: refused.files,
                flaws: refused.lines(),
                count: refused.count as u64,
                by,
            };
            self.journal().note(&event).await?;
        }
        Ok(Reloaded::Refused(refused))
    }

    /// Every rule, or the one with an id.
    ///
    /// # Errors
    /// The peer may not see them, or there is none with this id.
    pub fn rules(&self, peer: &VerifiedPeer, id: Option<&str>) -> Result<Vec<RuleText>, EngineError> {
        self.authorize(peer, PolicyAction::PolicyShow, PolicyResource::PolicySet, None)?;
        let policy = self.policy();
        let Some(id) = id else { return Ok(policy.rules().map(RuleText::from).collect()) };
        let rule = policy.rule(id).ok_or_else(|| {
            let known = policy.rules().map(palyra_policy::Rule::id);
            let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(known, id)).unwrap_or_default();
            let hint = format!("did you mean `{nearest}`? `palyra policy show` lists them");
            EngineError::new(ErrorKind::NotFound, Problem::new("rule_not_found", "there is no such rule", hint))
        })?;
        Ok(vec![rule.into()])
    }

    /// The operator's files as they stand in their directory: rules, cases and groups.
    ///
    /// # Errors
    /// The peer may not see the rules, or the files cannot be read.
    pub async fn policy_files(&self, peer: &VerifiedPeer) -> Result<Vec<PolicyFile>, EngineError> {
        self.authorize(peer, PolicyAction::PolicyShow, PolicyResource::PolicySet, None)?;
        let loader = self.policy_loader()?;
        let Some(directory) = loader.directory.clone() else { return Ok(Vec::new()) };
        let read = tokio::task::spawn_blocking(move || PolicyFiles::read(&directory, loader.custody.as_deref()));
        let read = read.await.map_err(|_| cut_off())?;
        let read = read.map_err(|refused| {
            let hint = "see what is wrong with it: `palyra policy check DIR`";
            EngineError::invalid("policy_refused", format!("the policy directory cannot be read: {refused}"), hint)
        })?;
        Ok(read.files())
    }

    /// What sets a candidate apart from the rules in force.
    ///
    /// # Errors
    /// The peer may not see the rules, or the candidate may not run.
    pub async fn compare_policy(&self, peer: &VerifiedPeer, files: Vec<PolicyFile>) -> Result<PolicyDiff, EngineError> {
        self.authorize(peer, PolicyAction::PolicyShow, PolicyResource::PolicySet, None)?;
        let candidate = self.candidate(files).await?;
        Ok(PolicyDiff::between(&self.policy(), &candidate.engine))
    }

    /// The rules of a set that a caller sent, without their cases, off the async threads.
    pub(crate) async fn untried_candidate(&self, files: Vec<PolicyFile>) -> Result<PolicyEngine, EngineError> {
        let loader = self.policy_loader()?;
        let checked = tokio::task::spawn_blocking(move || {
            let files = PolicyFiles::new(files).map_err(|error| RefusedSet { files: None, error })?;
            loader.untried(&files)
        });
        checked.await.map_err(|_| cut_off())?.map_err(|refused| {
            let message = format!("the candidate may not run: {refused}");
            EngineError::invalid("policy_refused", message, "see all that is wrong with it: `palyra policy check DIR`")
        })
    }

    /// A set that somebody sent, checked and tried like any other, off the async threads.
    pub(crate) async fn candidate(&self, files: Vec<PolicyFile>) -> Result<CheckedSet, EngineError> {
        let loader = self.policy_loader()?;
        let checked = tokio::task::spawn_blocking(move || {
            let files = PolicyFiles::new(files).map_err(|error| RefusedSet { files: None, error })?;
            loader.check(&files)
        });
        checked.await.map_err(|_| cut_off())?.map_err(|refused| {
            EngineError::invalid(
                "policy_refused",
                format!("the candidate may not run: {refused}"),
                "see all that is wrong with it: `palyra policy check DIR`",
            )
        })
    }
}

fn cut_off() -> EngineError {
    EngineError::new(ErrorKind::Internal, Problem::plain("internal", "reading the rules was cut off"))
}
