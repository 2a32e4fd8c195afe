//! Start-to-exit of `/bin/true`: raw, Tier B, raw bubblewrap with the same walls, Tier C. Prints medians.
//!
//! Run it in release mode: `cargo run --release -p palyra-sandbox --example start_to_exit`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on fails, and prints")]

use palyra_sandbox::*;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 400;

fn policy(tier: SandboxTier, workspace: &std::path::Path) -> SandboxProcessRunnerPolicy {
    SandboxProcessRunnerPolicy {
        tier,
        workspace_root: workspace.to_owned(),
        workspace_access: WorkspaceAccess::ReadWrite,
        read_roots: vec![],
        write_roots: vec![],
        allowed_executables: vec![],
        allow_interpreters: vec![],
        egress: if tier == SandboxTier::C { EgressEnforcementMode::Strict } else { EgressEnforcementMode::None },
        egress_rules: std::sync::Arc::default(),
        cpu_time_limit_ms: 20_000,
        wall_clock_limit_ms: 30_000,
        memory_limit_bytes: 1 << 30,
        max_output_bytes: 1 << 20,
        max_processes: 64,
        max_open_files: 256,
        max_file_size_bytes: 1 << 30,
        env_allowlist: vec![],
        protected_paths: vec![],
    }
}

fn sandboxed(tier: SandboxTier, workspace: &std::path::Path) -> impl FnMut() + use<> {
    let policy = policy(tier, workspace);
    let request = ProcessRequest {
        argv: vec!["/bin/true".into()],
        working_directory: workspace.to_owned(),
        stdin: vec![],
        env: BTreeMap::new(),
        requested_egress_hosts: Vec::new(),
    };
    let executable = resolve_executable(&policy, &request.argv, workspace).unwrap();
    let never = CancelSignal::never().unwrap();
    move || {
        let outcome = run_constrained_process(&policy, &executable, &request, &never, &mut ()).unwrap();
        assert!(outcome.exit.success());
    }
}

/// Raw spawn (vfork and exec) with the three pipes that any runner needs.
fn raw() {
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_clear();
    assert!(command.output().unwrap().status.success());
}

/// Raw fork and exec: a hook keeps the standard library from its faster way.
#[expect(unsafe_code, reason = "an empty hook makes the standard library fork")]
fn raw_fork() {
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_clear();
    // SAFETY: the hook does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    assert!(command.output().unwrap().status.success());
}

/// Bubblewrap by hand, with the same namespaces and mounts.
fn raw_bubblewrap(workspace: &std::path::Path) -> impl FnMut() + use<> {
    let mut words: Vec<String> =
        "--unshare-user --unshare-all --disable-userns --die-with-parent --new-session --cap-drop ALL --clearenv --hostname sandbox"
            .split(' ')
            .map(str::to_owned)
            .collect();
    let mut add = |line: String| words.extend(line.split(' ').map(str::to_owned));
    add("--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64".into());
    for entry in [
        "ld.so.cache",
        "alternatives",
        "localtime",
        "nsswitch.conf",
        "hosts",
        "resolv.conf",
        "ssl/certs",
        "passwd",
        "group",
    ] {
        if std::path::Path::new("/etc").join(entry).exists() {
            add(format!("--ro-bind /etc/{entry} /etc/{entry}"));
        }
    }
    add("--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --size 1000000 --tmpfs /dev/shm --size 1000000 --tmpfs /tmp".into());
    add(format!("--remount-ro /dev --bind {0} {0} --remount-ro / --chdir {0} -- /bin/true", workspace.display()));
    move || {
        let mut command = Command::new("/usr/bin/bwrap");
        command.args(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_clear();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

type Subject = (&'static str, Box<dyn FnMut()>);

fn main() {
    let directory = tempfile::TempDir::new().unwrap();
    let workspace = directory.path();
    std::fs::set_permissions(workspace, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut subjects: Vec<Subject> = vec![
        ("raw spawn", Box::new(raw)),
        ("raw fork+exec", Box::new(raw_fork)),
        ("tier b", Box::new(sandboxed(SandboxTier::B, workspace))),
        ("raw bwrap", Box::new(raw_bubblewrap(workspace))),
        ("tier c", Box::new(sandboxed(SandboxTier::C, workspace))),
    ];
    let mut times: Vec<Vec<Duration>> = vec![vec![]; subjects.len()];
    // In turns, so that whatever else the machine does hits all of them.
    for _ in 0..ROUNDS {
        for ((_, run), times) in subjects.iter_mut().zip(&mut times) {
            let started = Instant::now();
            run();
            times.push(started.elapsed());
        }
    }
    for ((name, _), times) in subjects.iter().zip(&mut times) {
        times.sort_unstable();
        println!("{name:14} p50 {:>8.1?}  p90 {:>8.1?}", times[ROUNDS / 2], times[ROUNDS * 9 / 10]);
    }
    let median = |at: usize| times[at][ROUNDS / 2].as_secs_f64();
    println!(
        "tier b / raw fork+exec {:.2}   tier b / raw spawn {:.2}   tier c / raw bwrap {:.2}",
        median(2) / median(1),
        median(2) / median(0),
        median(4) / median(3)
    );
}
