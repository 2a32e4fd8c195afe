//! A world to attack the sandbox in: a workspace, a daemon's state beside it, and a policy over both.
//!
//! Everything in this suite really runs. A probe that cannot run fails: a probe prints a word at its end, and a test
//! that does not see that word has proven nothing.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use palyra_egress::EgressRules;
use palyra_sandbox::{
    CancelSignal, OutputSink, ProcessExit, ProcessOutcome, ProcessRequest, SandboxError, SandboxProcessRunnerPolicy,
    SandboxTier, resolve_executable, run_constrained_process,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Both tiers, for what must hold in each.
pub const TIERS: [SandboxTier; 2] = [SandboxTier::B, SandboxTier::C];

/// A workspace, the state of a daemon, and a policy.
#[derive(Debug)]
pub struct World {
    dir: TempDir,
    /// Where the process works.
    pub workspace: PathBuf,
    /// What it must never see.
    pub state: PathBuf,
    /// What it may have.
    pub policy: SandboxProcessRunnerPolicy,
}

/// A world with generous limits, for machines that are busy. In Tier C nothing leaves it; Tier B cannot promise that.
#[must_use]
pub fn world(tier: SandboxTier) -> World {
    let dir = TempDir::new().expect("a temporary directory");
    // The way to the workspace is open, as it would be on a real machine.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let top = dir.path().canonicalize().expect("the temporary directory exists");
    let (workspace, state) = (top.join("workspace"), top.join("state"));
    for path in [&workspace, &state] {
        fs::create_dir(path).expect("a directory");
    }
    fs::write(state.join("key"), "the-daemons-secret").expect("a key");
    fs::set_permissions(state.join("key"), fs::Permissions::from_mode(0o644)).expect("permissions");
    let policy = SandboxProcessRunnerPolicy {
        allow_interpreters: ["python3", "bash", "sh", "node"].map(str::to_owned).to_vec(),
        wall_clock_limit_ms: 300_000,
        memory_limit_bytes: 512 << 20,
        max_file_size_bytes: 16 << 20,
        protected_paths: vec![state.clone()],
        ..SandboxProcessRunnerPolicy::over(&workspace, tier)
    };
    World { dir, workspace, state, policy }
}

/// A Tier C world with a way out: these rules.
#[must_use]
pub fn world_with(rules: &[&str]) -> World {
    let mut world = world(SandboxTier::C);
    let rules = rules.iter().map(|rule| rule.parse().unwrap_or_else(|e| panic!("{rule}: {e}"))).collect();
    world.policy.egress_rules = Arc::new(EgressRules::new(rules));
    world
}

impl World {
    /// The directory that holds the workspace and the state.
    #[must_use]
    pub fn top(&self) -> &Path {
        self.dir.path()
    }

    /// A request to run a command in the workspace.
    #[must_use]
    pub fn request(&self, argv: &[&str]) -> ProcessRequest {
        ProcessRequest {
            argv: argv.iter().map(|s| (*s).to_owned()).collect(),
            working_directory: self.workspace.clone(),
            stdin: vec![],
            env: BTreeMap::new(),
            requested_egress_hosts: vec![],
            view: None,
            secrets: palyra_sandbox::RunSecrets::default(),
            package: None,
        }
    }

    /// Runs a request to its end.
    ///
    /// # Errors
    /// The sandbox refuses it or cannot run it.
    pub fn try_run(&self, request: &ProcessRequest) -> Result<ProcessOutcome, SandboxError> {
        self.try_run_watched(request, &mut ())
    }

    /// The same, with somebody who watches.
    ///
    /// # Errors
    /// The sandbox refuses it or cannot run it.
    pub fn try_run_watched(
        &self,
        request: &ProcessRequest,
        sink: &mut dyn OutputSink,
    ) -> Result<ProcessOutcome, SandboxError> {
        let executable = resolve_executable(&self.policy, &request.argv, &request.working_directory)?;
        run_constrained_process(
            &self.policy,
            &executable,
            request,
            &CancelSignal::never().map_err(SandboxError::io("prepare a cancellation"))?,
            sink,
        )
    }

    /// Runs a command that must be run.
    #[must_use]
    pub fn run(&self, argv: &[&str]) -> ProcessOutcome {
        self.try_run(&self.request(argv))
            .unwrap_or_else(|e| panic!("{argv:?}: {e}: {:?}", std::error::Error::source(&e)))
    }

    /// The same with something to read.
    #[must_use]
    pub fn run_with(&self, argv: &[&str], stdin: &str) -> ProcessOutcome {
        let mut request = self.request(argv);
        request.stdin = stdin.into();
        self.try_run(&request).unwrap_or_else(|e| panic!("{argv:?}: {e}"))
    }

    /// Runs a line of shell.
    #[must_use]
    pub fn shell(&self, line: &str) -> ProcessOutcome {
        self.run(&["bash", "-c", line])
    }

    /// Runs a piece of Python.
    #[must_use]
    pub fn python(&self, code: &str) -> ProcessOutcome {
        self.run(&["python3", "-c", code])
    }
}

/// What it wrote, as text.
#[must_use]
pub fn stdout(outcome: &ProcessOutcome) -> String {
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

/// What it complained about, as text.
#[must_use]
pub fn stderr(outcome: &ProcessOutcome) -> String {
    String::from_utf8_lossy(&outcome.stderr.bytes).into_owned()
}

/// How a tier tells that a signal ended the command: bubblewrap makes a code of it, as shells do.
#[must_use]
pub fn signal(tier: SandboxTier, number: i32) -> ProcessExit {
    match tier {
        SandboxTier::B => ProcessExit::Signal(number),
        SandboxTier::C => ProcessExit::Code(128 + number),
    }
}

/// The outcome must be exit code 0 with this output.
pub fn expect_output(outcome: &ProcessOutcome, expect: &str) {
    assert_eq!((outcome.exit, stdout(outcome).trim()), (ProcessExit::Code(0), expect), "stderr: {}", stderr(outcome));
}

const INNER: &str = "PALYRA_CONTAINMENT_INNER";

/// Runs `body` in a process of its own, where no other test runs beside it: this test binary again, started by
/// `wrapper` and told to run the test `name`. For what is counted per process, or done to it.
pub fn alone(name: &str, wrapper: &[&str], body: impl FnOnce()) {
    if std::env::var(INNER).is_ok_and(|inner| inner == name) {
        return body();
    }
    let test = std::env::current_exe().expect("the test knows where it is");
    let mut line: Vec<&std::ffi::OsStr> = wrapper.iter().map(std::ffi::OsStr::new).collect();
    line.push(test.as_os_str());
    let (program, arguments) = line.split_first().expect("at least the test itself");
    let output = std::process::Command::new(program)
        .args(arguments)
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env(INNER, name)
        .output()
        .expect("the test can be started again");
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Tests that take root. The ordinary user's pass leaves them out, by name.
pub const TAKE_ROOT: [&str; 7] = [
    "limits::a_missing_bubblewrap_is_named_with_what_installs_it",
    "limits::a_blocked_bubblewrap_is_named_with_what_it_said",
    "walls::what_is_installed_meanwhile_is_hidden_too",
    "walls::where_there_are_no_overlays_other_walls_stand",
    "walls::where_there_are_no_overlays_other_walls_stand_for_an_ordinary_user",
    "walls::system_wide_credentials_are_not_shown",
    "walls::system_wide_credentials_are_not_shown_to_an_ordinary_user",
];

/// The same as [`alone`] for one of those. Without root it cannot run, and fails.
pub fn as_root_alone(name: &str, wrapper: &[&str], body: impl FnOnce()) {
    assert!(TAKE_ROOT.contains(&name) && is_root(), "this probe takes root: run the suite as root");
    alone(name, wrapper, body);
}

/// The same for a body that runs as an ordinary user, in a mount namespace that root prepared: `prepare` is a line of
/// shell that ends in `&&`.
pub fn prepared_by_root(name: &str, prepare: &str, body: impl FnOnce()) {
    assert!(TAKE_ROOT.contains(&name), "{name} is not among the tests that take root");
    let dir = tempfile::Builder::new().prefix("palyra-prepared-").tempdir_in("/tmp").expect("a temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let place = dir.path().display();
    // The user may not be able to reach the test where it was built.
    let become_user = format!(
        "cp \"$1\" {place}/suite && chmod 755 {place}/suite && shift && \
         exec setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups env TMPDIR={place} {place}/suite \"$@\""
    );
    let line = format!("{prepare} {become_user}");
    alone(name, &["unshare", "--mount", "sh", "-c", &line, "sh"], body);
}

/// The number of a user whom nobody is.
pub const ORDINARY: &str = "61234";

/// Whether the tests run as root, as which a daemon drops to another user first.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
