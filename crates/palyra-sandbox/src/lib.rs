//! Processes with exactly the files, network, time and memory they were given.
//!
//! One door, [`run_constrained_process`], and two tiers behind it. Tier B confines a child process with what the kernel
//! offers any process; Tier C puts it into namespaces of its own. The crate is synchronous: a run occupies the calling
//! thread until it ends. It decides nothing: [`resolve_executable`] says what a command would really run, so that
//! others can decide, and the runner then executes that and nothing else. What a host cannot enforce is refused by
//! name; a run never falls back to a weaker tier, and [`Enforcement`] tells what held, not what was configured.
//!
//! Unsafe code lives in `linux/{raw,child,mounts,sys,inside_listener}.rs`, in `process_group.rs`, `removal.rs` and in
//! `windows/{file,job,process,token}.rs`, and nowhere else.
#![cfg_attr(
    not(any(target_os = "linux", target_os = "macos", windows)),
    expect(dead_code, reason = "elsewhere everything is refused before it is needed")
)]

mod arguments;
mod detect;
mod environment;
mod error;
mod executable;
mod explain;
#[cfg_attr(any(target_os = "macos", windows), expect(dead_code, reason = "only Linux looks at what a run left behind"))]
mod git;
#[cfg(any(target_os = "macos", test))]
mod guards;
#[cfg(not(windows))]
mod hidden_files;
mod hosts;
mod layout;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod minimum;
mod outcome;
mod policy;
#[cfg(any(target_os = "macos", all(test, target_os = "linux")))]
mod process_group;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod pump;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod removal;
mod roots;
mod run_home;
#[cfg(any(target_os = "linux", target_os = "macos"))]
mod scratch;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
#[cfg(test)]
mod testing;
mod toolchains;
#[cfg(any(windows, test))]
mod windows;

pub use arguments::check_arguments;
pub use detect::{Capability, HostCapabilities, detect};
pub use environment::check_environment;
pub use error::{Fault, SandboxError};
pub use executable::{FileIdentity, ResolvedExecutable, resolve_executable};
pub use explain::{
    ArgumentView, Explanation, FileAccess, FileView, Limits, NamedFile, ProgramStep, ProgramView, Refusal, explain,
};
pub use hosts::{NamedHost, check_hosts, hosts_in_arguments};
pub use minimum::check_required_layers;
pub use outcome::{
    CapturedStream, EgressCount, Enforcement, Layer, LimitHit, MissingPrograms, OutputSink, OutputStream, ProcessExit,
    ProcessOutcome, SeccompRule,
};
pub use palyra_egress::{CancelHandle, CancelSignal};
pub use policy::{
    EgressEnforcementMode, Package, PrivateFile, ProcessRequest, RunSecrets, SandboxProcessRunnerPolicy, SandboxTier,
    WorkspaceAccess, WorkspaceView,
};
pub use roots::check_roots;
pub use run_home::{GitIdentity, RunHome};
pub use toolchains::{Whereabouts, home_with, installed_toolchains, toolchain_names};

/// The system calls that a tier refuses, and why.
#[must_use]
pub fn seccomp_profile(tier: SandboxTier) -> Vec<SeccompRule> {
    #[cfg(target_os = "linux")]
    return linux::seccomp_profile(tier);
    #[cfg(not(target_os = "linux"))]
    {
        let _no_such_tier = tier;
        Vec::new()
    }
}

/// Runs `executable` with the request's arguments under the policy, to its end.
///
/// A process that fails, is killed or hits a limit is an outcome, not an error.
///
/// # Errors
/// When the request or the policy does not allow the run, or this host cannot provide what the tier promises. Then
/// nothing of the command ran.
pub fn run_constrained_process(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
    request: &ProcessRequest,
    cancel: &CancelSignal,
    sink: &mut dyn OutputSink,
) -> Result<ProcessOutcome, SandboxError> {
    #[cfg(not(target_os = "linux"))]
    if request.package.is_some() {
        let detail = "scripts of packages get files and parts of the workspace of their own on Linux alone".into();
        return Err(SandboxError::Unsupported { tier: policy.tier, detail });
    }
    #[cfg(target_os = "linux")]
    return linux::run(policy, executable, request, cancel, sink);
    #[cfg(target_os = "macos")]
    return macos::run(policy, executable, request, cancel, sink);
    #[cfg(windows)]
    return windows::run(policy, executable, request, cancel, sink);
    #[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
    {
        let _unused = (executable, request, cancel, sink);
        let detail = "there is a runner for Linux, macOS and Windows; run the daemon on one of those".into();
        Err(SandboxError::Unsupported { tier: policy.tier, detail })
    }
}
