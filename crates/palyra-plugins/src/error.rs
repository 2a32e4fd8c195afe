//! Why a component could not be used, or how a guest's call ended: one enum, its variants grouped by whose fault it is.
//!
//! A tool that answers with an error of its own is not an error here but a [`crate::ToolAnswer::Failed`]. Every limit
//! that was exceeded is named together with its value, so that an author knows what to change and an operator what to
//! raise.

use crate::limits::Limit;
use palyra_protocol::Digest;
use std::io;

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The component, or what its code did.
    Guest,
    /// The grant does not cover it; an operator may change that.
    Policy,
    /// The caller asked for something that makes no sense, or withdrew.
    Caller,
    /// This host failed.
    Host,
}

/// Why there is no answer from a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    // The component's fault.
    /// The bytes are no WebAssembly at all.
    #[error("this is not a WebAssembly file")]
    NotWasm,
    /// A core module, which toolchains make on the way to a component.
    #[error("this is a core WebAssembly module, not a component")]
    CoreModule,
    /// A component that cannot be read or compiled.
    #[error("the component is malformed: {detail}")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// An import that no host of ours has.
    #[error("the component imports `{import}`, which does not exist here")]
    UnknownImport {
        /// The import.
        import: String,
    },
    /// The component does not export the tools interface, or another shape of it.
    #[error("the component does not export `{export}` as a skill does")]
    MissingExport {
        /// The interface or function.
        export: &'static str,
    },
    /// The guest's code trapped.
    #[error("the guest trapped: {trap}{}", in_function(function.as_deref()))]
    Trapped {
        /// Why, in the runtime's words.
        trap: String,
        /// The function that it happened in, where the component names it.
        function: Option<String>,
    },
    /// The guest ended itself as if it were a program.
    #[error("the guest called `exit` instead of answering")]
    Exited,
    /// The guest waited for something that can never happen.
    #[error("the guest waits for something that cannot happen: {detail}")]
    Stuck {
        /// What it waits for.
        detail: &'static str,
    },
    /// A limit of the grant.
    #[error("the guest exceeded its limit `{}` of {value} {}", limit.name(), limit.unit())]
    LimitExceeded {
        /// Which.
        limit: Limit,
        /// Its value.
        value: u64,
    },
    /// A replay that left its record.
    #[error("the replay diverged: {0}")]
    Diverged(crate::record::Divergence),
    /// A text that is not UTF-8.
    #[error("the guest returned text that is not valid UTF-8")]
    NotUtf8,

    // The grant's decision.
    /// An interface of ours that the grant does not name.
    #[error("the component imports `{import}` and its grant does not include that")]
    ImportNotGranted {
        /// The import.
        import: String,
    },

    // The caller's fault.
    /// The caller withdrew, or the daemon is ending.
    #[error("the call was cancelled")]
    Cancelled,
    /// The name of a skill that cannot be one.
    #[error("`{given}` cannot name a skill")]
    SkillName {
        /// What was given.
        given: String,
    },

    // The host's fault.
    /// More calls than the queue holds.
    #[error("{waiting} calls are waiting already; `{}` is {value}", limit.name())]
    Busy {
        /// Which limit.
        limit: Limit,
        /// Its value.
        value: u64,
        /// How many wait.
        waiting: u64,
    },
    /// The bytes are not those that were asked for.
    #[error("the component's digest is {found}, not {expected}")]
    DigestMismatch {
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what was found.
        found: Digest,
    },
    /// The runtime could not be started.
    #[error("the WebAssembly runtime cannot be started: {detail}")]
    Runtime {
        /// Why.
        detail: String,
    },
    /// Something of the host failed.
    #[error("could not {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A promise of our own code was broken.
    #[error("the host failed: {detail}")]
    Bug {
        /// Which.
        detail: String,
    },
}

fn in_function(function: Option<&str>) -> String {
    function.map_or_else(String::new, |name| format!(" in `{name}`"))
}

impl PluginError {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    /// The stable code by which programs know this error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotWasm => "plugin_not_wasm",
            Self::CoreModule => "plugin_core_module",
            Self::Malformed { .. } => "plugin_malformed",
            Self::UnknownImport { .. } => "plugin_unknown_import",
            Self::MissingExport { .. } => "plugin_missing_export",
            Self::Trapped { .. } => "plugin_trapped",
            Self::Exited => "plugin_exited",
            Self::Stuck { .. } => "plugin_stuck",
            Self::LimitExceeded { limit, .. } | Self::Busy { limit, .. } => limit.code(),
            Self::Diverged(_) => "replay_diverged",
            Self::NotUtf8 => "plugin_not_utf8",
            Self::ImportNotGranted { .. } => "plugin_import_not_granted",
            Self::Cancelled => "plugin_cancelled",
            Self::SkillName { .. } => "plugin_skill_name",
            Self::DigestMismatch { .. } => "plugin_digest_mismatch",
            Self::Runtime { .. } => "plugin_runtime",
            Self::Io { .. } => "plugin_io",
            Self::Bug { .. } => "plugin_bug",
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotWasm
            | Self::CoreModule
            | Self::Malformed { .. }
            | Self::UnknownImport { .. }
            | Self::MissingExport { .. }
            | Self::Trapped { .. }
            | Self::Exited
            | Self::Stuck { .. }
            | Self::LimitExceeded { .. }
            | Self::Diverged(_)
            | Self::NotUtf8 => Fault::Guest,
            Self::ImportNotGranted { .. } => Fault::Policy,
            Self::Cancelled | Self::SkillName { .. } => Fault::Caller,
            Self::Busy { .. }
            | Self::DigestMismatch { .. }
            | Self::Runtime { .. }
            | Self::Io { .. }
            | Self::Bug { .. } => Fault::Host,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::CoreModule => Some("build it as a component for the world `palyra:skill/skill@1.0.0`".into()),
            Self::UnknownImport { .. } => {
                Some("a skill may import `palyra:skill/*` and the interfaces of WASI 0.2".into())
            }
            Self::MissingExport { .. } => Some("build it for the world `palyra:skill/skill@1.0.0`".into()),
            Self::ImportNotGranted { .. } => {
                Some("ask for it in the skill's manifest, and let the operator's policy allow it".into())
            }
            Self::LimitExceeded { limit, .. } | Self::Busy { limit, .. } => Some(limit.hint().into()),
            Self::DigestMismatch { .. } => Some("install the skill again".into()),
            Self::Exited => Some("return a value or an error from the tool".into()),
            Self::NotWasm
            | Self::Malformed { .. }
            | Self::Trapped { .. }
            | Self::Stuck { .. }
            | Self::Diverged(_)
            | Self::NotUtf8
            | Self::Cancelled
            | Self::SkillName { .. }
            | Self::Runtime { .. }
            | Self::Io { .. }
            | Self::Bug { .. } => None,
        }
    }
}

/// Why a guest is stopped from within a host function. It travels through the runtime as the trap's cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("limit exceeded")]
    Limit(Limit, u64),
    #[error("cancelled")]
    Cancelled,
    #[error("exit")]
    Exit,
    #[error("stuck: {0}")]
    Stuck(&'static str),
    #[error("the guest misused a host interface: {0}")]
    Misuse(&'static str),
    #[error("the replay diverged")]
    Diverged(crate::record::Divergence),
}
