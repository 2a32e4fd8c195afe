//! What a command would get, without running it.
//!
//! The same checks as a run, in the same order, with their answers kept instead of only the first refusal. Meant for
//! people (`palyra sandbox explain`): it predicts, and only the [`crate::Enforcement`] of a run is evidence.

use crate::error::SandboxError;
use crate::outcome::Layer;
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a command would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The tier it would run in.
    pub tier: SandboxTier,
    /// Why it would not run; the first reason that a run would meet.
    pub refusal: Option<Refusal>,
    /// The program that would run, unless it is refused.
    pub program: Option<ProgramView>,
    /// The arguments that name files.
    pub arguments: Vec<ArgumentView>,
    /// Where it would run.
    pub working_directory: PathBuf,
    /// The user it would run as.
    pub uid: Option<u32>,
    /// The files it would see. Nothing else of the host is visible.
    pub files: Vec<FileView>,
    /// What holds it back from the network.
    pub egress: EgressEnforcementMode,
    /// The same, for people.
    pub network: String,
    /// The rules of the filtering proxy.
    pub allowed_hosts: Vec<String>,
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Its limits.
    pub limits: Limits,
    /// The names of the programs that would be gone from its file tree.
    pub hidden_programs: Vec<String>,
    /// The walls that would stand on this host.
    pub layers: Vec<Layer>,
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The stable code.
    pub code: &'static str,
    /// What and why.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl From<&SandboxError> for Refusal {
    fn from(error: &SandboxError) -> Self {
        Self { code: error.code(), message: error.to_string(), hint: error.hint() }
    }
}

/// A program that may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramView {
    /// The file itself.
    pub path: PathBuf,
    /// The path by which it was found.
    pub called: PathBuf,
    /// Which file it is: a run refuses when another one has taken its place.
    pub device: u64,
    /// The same.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Every file that would run, in order.
    pub chain: Vec<ProgramStep>,
}

/// One of the files that would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramStep {
    /// The file.
    pub path: PathBuf,
    /// What it is: `program`, `script`, `wrapper`, `interpreter python`.
    pub role: String,
}

/// An argument that names files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArgumentView {
    /// The argument as given.
    pub argument: String,
    /// The files it names and where each lies.
    pub files: Vec<NamedFile>,
    /// Why it is refused.
    pub refusal: Option<Refusal>,
}

/// A file that an argument names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedFile {
    /// The file, free of symlinks.
    pub path: PathBuf,
    /// The visible path that it lies under.
    pub under: PathBuf,
    /// What may be done with it.
    pub access: FileAccess,
}

/// What may be done with a path and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// Read.
    Read,
    /// Read and execute.
    ReadExecute,
    /// Read, write, create, remove, execute.
    ReadWrite,
    /// Its own, not the host's: empty at the start, gone at the end.
    Private,
    /// Nothing: hidden even where a directory around it is visible.
    Hidden,
}

/// A path that the process would see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileView {
    /// The path, as the process names it.
    pub path: PathBuf,
    /// What may be done with it.
    pub access: FileAccess,
    /// Why it is there.
    pub why: &'static str,
}

/// The limits of a run, as the policy has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// CPU time of any one process.
    pub cpu_time_ms: u64,
    /// From start to end.
    pub wall_clock_ms: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Bytes kept of each stream.
    pub output_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open files of any one process.
    pub open_files: u64,
    /// Size of any one file.
    pub file_size_bytes: u64,
}

impl Limits {
    pub(crate) fn of(policy: &SandboxProcessRunnerPolicy) -> Self {
        Self {
            cpu_time_ms: policy.cpu_time_limit_ms,
            wall_clock_ms: policy.wall_clock_limit_ms,
            memory_bytes: policy.memory_limit_bytes,
            output_bytes: policy.max_output_bytes,
            processes: policy.max_processes,
            open_files: policy.max_open_files,
            file_size_bytes: policy.max_file_size_bytes,
        }
    }
}

/// Says what a command would get under a policy on this host. Runs nothing of it.
#[must_use]
pub fn explain(policy: &SandboxProcessRunnerPolicy, request: &ProcessRequest) -> Explanation {
    #[cfg(target_os = "linux")]
    return crate::linux::explain(policy, request);
    #[cfg(not(target_os = "linux"))]
    {
        let error = SandboxError::Unsupported { tier: policy.tier, detail: "only Linux has a runner so far".into() };
        Explanation {
            tier: policy.tier,
            refusal: Some(Refusal::from(&error)),
            program: None,
            arguments: Vec::new(),
            working_directory: request.working_directory.clone(),
            uid: None,
            files: Vec::new(),
            egress: policy.egress,
            network: error.to_string(),
            allowed_hosts: Vec::new(),
            environment: BTreeMap::new(),
            limits: Limits::of(policy),
            hidden_programs: Vec::new(),
            layers: Vec::new(),
        }
    }
}
