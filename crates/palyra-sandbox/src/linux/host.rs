//! The Linux side of `detect`: asks the kernel, and tries bubblewrap once.

use super::bwrap;
use super::container;
use super::identity::NOBODY;
use super::landlock;
use crate::detect::{Capability, HostCapabilities};
use crate::policy::SandboxTier;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Looks at this host.
pub(crate) fn detect() -> HostCapabilities {
    let root = rustix::process::geteuid().is_root();
    let bubblewrap = bubblewrap(root);
    let landlock = landlock_files();
    let seccomp = seccomp();
    let tier_c = bubblewrap.available && seccomp.available;
    let tier_b = landlock.available && seccomp.available;
    let works = bubblewrap.available;
    let capabilities = vec![
        landlock.needed_by(&[SandboxTier::B]),
        landlock_scope(),
        seccomp.needed_by(&[SandboxTier::B, SandboxTier::C]),
        bubblewrap.needed_by(&[SandboxTier::C]),
        user_namespaces().needed_by(&[SandboxTier::C]),
        apparmor(works).needed_by(&[SandboxTier::C]),
        control_groups(),
        overlays(),
        mapped_mounts(root),
    ];
    HostCapabilities { platform: platform(), tier_b, tier_c, root, container: container::detect(), capabilities }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn platform() -> String {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    format!("linux {release} {}", std::env::consts::ARCH)
}

fn landlock_files() -> Capability {
    match landlock::abi() {
        0 => Capability::missing(
            "landlock",
            "the kernel has none, or it is not enabled",
            Some("Linux 5.13 or newer with `landlock` in the boot parameter `lsm=`"),
        ),
        abi => Capability::there("landlock", format!("ABI {abi}")),
    }
}

fn landlock_scope() -> Capability {
    if landlock::scopes_signals() {
        Capability::there("landlock_scope", "signals and abstract sockets can be kept inside a run")
    } else {
        Capability::missing("landlock_scope", "needs Landlock ABI 6", Some("Linux 6.12 or newer"))
    }
}

fn seccomp() -> Capability {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if ["errno", "kill_process", "allow"].iter().all(|need| actions.split(' ').any(|action| action == *need)) {
        Capability::there("seccomp", "filters")
    } else {
        Capability::missing("seccomp", "the kernel has no seccomp filters", Some("a kernel with CONFIG_SECCOMP_FILTER"))
    }
}

/// Present, new enough, and able to build the sandbox that Tier C needs, as the user that runs it.
fn bubblewrap(root: bool) -> Capability {
    let found = match bwrap::find() {
        Ok(found) => found,
        Err(error) => {
            let fix = error.hint();
            return Capability::missing("bubblewrap", error.to_string(), fix.as_deref());
        }
    };
    let (major, minor) = found.version;
    let described = format!("{} {major}.{minor}", found.path.display());
    let mut command = Command::new(&found.path);
    if root {
        command.uid(NOBODY.uid).gid(NOBODY.gid);
    }
    let attempt = command
        .args(["--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL", "--ro-bind", "/", "/"])
        .args(["--proc", "/proc", "--dev", "/dev", "--", "/bin/true"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    match attempt {
        Ok(output) if output.status.success() => Capability::there("bubblewrap", described),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("").to_owned();
            Capability::missing("bubblewrap", format!("{described} does not work here: {said}"), Some(namespace_fix()))
        }
        Err(error) => Capability::missing("bubblewrap", format!("{described}: {error}"), Some(bwrap::INSTALL)),
    }
}

/// What keeps user namespaces, and with them bubblewrap, from working.
#[derive(Debug, Default)]
struct Obstacles {
    apparmor: bool,
    clone_off: bool,
    none_allowed: bool,
    container: Option<String>,
}

impl Obstacles {
    fn find() -> Self {
        let is = |path: &str, value: &str| read(path).is_some_and(|found| found == value);
        Self {
            apparmor: is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            clone_off: is("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            none_allowed: is("/proc/sys/user/max_user_namespaces", "0"),
            container: container::detect(),
        }
    }

    /// The command that helps: the host's own switches first, what surrounds us last.
    fn fix(&self) -> &'static str {
        if self.clone_off {
            return "sudo sysctl -w kernel.unprivileged_userns_clone=1";
        }
        if self.none_allowed {
            return "sudo sysctl -w user.max_user_namespaces=10000";
        }
        if self.apparmor {
            return APPARMOR_PROFILE;
        }
        match self.container.as_deref() {
            Some("kubernetes") => {
                "in the pod's securityContext: seccompProfile.type Unconfined, procMount Unmasked; or use tier b"
            }
            Some("lxc") => "lxc config set NAME security.nesting=true, or use tier b",
            Some(_) => {
                "start the container with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`, or use tier b"
            }
            None => "run `bwrap --unshare-user --ro-bind / / true` to see what the kernel refuses",
        }
    }
}

/// Lets bubblewrap, and nothing else, create user namespaces. Switching the rule off for everybody would be
/// `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`.
const APPARMOR_PROFILE: &str = "printf 'abi <abi/4.0>,\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,\\n}\\n' | \
     sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r /etc/apparmor.d/bwrap";

/// What usually helps when bubblewrap does not work.
pub(super) fn namespace_fix() -> &'static str {
    Obstacles::find().fix()
}

fn user_namespaces() -> Capability {
    let obstacles = Obstacles::find();
    if obstacles.clone_off || obstacles.none_allowed || !Path::new("/proc/self/ns/user").exists() {
        return Capability::missing("user_namespaces", "switched off for ordinary users", Some(obstacles.fix()));
    }
    let most = read("/proc/sys/user/max_user_namespaces").unwrap_or_else(|| "unknown".into());
    Capability::there("user_namespaces", format!("at most {most}"))
}

fn apparmor(works: bool) -> Capability {
    match (Obstacles::find().apparmor, works) {
        (false, _) => Capability::there("apparmor", "does not restrict user namespaces"),
        (true, true) => {
            Capability::there("apparmor", "lets only named programs create user namespaces; bubblewrap is one")
        }
        (true, false) => Capability::missing(
            "apparmor",
            "kernel.apparmor_restrict_unprivileged_userns is 1: only programs with a profile create user namespaces",
            Some(APPARMOR_PROFILE),
        ),
    }
}

fn control_groups() -> Capability {
    match super::cgroup::Location::find() {
        Ok(location) => Capability::there("cgroup", location.describe()),
        Err(reason) => Capability::missing(
            "cgroup",
            reason,
            Some(
                "run the daemon as a systemd service with `Delegate=yes`: memory and processes are then limited for the tree",
            ),
        ),
    }
}

fn overlays() -> Capability {
    match super::view::gives_overlays() {
        Ok(()) => Capability::there("overlays", "programs that are not allowed are hidden by the directory"),
        Err(error) => Capability::missing(
            "overlays",
            format!("{error}: programs that are not allowed are hidden one by one, which takes longer"),
            Some("Linux 5.11 or newer, and user namespaces for ordinary users"),
        ),
    }
}

fn mapped_mounts(root: bool) -> Capability {
    if root {
        Capability::there(
            "mapped_mounts",
            "a root-owned workspace is attached with its owner mapped, where its file system can",
        )
    } else {
        Capability::there("mapped_mounts", "not needed: processes run as the daemon's own user")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_names_what_stands_in_the_way() {
        let none = Obstacles::default;
        for (obstacles, expect) in [
            (Obstacles { apparmor: true, ..none() }, "apparmor_parser"),
            (Obstacles { clone_off: true, apparmor: true, ..none() }, "unprivileged_userns_clone=1"),
            (Obstacles { none_allowed: true, ..none() }, "max_user_namespaces="),
            (Obstacles { container: Some("docker".into()), ..none() }, "--security-opt"),
            (Obstacles { container: Some("kubernetes".into()), ..none() }, "securityContext"),
            (Obstacles { container: Some("lxc".into()), ..none() }, "security.nesting"),
            (none(), "bwrap --unshare-user"),
        ] {
            assert!(obstacles.fix().contains(expect), "{obstacles:?}: {}", obstacles.fix());
        }
    }
}
