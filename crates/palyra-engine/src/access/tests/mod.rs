//! Access control on a real journal and real files, with a clock that tests set.

mod console;
mod crashes;
mod issuing;
mod reach;
mod seeing;
mod tokens;
mod waiting;

use super::{AccessControl, RegistryError, VerifiedPeer};
use crate::config::{ToolCallConfig, WasmRuntime};
use crate::engine::{Engine, EngineParts};
use crate::error::EngineError;
use palyra_access::{NewToken, REGISTRY_FILE};
use palyra_journal::JournalStore;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::access::TokenView;
use palyra_protocol::{ChannelId, DaemonKey};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use palyra_testkit::SetClock;
use palyra_workspace::Workspace;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A state directory, a workspace, and a time.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) clock: Arc<SetClock>,
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state", "work", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, clock: SetClock::at(1_800_000_000_000) }
    }

    pub(super) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(super) fn registry(&self) -> PathBuf {
        self.state().join(REGISTRY_FILE)
    }

    pub(super) fn journal(&self) -> JournalStore {
        JournalStore::open(&self.state().join("journal.db"), self.clock.clone()).unwrap()
    }

    pub(super) fn later(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Opens the registry as a start does.
    pub(super) async fn open(&self, work: &str, journal: &JournalStore) -> Result<AccessControl, RegistryError> {
        let root = self.dir.path().join(work);
        AccessControl::open(&self.state(), &root, journal, self.clock.clone()).await
    }

    /// A daemon on this place, with these rules beside the defaults.
    pub(super) async fn engine_with(&self, work: &str, rules: &str) -> Engine {
        let journal = self.journal();
        let access = self.open(work, &journal).await.unwrap();
        let rules_dir = self.dir.path().join("rules");
        std::fs::create_dir_all(&rules_dir).unwrap();
        std::fs::write(rules_dir.join("test.cedar"), rules).unwrap();
        let membership = Membership::single_user().with_registered(access.registered().unwrap());
        let loader = PolicyLoader { directory: Some(rules_dir), membership, tools: None, custody: None };
        let root = self.dir.path().join(work);
        let config = ToolCallConfig {
            allowed_tools: ["palyra.echo".parse().unwrap(), "palyra.fs.list".parse().unwrap()].into(),
            max_calls_per_run: 100,
            limits: crate::config::CallLimits::default(),
            execution_timeout: Duration::from_secs(60),
            longest_timeout: Duration::from_secs(3600),
            approval_timeout: Duration::from_secs(60),
            process_runner: SandboxProcessRunnerPolicy::over(&root, SandboxTier::C),
            egress_rules: Arc::default(),
            wasm_runtime: WasmRuntime::Disabled,
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

    pub(super) async fn engine(&self) -> Engine {
        self.engine_with("work", "").await
    }
}

pub(super) fn channel() -> ChannelId {
    "cli".parse().unwrap()
}

/// The daemon's own user.
pub(super) fn owner() -> VerifiedPeer {
    VerifiedPeer::on_local_socket(Some(1), 1, channel()).unwrap().at_home()
}

/// A token of somebody, with everything at its default.
pub(super) fn new_token(principal: &str) -> NewToken {
    NewToken {
        principal: principal.parse().unwrap(),
        label: String::new(),
        role: None,
        scopes: vec![],
        life: None,
        rate_per_minute: None,
    }
}

pub(super) fn scoped(principal: &str, role: &str, scopes: &[&str]) -> NewToken {
    NewToken {
        role: Some(role.parse().unwrap()),
        scopes: scopes.iter().map(|s| s.parse().unwrap()).collect(),
        ..new_token(principal)
    }
}

/// Issues a token as the owner and returns its text.
pub(super) async fn issue(engine: &Engine, new: NewToken) -> (TokenView, String) {
    let (view, text) = engine.create_token(&owner(), new).await.unwrap();
    (view, String::from_utf8(text.expose().to_vec()).unwrap())
}

pub(super) fn come(engine: &Engine, token: &str) -> Result<VerifiedPeer, EngineError> {
    VerifiedPeer::by_token(engine, token, "test", channel())
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, EngineError>) -> String {
    result.unwrap_err().problem.code
}

/// Every event of the journal, as one text.
pub(super) async fn told(engine: &Engine) -> String {
    let events = engine.journal().events(1, 10_000).await.unwrap();
    events.iter().map(|e| format!("{} {}\n", e.kind, e.body)).collect()
}
