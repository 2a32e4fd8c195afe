//! Whether we run inside a container, and in which: by the marks that each kind leaves.
//!
//! No mark is proof: this only chooses the advice that people are given.

use std::fs;
use std::path::Path;

/// What there is to look at.
#[derive(Debug, Default)]
struct Marks {
    /// `/run/systemd/container`: what systemd was told.
    systemd: String,
    /// The variable `container` of process 1, or ours.
    variable: String,
    podman_file: bool,
    docker_file: bool,
    kubernetes: bool,
    /// `/proc/1/cgroup` and `/proc/self/mountinfo`.
    kernel: String,
    /// `/proc/sys/kernel/osrelease`.
    release: String,
}

/// The container we are in.
pub(super) fn detect() -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let first_process = fs::read("/proc/1/environ").unwrap_or_default();
    let of_first = first_process.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"container="));
    let marks = Marks {
        systemd: read("/run/systemd/container"),
        variable: of_first.map_or_else(
            || std::env::var("container").unwrap_or_default(),
            |value| String::from_utf8_lossy(value).into_owned(),
        ),
        podman_file: Path::new("/run/.containerenv").exists(),
        docker_file: Path::new("/.dockerenv").exists(),
        kubernetes: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
            || Path::new("/var/run/secrets/kubernetes.io").exists(),
        kernel: read("/proc/1/cgroup") + "\n" + &read("/proc/self/mountinfo"),
        release: read("/proc/sys/kernel/osrelease"),
    };
    name(&marks).map(|name| name.chars().filter(|c| c.is_ascii_graphic()).take(40).collect())
}

fn name(marks: &Marks) -> Option<&str> {
    // From the most telling to the least: a pod runs on some other runtime, and leaves its marks too.
    if marks.kubernetes || marks.kernel.contains("kubepods") || marks.kernel.contains("/kubelet/pods/") {
        return Some("kubernetes");
    }
    if marks.podman_file {
        return Some("podman");
    }
    if marks.docker_file {
        return Some("docker");
    }
    for told in [&marks.systemd, &marks.variable] {
        if !told.is_empty() {
            return Some(told);
        }
    }
    let by_kernel = [
        ("/docker/", "docker"),
        ("docker-", "docker"),
        ("/libpod", "podman"),
        ("/containers/storage/", "podman"),
        ("/lxc", "lxc"),
        ("containerd", "containerd"),
    ];
    if let Some((_, name)) = by_kernel.iter().find(|(mark, _)| marks.kernel.contains(mark)) {
        return Some(name);
    }
    marks.release.to_ascii_lowercase().contains("microsoft").then_some("wsl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_marks() {
        let none = Marks::default;
        let kernel = |text: &str| Marks { kernel: text.into(), ..none() };
        for (marks, expect) in [
            (none(), None),
            (Marks { docker_file: true, ..none() }, Some("docker")),
            (Marks { docker_file: true, kubernetes: true, ..none() }, Some("kubernetes")),
            (Marks { podman_file: true, ..none() }, Some("podman")),
            (Marks { systemd: "systemd-nspawn".into(), ..none() }, Some("systemd-nspawn")),
            (Marks { variable: "lxc".into(), ..none() }, Some("lxc")),
            (kernel("0::/system.slice/docker-abc.scope"), Some("docker")),
            (kernel("12:cpu:/kubepods/burstable/pod1"), Some("kubernetes")),
            (kernel("1 2 8:1 /var/lib/docker/containers/ab/hostname /etc/hostname rw"), Some("docker")),
            (kernel("1 2 8:1 /var/lib/kubelet/pods/x/etc-hosts /etc/hosts rw"), Some("kubernetes")),
            (kernel("0::/lxc.payload.box"), Some("lxc")),
            (kernel("0::/init.scope\n21 1 8:1 / / rw - ext4 /dev/sda1"), None),
            (Marks { release: "5.15.0-microsoft-standard-WSL2".into(), ..none() }, Some("wsl")),
        ] {
            assert_eq!(name(&marks), expect, "{marks:?}");
        }
    }
}
