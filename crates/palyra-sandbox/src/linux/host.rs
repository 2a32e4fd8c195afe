//! The Linux side of `detect`: asks the kernel, and tries bubblewrap once.

use super::bwrap;
use super::landlock;
use crate::detect::{Capability, HostCapabilities};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Looks at this host.
pub(crate) fn detect() -> HostCapabilities {
    let root = rustix::process::geteuid().is_root();
    let bubblewrap = bubblewrap();
    let landlock = landlock_files();
    let seccomp = seccomp();
    let tier_c = bubblewrap.available && seccomp.available;
    let tier_b = (landlock.available || root) && seccomp.available;
    let capabilities = vec![
        landlock,
        landlock_scope(),
        seccomp,
        bubblewrap,
        user_namespaces(),
        apparmor(),
        control_groups(),
        mapped_mounts(root),
    ];
    HostCapabilities { platform: platform(), tier_b, tier_c, root, container: container(), capabilities }
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

/// Present, new enough, and able to build the sandbox that Tier C needs.
fn bubblewrap() -> Capability {
    let found = match bwrap::find() {
        Ok(found) => found,
        Err(error) => {
            let fix = error.hint();
            return Capability::missing("bubblewrap", error.to_string(), fix.as_deref());
        }
    };
    let (major, minor) = found.version;
    let described = format!("{} {major}.{minor}", found.path.display());
    let attempt = Command::new(&found.path)
        .args(["--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL", "--ro-bind", "/", "/"])
        .args(["--proc", "/proc", "--dev", "/dev", "--", "/bin/true"])
        .env_clear()
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

/// What usually keeps bubblewrap from working.
pub(super) fn namespace_fix() -> &'static str {
    if restricted_by_apparmor() {
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or give bwrap an AppArmor profile that allows `userns`)"
    } else if read("/proc/sys/kernel/unprivileged_userns_clone").is_some_and(|value| value == "0") {
        "sysctl -w kernel.unprivileged_userns_clone=1"
    } else if read("/proc/sys/user/max_user_namespaces").is_some_and(|value| value == "0") {
        "sysctl -w user.max_user_namespaces=10000"
    } else if container().is_some() {
        "in a container: run it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`, or use tier b"
    } else {
        "run `palyra sandbox detect` to see what this host lacks"
    }
}

fn restricted_by_apparmor() -> bool {
    read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_some_and(|value| value == "1")
}

fn user_namespaces() -> Capability {
    let switched_off = read("/proc/sys/kernel/unprivileged_userns_clone").is_some_and(|value| value == "0");
    let most: u64 = read("/proc/sys/user/max_user_namespaces").and_then(|value| value.parse().ok()).unwrap_or(0);
    if switched_off || most == 0 || !Path::new("/proc/self/ns/user").exists() {
        return Capability::missing("user_namespaces", "switched off for ordinary users", Some(namespace_fix()));
    }
    Capability::there("user_namespaces", format!("at most {most}"))
}

fn apparmor() -> Capability {
    if restricted_by_apparmor() {
        return Capability::missing(
            "apparmor",
            "AppArmor lets only named programs create user namespaces",
            Some(namespace_fix()),
        );
    }
    Capability::there("apparmor", "does not restrict user namespaces")
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

/// The container we are in, by the usual marks.
fn container() -> Option<String> {
    if let Some(name) = read("/run/systemd/container") {
        return Some(name);
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".into());
    }
    if Path::new("/.dockerenv").exists() {
        return Some("docker".into());
    }
    let groups = read("/proc/1/cgroup").unwrap_or_default();
    ["docker", "kubepods", "lxc", "containerd"].into_iter().find(|mark| groups.contains(mark)).map(str::to_owned)
}
