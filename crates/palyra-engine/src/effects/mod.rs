//! Effects in the engine: what a call changes is decided before it counts, recorded, and can be put back.
//!
//! ```text
//! begin ─▶ the run works on a view ─▶ collect ─▶ Cedar: effect.apply ─▶ stage ─▶ effect.intended ─▶ apply ─▶ outcome
//!                                                      │
//!                                                      └▶ guarded or reviewed changes wait as one approval
//! ```
//!
//! [`Effects`] is the store with the rules about it. `settle.rs` is the diagram above, `waiting.rs` what follows a
//! person's answer, `recover.rs` what a start does about effects that were cut off, `undo.rs` and `shown.rs` what
//! people ask for.
//!
//! This module must never change the workspace before `effect.intended` is durable.

mod about;
mod change;
mod entrances;
mod judge;
mod probe;
mod recover;
mod settle;
mod shown;
mod undo;
mod waiting;

pub use shown::{EffectListing, EffectShown, EffectsStatus};
pub use undo::{UndoReport, UndoTarget, UndoneView};

pub(crate) use settle::{Ending, Settled};

use crate::config::EffectsConfig;
use palyra_protocol::{CallId, Problem};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use palyra_workspace::Workspace;
use palyra_workspace::effects::{Applied, EffectError, GuardRules, GuardRulesError, View, ViewStore};
use std::sync::{OnceLock, PoisonError, RwLock};

/// The store of views, and the rules about it.
#[derive(Debug)]
pub(crate) struct Effects {
    store: Result<ViewStore, Problem>,
    guard: GuardRules,
    config: EffectsConfig,
    /// Whether overlays of this workspace can be mounted; found out when it is first asked.
    overlays: OnceLock<Result<(), Problem>>,
    /// Held for writing while a plan is carried out: no view begins over a workspace that is being changed.
    changing: RwLock<()>,
}

impl Effects {
    /// Opens the store. Where there can be none, calls work as far as they can without it, and say so.
    pub(crate) fn open(config: EffectsConfig, workspace: &Workspace) -> Result<Self, GuardRulesError> {
        let guard = GuardRules::new(config.guarded.iter().map(String::as_str))?;
        let store = match &config.store {
            Some(path) => ViewStore::open(path, workspace).map_err(|error| effect_problem(&error)),
            None => Err(no_store()),
        };
        if let Err(problem) = &store {
            tracing::warn!(problem = problem.message, "changes of calls cannot be undone");
        }
        Ok(Self { store, guard, config, overlays: OnceLock::new(), changing: RwLock::new(()) })
    }

    /// The store, or why there is none.
    pub(crate) fn store(&self) -> Result<&ViewStore, &Problem> {
        self.store.as_ref()
    }

    pub(crate) fn guard(&self) -> &GuardRules {
        &self.guard
    }

    pub(crate) fn config(&self) -> &EffectsConfig {
        &self.config
    }

    /// Whether runs under this policy can work on a view of the workspace, or why not.
    pub(crate) fn views(&self, policy: &SandboxProcessRunnerPolicy, workspace: &Workspace) -> Result<(), Problem> {
        if policy.tier != SandboxTier::C {
            return Err(Problem::new(
                "views_need_tier_c",
                "processes in tier b work on the workspace itself",
                "set `tier = \"c\"` in palyra.toml",
            ));
        }
        if policy.workspace_access == WorkspaceAccess::ReadOnly {
            return Err(Problem::plain("workspace_read_only", "processes cannot change the workspace at all"));
        }
        let store = self.store().map_err(Clone::clone)?;
        self.overlays.get_or_init(|| probe::overlay(store, policy, workspace)).clone()
    }

    /// Begins the view of a call.
    pub(crate) fn begin(&self, call: &CallId, workspace: &Workspace) -> Result<View, EffectError> {
        let store = self.store().map_err(|_| EffectError::NotKept { id: call.to_string() })?;
        let _nothing_changes = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        store.begin(call.as_str(), workspace)
    }

    /// Carries out a plan whose intent is recorded.
    fn apply(&self, store: &ViewStore, view: &str, workspace: &Workspace) -> Result<Applied, EffectError> {
        let _no_view_begins = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        store.apply(view, workspace)
    }
}

fn no_store() -> Problem {
    Problem::new(
        "no_effect_store",
        "there is no directory for what calls replace, so nothing can be undone",
        "start the daemon with a state directory",
    )
}

/// An error of the store in words that a caller can act on.
pub(crate) fn effect_problem(error: &EffectError) -> Problem {
    let hint = match error {
        EffectError::TooManyFiles { .. } => Some("change fewer files in one call, or raise `effects.max_files`"),
        EffectError::TooManyBytes { .. } => Some("write less in one call, or raise `effects.max_bytes`"),
        EffectError::OtherFileSystem { .. } => Some(
            "put the state directory on the workspace's file system, or name a directory there with `effects.store`",
        ),
        EffectError::NotKept { .. } => Some("see what is kept: `palyra effects list`"),
        EffectError::AlreadyUndone { .. } => Some("undo the undo to bring the changes back: `palyra effects list`"),
        _ => None,
    };
    Problem { hint: hint.map(str::to_owned), ..Problem::plain(error.code(), error.to_string()) }
}

/// Names the source of an error of the host in the log; the caller sees the message alone.
pub(crate) fn log(error: &EffectError, what: &str) {
    tracing::warn!(error = error as &dyn std::error::Error, "{what}");
}
