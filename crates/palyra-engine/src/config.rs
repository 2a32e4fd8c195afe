//! What the engine is told at start: limits, the allow-list, how processes run.

use palyra_egress::EgressRules;
use palyra_plugins::WasmPluginRunnerPolicy;
use palyra_protocol::ToolName;
use palyra_sandbox::SandboxProcessRunnerPolicy;
use palyra_workspace::effects::{Limits, Retention};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The limits and permissions of tool calls.
#[derive(Debug, Clone)]
pub struct ToolCallConfig {
    /// The tools that may be called at all.
    pub allowed_tools: BTreeSet<ToolName>,
    /// How many calls one run may make.
    pub max_calls_per_run: u64,
    /// How much may be under way.
    pub limits: CallLimits,
    /// How long an execution may take.
    pub execution_timeout: Duration,
    /// The longest that a call may ask for.
    pub longest_timeout: Duration,
    /// How long a human has to answer.
    pub approval_timeout: Duration,
    /// How native processes are confined.
    pub process_runner: SandboxProcessRunnerPolicy,
    /// Which hosts may be reached: by `palyra.http.fetch`, and by processes under strict egress.
    pub egress_rules: Arc<EgressRules>,
    /// Whether skills may run.
    pub wasm_runtime: WasmRuntime,
    /// How what calls change is judged and kept.
    pub effects: EffectsConfig,
    /// What becomes of a file tool's call that names something outside the workspace.
    pub outside_paths: OutsidePaths,
}

/// What becomes of a call that would read outside the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutsidePaths {
    /// It is refused.
    #[default]
    Refuse,
    /// Policy decides; the rules that ship have a person asked, each time.
    Ask,
}

/// How what calls change is judged and kept.
#[derive(Debug, Clone)]
pub struct EffectsConfig {
    /// Where views and replaced files are: on the workspace's file system, out of every run's reach. None: nothing is
    /// kept.
    pub store: Option<PathBuf>,
    /// Patterns of further guarded paths.
    pub guarded: Vec<String>,
    /// How much one call may change.
    pub limits: Limits,
    /// How long replaced files are kept.
    pub retention: Retention,
    /// Patterns of paths of which nothing is kept when they are replaced: directories that a build makes again.
    pub not_kept: Vec<String>,
    /// How long changes wait for a person.
    pub approval_timeout: Duration,
}

impl Default for EffectsConfig {
    fn default() -> Self {
        Self {
            store: None,
            guarded: Vec::new(),
            limits: Limits::default(),
            retention: Retention::default(),
            not_kept: Vec::new(),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// How much may be under way at a time: of one principal, and in all.
///
/// Without them one agent could fill the daemon's memory and the lists that people work through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls of one principal, those that wait for a person included.
    pub calls_each: usize,
    /// Calls of everybody.
    pub calls: usize,
    /// Questions about one principal's calls.
    pub questions_each: usize,
    /// Questions in all.
    pub questions: usize,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { calls_each: 128, calls: 512, questions_each: 32, questions: 256 }
    }
}

/// Whether skills may run, and what they may get at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WasmRuntime {
    /// No skill runs.
    Disabled,
    /// Skills run within these limits.
    Enabled(Box<WasmPluginRunnerPolicy>),
}
