//! What a process may have: the policy of one run, and the request that runs under it.
//!
//! The daemon reads its configuration and fills these types; this crate only obeys them. A field here is a limit that
//! some layer enforces; none of them is advice. What was *really* enforced is in [`crate::Enforcement`], which is
//! never derived from this file.

use crate::run_home::RunHome;
use palyra_egress::{Credentials, EgressRules};
use palyra_protocol::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How strong the walls around a native process are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SandboxTier {
    /// A confined child process: limits, Landlock, seccomp, the network of the host.
    #[serde(rename = "b")]
    B,
    /// A container of namespaces: its own file tree, process table and network.
    #[serde(rename = "c")]
    C,
}

impl fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::B => "b",
            Self::C => "c",
        })
    }
}

/// What holds a process back from the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressEnforcementMode {
    /// Nothing.
    None,
    /// The hosts a call names were compared with the allow-list before it ran; the kernel enforces nothing.
    Preflight,
    /// The kernel: the process has no network but, where there are rules, a proxy that obeys them. Tier C only.
    Strict,
}

/// Whether the workspace may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceAccess {
    /// Files may be read and written.
    ReadWrite,
    /// Files may only be read.
    ReadOnly,
}

/// Everything a process may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxProcessRunnerPolicy {
    /// The walls. A host that cannot build them refuses; it never runs the process behind weaker ones.
    pub tier: SandboxTier,
    /// The directory the process works in; absolute.
    pub workspace_root: PathBuf,
    /// Whether it may change that directory.
    pub workspace_access: WorkspaceAccess,
    /// Further directories it may read and execute from.
    pub read_roots: Vec<PathBuf>,
    /// Further directories it may read and write.
    pub write_roots: Vec<PathBuf>,
    /// The programs it may be: names or absolute paths. Empty: any that is neither a shell nor an interpreter.
    pub allowed_executables: Vec<String>,
    /// Shells and interpreters that are allowed all the same, by name: `python3`, `bash`.
    pub allow_interpreters: Vec<String>,
    /// What holds it back from the network.
    pub egress: EgressEnforcementMode,
    /// Where it may connect to all the same: enforced by a proxy in strict mode, compared beforehand in preflight mode.
    pub egress_rules: Arc<EgressRules>,
    /// CPU time of any one process, in milliseconds.
    pub cpu_time_limit_ms: u64,
    /// Time from start to end, in milliseconds.
    pub wall_clock_limit_ms: u64,
    /// Memory, in bytes: of the whole tree where a control group can be had, of each process otherwise.
    pub memory_limit_bytes: u64,
    /// Bytes kept of each output stream.
    pub max_output_bytes: u64,
    /// Processes and threads alive at once.
    pub max_processes: u64,
    /// Open files of any one process.
    pub max_open_files: u64,
    /// Size of any one file it writes.
    pub max_file_size_bytes: u64,
    /// Names of the daemon's environment variables that are passed on. Everything else is cleared.
    pub env_allowlist: Vec<String>,
    /// Layers, by the names that enforcement tells them by, without which a run is refused: more than the tier's own
    /// minimum.
    pub required_layers: Vec<String>,
    /// What it finds in its home directory. Tier C only.
    pub home: RunHome,
    /// The daemon's own state, keys and sockets: never visible to any process, whatever else is granted.
    pub protected_paths: Vec<PathBuf>,
}

impl SandboxProcessRunnerPolicy {
    /// A policy over one workspace that allows nothing besides it, with limits that ordinary programs keep within.
    #[must_use]
    pub fn over(workspace_root: impl Into<PathBuf>, tier: SandboxTier) -> Self {
        Self {
            tier,
            workspace_root: workspace_root.into(),
            workspace_access: WorkspaceAccess::ReadWrite,
            read_roots: Vec::new(),
            write_roots: Vec::new(),
            allowed_executables: Vec::new(),
            allow_interpreters: Vec::new(),
            egress: match tier {
                SandboxTier::B => EgressEnforcementMode::None,
                SandboxTier::C => EgressEnforcementMode::Strict,
            },
            egress_rules: Arc::default(),
            cpu_time_limit_ms: 20_000,
            wall_clock_limit_ms: 30_000,
            memory_limit_bytes: 1 << 30,
            max_output_bytes: 1 << 20,
            max_processes: 64,
            max_open_files: 256,
            max_file_size_bytes: 64 << 20,
            env_allowlist: Vec::new(),
            required_layers: Vec::new(),
            home: RunHome::default(),
            protected_paths: Vec::new(),
        }
    }

    /// Everything beside the workspace that it may read and not write: the operator's roots, and what its home shows.
    pub(crate) fn read_only(&self) -> impl Iterator<Item = &PathBuf> {
        let home = (self.tier == SandboxTier::C).then(|| self.home.roots());
        self.read_roots.iter().chain(home.into_iter().flatten())
    }

    /// Those of them that it fills: what it writes there goes to a layer of its own.
    #[cfg(target_os = "linux")]
    pub(crate) fn filled_caches(&self) -> impl Iterator<Item = &PathBuf> {
        let fills = self.tier == SandboxTier::C && self.home.cache_store.is_some();
        self.home.caches.iter().filter(move |_| fills)
    }
}

/// One command to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessRequest {
    /// The program's name and its arguments.
    pub argv: Vec<String>,
    /// Where it runs: absolute, inside the workspace or another root.
    pub working_directory: PathBuf,
    /// What it reads on its standard input.
    pub stdin: Vec<u8>,
    /// Variables set for it, over those the policy passes on.
    pub env: BTreeMap<String, String>,
    /// Hosts that the caller says it will need: `example.org`, `example.org:443`.
    pub requested_egress_hosts: Vec<String>,
    /// Where its changes to the workspace go instead of the workspace; `None`: it works on the workspace itself.
    pub view: Option<WorkspaceView>,
    /// What only this run has: secrets, and credentials that its proxy attaches. Tier C only.
    pub secrets: RunSecrets,
    /// The package whose script it runs: then it sees that, and of the workspace only what the package was granted.
    /// Tier C only.
    pub package: Option<Package>,
}

/// A package of scripts, and the parts of the workspace that it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Package {
    /// Its files by their relative paths, as they were admitted: they are at [`Package::PLACE`].
    pub files: Vec<(String, Arc<[u8]>)>,
    /// Directories of the workspace that it reads: relative paths; empty for all of it.
    pub read: Vec<PathBuf>,
    /// Directories of the workspace that it writes as well. Without a view they are read-only.
    pub write: Vec<PathBuf>,
}

impl Package {
    /// Where its files are, inside.
    pub const PLACE: &str = "/run/skill";
}

/// The secrets of one run.
#[derive(Debug, Clone, Default)]
pub struct RunSecrets {
    /// Files in `/run/secrets` that only this run sees.
    pub files: Vec<PrivateFile>,
    /// What its proxy attaches to requests.
    pub credentials: Option<Arc<dyn Credentials>>,
}

impl RunSecrets {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.credentials.is_none()
    }
}

impl PartialEq for RunSecrets {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.credentials, &other.credentials) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        };
        same && self.files == other.files
    }
}

impl Eq for RunSecrets {}

/// A file that only one run sees.
#[derive(Debug, Clone)]
pub struct PrivateFile {
    /// Its name in `/run/secrets`: a plain name.
    pub name: String,
    /// What it holds.
    pub content: Secret,
}

impl PartialEq for PrivateFile {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.content.expose() == other.content.expose()
    }
}

impl Eq for PrivateFile {}

/// The layers of a run's own view of the workspace: an overlay whose lower layer is the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceView {
    /// Where what it writes is kept: a private directory on the workspace's file system, outside of it.
    pub upper: PathBuf,
    /// The kernel's own directory, beside it.
    pub work: PathBuf,
}
