//! What really held a run. Every layer here was set, or tried, before the process ran its first instruction; had that
//! failed, it would not have run.

use super::limits::JobLimits;
use super::token::RestrictedToken;
use crate::outcome::{Enforcement, Layer};
use crate::policy::SandboxProcessRunnerPolicy;
use crate::roots::Roots;

pub(super) fn enforcement(
    policy: &SandboxProcessRunnerPolicy,
    roots: &Roots,
    token: &RestrictedToken,
    limits: JobLimits,
) -> Enforcement {
    let layers = vec![
        Layer::missing(
            "network",
            "THE HOST'S NETWORK IS SHARED: the process can reach every host this machine can; a job object cannot hold it back",
        ),
        Layer::applied(
            "job_object",
            format!(
                "{} process(es), {} bytes of memory and CPU time limited for the tree and for each process",
                limits.active_processes, limits.job_memory_bytes
            ),
        ),
        Layer::applied("process_tree", "no process leaves the job; every one ends with the run"),
        Layer::applied("desktop", "no clipboard, no windows of others, no system settings, no logging off"),
        Layer::applied(
            "restricted_token",
            "no privileges; Administrators only deny; files must be granted to RESTRICTED, Users or Everyone too",
        ),
        Layer::applied("integrity_level", "low: nothing of other processes can be written or read"),
        Layer::applied(
            "protected_paths",
            format!("{} path(s) tried with the run's rights: closed", roots.protected.len()),
        ),
        Layer::applied("executable_pinned", "the file that was checked was held against change while it started"),
        Layer::applied("handles", "its three streams and nothing else"),
        Layer::missing(
            "hidden_programs",
            "Windows cannot hide programs from a process: interpreters are refused where a call names them, and can be \
             started by other programs",
        ),
        Layer::missing("guarded_paths", "Windows cannot keep single paths of a writable workspace from change"),
        Layer::missing("file_limits", "the size and number of files are not limited by a job object"),
        Layer::missing("mount_namespace", "the host's file tree: what its permissions grant to everybody can be read"),
        Layer::missing("user", "the daemon's own user, with the restricted token"),
    ];
    Enforcement { tier: policy.tier, backend: "job-object", layers, egress: policy.egress, uid: token.user_number() }
}
