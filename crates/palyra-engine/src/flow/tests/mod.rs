//! The path on a real journal and real files, with a clock that tests set and that can act when the journal's writer
//! reads it.

mod forbidden_places;
mod fresh_answers;
mod gone_grants;
mod permits;
mod routines;
mod subjects;

use crate::access::{AccessControl, VerifiedPeer};
use crate::approvals::answer::Answer;
use crate::config::{CallLimits, ToolCallConfig, WasmRuntime};
use crate::engine::{Engine, EngineParts};
use crate::error::EngineError;
use crate::flow::propose::{CallInProgress, Proposal};
use crate::live::CallUpdate;
use palyra_journal::JournalStore;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::{ApprovalDecision, ApprovalRecord, ApprovalScope, DaemonKey, GrantMatcher, JournalEvent};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use palyra_testkit::SetClock;
use palyra_workspace::Workspace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A daemon's engine with a workspace and rules.
pub(crate) struct House {
    dir: TempDir,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) engine: Engine,
}

impl House {
    /// With these rules beside the defaults.
    pub(crate) async fn with_rules(rules: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state", "work", "rules"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("rules/test.cedar"), rules).unwrap();
        let clock = SetClock::at(1_800_000_000_000);
        let engine = engine(dir.path(), clock.clone()).await;
        Self { dir, clock, engine }
    }

    /// Puts these rules in the place of those beside the defaults.
    pub(super) async fn replace_rules(&self, rules: &str) {
        std::fs::write(self.dir.path().join("rules/test.cedar"), rules).unwrap();
        self.engine.reload_policy(&owner()).await.unwrap();
    }

    /// Where its engine keeps what lasts.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The same place with a new engine.
    pub(crate) async fn restarted(self) -> Self {
        let Self { dir, clock, engine: old } = self;
        drop(old);
        let engine = engine(dir.path(), clock.clone()).await;
        Self { dir, clock, engine }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(super) fn write(&self, path: &str) -> CallInProgress {
        let input = serde_json::json!({ "path": path, "content": "x" }).to_string().into_bytes();
        self.engine.propose(&owner(), Proposal { tool: "palyra.fs.write".to_owned(), input, ..Proposal::default() })
    }

    /// Answers a question with a yes that also covers every other call of its tool for a minute.
    pub(super) async fn grant_for_a_minute(&self, asked: &ApprovalRecord) {
        let answer = Answer {
            approval_id: asked.approval_id.clone(),
            decision: ApprovalDecision::Allow,
            scope: ApprovalScope::Window { ms: 60_000 },
            matcher: GrantMatcher::Tool,
            reason: None,
            digest: None,
            signature: None,
        };
        self.engine.decide_approval(&owner(), answer).await.unwrap();
    }

    /// Every event of the journal from a place on.
    pub(crate) async fn events(&self, first: u64) -> Vec<JournalEvent> {
        let events = self.engine.journal().events(first, 10_000).await.unwrap();
        events.iter().map(|event| serde_json::from_str(&event.body).unwrap()).collect()
    }

    pub(super) fn recorded(&self) -> u64 {
        self.engine.journal().head().borrow().size
    }
}

pub(crate) fn owner() -> VerifiedPeer {
    VerifiedPeer::on_local_socket(Some(1), 1, "cli".parse().unwrap()).unwrap().at_home()
}

/// What came first: a question to a person, or the call's end.
#[derive(Debug)]
pub(crate) enum Came {
    Asked(Arc<ApprovalRecord>),
    Ended(Result<CallUpdate, EngineError>),
}

pub(crate) async fn next(call: &mut CallInProgress) -> Came {
    while let Ok(update) = call.updates.recv().await {
        if let CallUpdate { approval: Some(asked), outcome: None, .. } = update {
            return Came::Asked(asked);
        }
    }
    Came::Ended((&mut call.end).await.unwrap())
}

pub(crate) async fn asked(call: &mut CallInProgress) -> Arc<ApprovalRecord> {
    match next(call).await {
        Came::Asked(asked) => asked,
        Came::Ended(end) => panic!("nobody was asked: {end:?}"),
    }
}

pub(crate) async fn ended(call: &mut CallInProgress) -> CallUpdate {
    match next(call).await {
        Came::Ended(end) => end.unwrap(),
        Came::Asked(asked) => panic!("a person was asked: {asked:?}"),
    }
}

async fn engine(dir: &Path, clock: Arc<SetClock>) -> Engine {
    let root = dir.join("work");
    let journal = JournalStore::open(&dir.join("state/journal.db"), clock.clone()).unwrap();
    let access = AccessControl::open(&dir.join("state"), &root, &journal, clock.clone()).await.unwrap();
    let membership = Membership::single_user().with_registered(access.registered().unwrap());
    let loader = PolicyLoader { directory: Some(dir.join("rules")), membership, tools: None, custody: None };
    let config = ToolCallConfig {
        allowed_tools: crate::tools::names().map(|name| name.parse().unwrap()).collect(),
        max_calls_per_run: 1000,
        limits: CallLimits::default(),
        execution_timeout: Duration::from_secs(60),
        longest_timeout: Duration::from_secs(3600),
        approval_timeout: Duration::from_secs(600),
        process_runner: SandboxProcessRunnerPolicy::over(&root, SandboxTier::B),
        egress_rules: Arc::default(),
        wasm_runtime: WasmRuntime::Enabled(Box::default()),
        effects: crate::EffectsConfig::default(),
        outside_paths: crate::OutsidePaths::Refuse,
    };
    Engine::new(EngineParts {
        policy: loader.load().unwrap(),
        policy_loader: loader,
        access,
        journal,
        workspace: Workspace::open(&root).unwrap(),
        config,
        key: DaemonKey::generate().unwrap(),
        vault: crate::vault::VaultSettings::default(),
    })
    .unwrap()
}
