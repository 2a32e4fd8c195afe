//! Why a run was refused or could not be done: one enum, its variants grouped by whose fault it is.
//!
//! A process that ran and failed is not an error but a [`crate::ProcessOutcome`]. An error here means that nothing of
//! the caller's command ran, except [`SandboxError::TreeStuck`]. Never answer an error by trying a weaker tier.

use std::io;
use std::path::PathBuf;

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request makes no sense; another request may.
    Caller,
    /// The policy does not allow it; an operator may.
    Policy,
    /// This host lacks something, or something on it failed.
    Host,
}

/// Why a process did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    // The caller's fault.
    /// There is no command.
    #[error("the command is empty")]
    EmptyCommand,
    /// An argument, variable or path holds a NUL byte.
    #[error("`{what}` holds a NUL byte")]
    NulByte {
        /// What holds it.
        what: String,
    },
    /// No such program.
    #[error("no program named `{name}` was found")]
    ExecutableNotFound {
        /// The name that was looked for.
        name: String,
    },
    /// The file is there and cannot be executed.
    #[error("`{}` is not an executable file", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The program was replaced between decision and execution.
    #[error("`{}` changed after it was checked", path.display())]
    ExecutableChanged {
        /// The file.
        path: PathBuf,
    },
    /// The working directory lies outside every root.
    #[error("the working directory `{}` lies outside the workspace", path.display())]
    WorkingDirectoryOutside {
        /// The directory.
        path: PathBuf,
    },
    /// The working directory is not there.
    #[error("the working directory `{}` is not there", path.display())]
    WorkingDirectoryMissing {
        /// The directory.
        path: PathBuf,
    },
    /// An argument names a file outside every root.
    #[error("the argument `{argument}` names `{}`, outside the workspace", path.display())]
    ArgumentOutside {
        /// The argument as given.
        argument: String,
        /// What it resolves to.
        path: PathBuf,
    },

    // The policy's decision.
    /// The program is not among those allowed.
    #[error("`{name}` is not among the programs that may run")]
    ExecutableNotAllowed {
        /// The program.
        name: String,
    },
    /// The program lies outside every directory that the process may see.
    #[error("`{}` lies outside the directories that the process may see", path.display())]
    ExecutableNotVisible {
        /// The program.
        path: PathBuf,
    },
    /// A shell or interpreter that was not allowed by name.
    #[error("`{name}` is not allowed here: {reason}")]
    InterpreterDenied {
        /// The name that would have to be allowed.
        name: String,
        /// How it was recognised.
        reason: String,
    },
    /// A program that is started by another one, in a form in which it cannot be checked.
    #[error("`{name}` cannot be checked as it is started: {reason}")]
    WrapperRefused {
        /// The wrapper.
        name: String,
        /// Why.
        reason: String,
    },
    /// A variable that decides which program runs.
    #[error("the environment variable `{name}` decides which program runs and may not be set")]
    EnvironmentRefused {
        /// The variable.
        name: String,
    },
    /// A variable that leads programs to the filtering proxy.
    #[error("the environment variable `{name}` leads to the sandbox's own proxy and may not be set")]
    ProxyVariable {
        /// The variable.
        name: String,
    },
    /// A host that no rule speaks of.
    #[error("`{host}` is not among the hosts that may be reached")]
    HostNotAllowed {
        /// The host.
        host: String,
    },
    /// More hosts than anybody would look through.
    #[error("the command names more than {limit} hosts, and all of them have to be looked at")]
    TooManyHosts {
        /// How many are looked at.
        limit: usize,
    },
    /// Tier B cannot hold back the network.
    #[error("strict egress cannot be enforced in tier b")]
    EgressNeedsTierC,
    /// The policy contradicts itself or asks for the impossible.
    #[error("the sandbox policy is invalid: {reason}")]
    InvalidPolicy {
        /// Why.
        reason: String,
    },
    /// A root that runs could replace: its name is looked up in a directory that they may write.
    #[error(
        "the root `{}` is reached through the writable root `{}`, where a run could put something else in its place",
        inner.display(),
        outer.display()
    )]
    NestedRoots {
        /// The root, as it was named.
        inner: PathBuf,
        /// The writable root that it lies in.
        outer: PathBuf,
    },
    /// The workspace and the daemon's own state overlap.
    #[error("`{}` would expose the protected path `{}`", root.display(), protected.display())]
    ProtectedPathExposed {
        /// The root that was granted.
        root: PathBuf,
        /// The protected path.
        protected: PathBuf,
    },

    // The host's fault.
    /// A workspace or root that is not there, or is no directory.
    #[error("the workspace `{}` cannot be used", path.display())]
    WorkspaceUnavailable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The settings of a repository in the workspace are too much to be looked through, so what they name would stay
    /// unguarded.
    #[error("the files that the git settings in `{}` name cannot be protected: {reason}", path.display())]
    SettingsUnguarded {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The unprivileged user that the process must run as cannot write the workspace.
    #[error("`{}` belongs to root and this file system cannot map its owner", path.display())]
    WorkspaceOwner {
        /// The directory.
        path: PathBuf,
        /// Why the mapping failed.
        #[source]
        source: io::Error,
    },
    /// The program that builds the walls is missing.
    #[error("`{backend}` is not installed")]
    BackendMissing {
        /// The program.
        backend: &'static str,
        /// The command that installs it.
        fix: String,
    },
    /// The program that builds the walls is there and the host does not let it.
    #[error("`{backend}` could not build the sandbox: {detail}")]
    BackendBlocked {
        /// The program.
        backend: &'static str,
        /// What it said.
        detail: String,
        /// What would help.
        fix: String,
    },
    /// A layer without which the tier does not exist.
    #[error("the layer `{layer}` could not be applied")]
    LayerUnavailable {
        /// The layer.
        layer: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program could not be started.
    #[error("`{}` could not be started", path.display())]
    StartFailed {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This operating system has no such tier.
    #[error("tier {tier} is not available on this platform: {detail}")]
    Unsupported {
        /// The tier.
        tier: crate::SandboxTier,
        /// Why.
        detail: String,
    },
    /// A process of the tree does not die, even by SIGKILL.
    #[error("a process did not end within {seconds} s of being killed")]
    TreeStuck {
        /// How long it was waited for.
        seconds: u64,
    },
    /// A system call failed.
    #[error("could not {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SandboxError {
    /// An error of the host while doing `action`.
    pub fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    /// The stable code by which programs know this error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyCommand => "sandbox_empty_command",
            Self::NulByte { .. } => "sandbox_nul_byte",
            Self::ExecutableNotFound { .. } => "sandbox_executable_not_found",
            Self::NotExecutable { .. } => "sandbox_not_executable",
            Self::ExecutableChanged { .. } => "sandbox_executable_changed",
            Self::WorkingDirectoryOutside { .. } => "sandbox_working_directory_outside",
            Self::WorkingDirectoryMissing { .. } => "sandbox_working_directory_missing",
            Self::ArgumentOutside { .. } => "sandbox_argument_outside",
            Self::ExecutableNotAllowed { .. } => "sandbox_executable_not_allowed",
            Self::ExecutableNotVisible { .. } => "sandbox_executable_not_visible",
            Self::InterpreterDenied { .. } => "sandbox_interpreter_denied",
            Self::WrapperRefused { .. } => "sandbox_wrapper_refused",
            Self::EnvironmentRefused { .. } => "sandbox_environment_refused",
            Self::ProxyVariable { .. } => "sandbox_proxy_variable",
            Self::HostNotAllowed { .. } => "sandbox_host_not_allowed",
            Self::TooManyHosts { .. } => "sandbox_too_many_hosts",
            Self::EgressNeedsTierC => "sandbox_egress_needs_tier_c",
            Self::InvalidPolicy { .. } => "sandbox_invalid_policy",
            Self::NestedRoots { .. } => "sandbox_nested_roots",
            Self::ProtectedPathExposed { .. } => "sandbox_protected_path_exposed",
            Self::WorkspaceUnavailable { .. } => "sandbox_workspace_unavailable",
            Self::SettingsUnguarded { .. } => "sandbox_settings_unguarded",
            Self::WorkspaceOwner { .. } => "sandbox_workspace_owner",
            Self::BackendMissing { .. } => "sandbox_backend_missing",
            Self::BackendBlocked { .. } => "sandbox_backend_blocked",
            Self::LayerUnavailable { .. } => "sandbox_layer_unavailable",
            Self::StartFailed { .. } => "sandbox_start_failed",
            Self::Unsupported { .. } => "sandbox_unsupported",
            Self::TreeStuck { .. } => "sandbox_tree_stuck",
            Self::Io { .. } => "sandbox_io",
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::EmptyCommand
            | Self::NulByte { .. }
            | Self::ExecutableNotFound { .. }
            | Self::NotExecutable { .. }
            | Self::ExecutableChanged { .. }
            | Self::WorkingDirectoryOutside { .. }
            | Self::WorkingDirectoryMissing { .. }
            | Self::ArgumentOutside { .. } => Fault::Caller,
            Self::ExecutableNotAllowed { .. }
            | Self::ExecutableNotVisible { .. }
            | Self::InterpreterDenied { .. }
            | Self::WrapperRefused { .. }
            | Self::EnvironmentRefused { .. }
            | Self::ProxyVariable { .. }
            | Self::HostNotAllowed { .. }
            | Self::TooManyHosts { .. }
            | Self::EgressNeedsTierC
            | Self::InvalidPolicy { .. }
            | Self::NestedRoots { .. }
            | Self::ProtectedPathExposed { .. } => Fault::Policy,
            Self::WorkspaceUnavailable { .. }
            | Self::SettingsUnguarded { .. }
            | Self::WorkspaceOwner { .. }
            | Self::BackendMissing { .. }
            | Self::BackendBlocked { .. }
            | Self::LayerUnavailable { .. }
            | Self::StartFailed { .. }
            | Self::Unsupported { .. }
            | Self::TreeStuck { .. }
            | Self::Io { .. } => Fault::Host,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::ExecutableNotFound { .. } => {
                Some("give an absolute path, or a name that is on the sandbox's PATH".into())
            }
            Self::NotExecutable { path } => Some(format!("check it with `ls -l {}`", path.display())),
            Self::ExecutableChanged { .. } => Some("propose the call again: it was decided for another file".into()),
            Self::WorkingDirectoryOutside { .. } | Self::ArgumentOutside { .. } => {
                Some("stay within the workspace, or ask an operator for a further root".into())
            }
            Self::ExecutableNotAllowed { name } => {
                Some(format!("an operator can add `{name}` to `allowed_executables`"))
            }
            Self::ExecutableNotVisible { .. } => Some("an operator can add its directory to `read_roots`".into()),
            Self::InterpreterDenied { name, .. } => {
                Some(format!("an operator can add `{name}` to `allow_interpreters`"))
            }
            Self::WrapperRefused { .. } => Some("call the inner program directly".into()),
            Self::EnvironmentRefused { name } => Some(format!("an operator can add `{name}` to `env_allowlist`")),
            Self::ProxyVariable { .. } => Some(
                "leave it out: there is no other way out of the sandbox; `NO_PROXY` may be set for servers inside"
                    .into(),
            ),
            Self::HostNotAllowed { host } => {
                Some(format!("an operator can add `{host}` to `allowed_hosts` under `[egress]`"))
            }
            Self::TooManyHosts { .. } => Some("do the work in several calls".into()),
            Self::EgressNeedsTierC => {
                Some("use tier c, which has a network of its own, or egress mode `preflight`".into())
            }
            Self::NestedRoots { .. } => Some(
                "leave the inner root out, since what lies in the outer one can be used anyway; or keep what must not \
                 be replaced outside of every writable root"
                    .into(),
            ),
            Self::ProtectedPathExposed { .. } => Some(
                "choose roots apart from the daemon's own directory; tier c can hide it below a root that is only read"
                    .into(),
            ),
            Self::WorkspaceUnavailable { path, .. } => Some(format!("check it with `ls -ld {}`", path.display())),
            Self::SettingsUnguarded { .. } => {
                Some("shorten the settings, or give the workspace for reading only (`workspace_access`)".into())
            }
            Self::WorkspaceOwner { path, .. } => {
                Some(format!("give it to an ordinary user: `chown -R USER: {}`", path.display()))
            }
            Self::BackendMissing { fix, .. } | Self::BackendBlocked { fix, .. } => Some(fix.clone()),
            Self::LayerUnavailable { .. } => Some("run `palyra sandbox detect` to see what this host lacks".into()),
            Self::EmptyCommand
            | Self::NulByte { .. }
            | Self::WorkingDirectoryMissing { .. }
            | Self::InvalidPolicy { .. }
            | Self::StartFailed { .. }
            | Self::Unsupported { .. }
            | Self::TreeStuck { .. }
            | Self::Io { .. } => None,
        }
    }
}
