//! The macOS side of `detect`: applies a profile once and sees whether it holds.

use super::SANDBOX_EXEC;
use crate::detect::{Capability, HostCapabilities};
use crate::policy::SandboxTier;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file that everybody may read: the attempt is to be kept from it.
const PROBE: &str = "/private/etc/hosts";

/// Looks at this host.
pub(crate) fn detect() -> HostCapabilities {
    let root = rustix::process::geteuid().is_root();
    let seatbelt = seatbelt();
    let user = ordinary_user(root);
    let works = seatbelt.available && user.available;
    let capabilities = vec![
        seatbelt.needed_by(&[SandboxTier::B, SandboxTier::C]),
        user.needed_by(&[SandboxTier::B, SandboxTier::C]),
        Capability::there("rlimits", "CPU time, file size, open files and processes of the user"),
        Capability::missing("memory_limit", "macOS enforces no limit on a process's memory", None),
        Capability::missing(
            "process_tree",
            "a process that starts a session of its own is not ended with the run",
            None,
        ),
        Capability::missing("egress_proxy", "strict egress works with an empty allow-list only: nothing leaves", None),
    ];
    let platform = format!("macos {}", std::env::consts::ARCH);
    HostCapabilities { platform, tier_b: works, tier_c: works, root, container: None, capabilities }
}

fn ordinary_user(root: bool) -> Capability {
    if root {
        let fix = "start the daemon as an ordinary user";
        return Capability::missing("user", "the daemon is root, and processes would be too", Some(fix));
    }
    Capability::there("user", "the daemon's own")
}

/// Present, and a profile really takes something away.
fn seatbelt() -> Capability {
    if !Path::new(SANDBOX_EXEC).exists() {
        return Capability::missing("sandbox_exec", format!("{SANDBOX_EXEC} is not there"), None);
    }
    let open = attempt("(version 1)(allow default)");
    let closed = attempt(&format!("(version 1)(allow default)(deny file-read-data (literal \"{PROBE}\"))"));
    match (open, closed) {
        (Ok(true), Ok(false)) => Capability::there("sandbox_exec", "profiles are enforced"),
        (Ok(true), Ok(true)) => {
            let fix = "check that System Integrity Protection is on: `csrutil status`";
            Capability::missing("sandbox_exec", "a profile was accepted and not enforced", Some(fix))
        }
        (Ok(false), _) => {
            let fix = "start the daemon outside any other sandbox: profiles cannot be nested";
            Capability::missing("sandbox_exec", "the system does not let a profile be applied here", Some(fix))
        }
        (Err(error), _) | (_, Err(error)) => Capability::missing("sandbox_exec", error.to_string(), None),
    }
}

/// Whether the probe can be read under this profile.
fn attempt(profile: &str) -> std::io::Result<bool> {
    let status = Command::new(SANDBOX_EXEC)
        .args(["-p", profile, "--", "/bin/cat", PROBE])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}
