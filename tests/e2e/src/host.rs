//! A host: a state directory, a workspace, a configuration, and the daemon that runs on them.

use crate::PATIENCE;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use tempfile::TempDir;

/// Where the binaries are: beside the directory of the test executable.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows where it is");
    let path = test.parent().and_then(Path::parent).expect("a test lies in `target/PROFILE/deps`").join(name);
    assert!(path.exists(), "`{}` is missing: run cargo build --workspace first", path.display());
    path
}

/// The same command, started by a process that stands for an agent's client: what descends from a client does not speak
/// for its person, and the tests do.
#[must_use]
pub fn behind_client(command: &Command) -> Command {
    let mut client = Command::new("timeout");
    client.args(["--kill-after=1", "900"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => client.env(name, value),
            None => client.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        client.current_dir(directory);
    }
    client
}

/// How a daemon that did not start, or was told to end, went.
#[derive(Debug)]
pub struct Stopped {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard error.
    pub log: String,
}

/// A host. Its daemon dies with it.
#[derive(Debug)]
pub struct Host {
    dir: TempDir,
    daemon: Option<Child>,
    /// What its daemon finds in its environment besides.
    env: Vec<(String, std::ffi::OsString)>,
    /// The network namespace that its programs run in.
    network: Option<String>,
    /// What all of its programs find in their environment.
    machine: Vec<(&'static str, std::ffi::OsString)>,
}

impl Host {
    /// A host on which nothing runs yet.
    #[must_use]
    pub fn idle() -> Self {
        // Not under `TMPDIR`: the socket's path must be short.
        let dir = tempfile::Builder::new().prefix("pal").tempdir_in("/tmp").expect("a temporary directory");
        fs::create_dir(dir.path().join("w")).expect("a workspace");
        Self { dir, daemon: None, env: Vec::new(), network: None, machine: Vec::new() }
    }

    /// A host in a network of its own.
    #[must_use]
    pub fn idle_in(namespace: &str) -> Self {
        let mut host = Self::idle();
        host.network = Some(namespace.to_owned());
        host
    }

    /// A host with a running daemon, everything at its default.
    #[must_use]
    pub fn up() -> Self {
        let mut host = Self::idle();
        host.start();
        host
    }

    /// A host with a running daemon and this configuration.
    #[must_use]
    pub fn with(config: &str) -> Self {
        let mut host = Self::idle();
        host.configure(config);
        host.start();
        host
    }

    /// Writes the configuration that the next start reads.
    pub fn configure(&self, config: &str) {
        fs::write(self.config(), config).expect("the configuration can be written");
    }

    /// Sets a variable for every program of the host that is started from now on.
    pub fn set_machine_env(&mut self, name: &'static str, value: impl Into<std::ffi::OsString>) {
        self.machine.push((name, value.into()));
    }

    /// Sets a variable for the next start of the daemon.
    pub fn set_env(&mut self, name: &str, value: impl Into<std::ffi::OsString>) {
        self.env.push((name.to_owned(), value.into()));
    }

    /// A file or directory of the host, outside workspace and state.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration file, which need not exist.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.path("palyra.toml")
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path("s")
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.state().join("palyra.sock")
    }

    /// A file of the workspace.
    #[must_use]
    pub fn work(&self, name: &str) -> PathBuf {
        self.path("w").join(name)
    }

    /// Puts a file into the workspace.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.work(name), content).expect("the workspace can be written");
    }

    /// A workspace file's text; empty when there is none.
    #[must_use]
    pub fn content(&self, name: &str) -> String {
        fs::read_to_string(self.work(name)).unwrap_or_default()
    }

    /// How often this line is in a workspace file.
    #[must_use]
    pub fn lines(&self, name: &str, line: &str) -> usize {
        self.content(name).lines().filter(|found| *found == line).count()
    }

    /// One of our programs, with nothing of the tester's own settings.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.command_at(&binary(program))
    }

    /// Like [`Self::command`], for a copy of a program.
    #[must_use]
    pub fn command_at(&self, program: &Path) -> Command {
        let mut command = self
            .network
            .as_ref()
            .map_or_else(|| Command::new(program), |namespace| crate::network::inside(namespace, program));
        for variable in [
            "PALYRA_STATE_DIR",
            "PALYRA_CONFIG",
            "PALYRA_LOG",
            "PALYRA_TOKEN",
            "PALYRA_HOST",
            "PALYRA_WORKSPACE",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
            // Whoever runs the tests by rustup's cargo says by these where their own toolchain is.
            "CARGO_HOME",
            "RUSTUP_HOME",
            "PYENV_ROOT",
        ] {
            command.env_remove(variable);
        }
        // Hosts run beside each other: each takes a port of its own.
        command.envs(self.machine.iter().map(|(name, value)| (name, value)));
        command.env("HOME", self.path("home")).env("PALYRA_HTTP_PORT", "0");
        if self.network.is_none() {
            command.env("PALYRA_REMOTE_PORT", "0");
        }
        // Commands are typed for the host's workspace, wherever the tests are run.
        command.env("PALYRA_WORKSPACE", self.path("w"));
        command.arg("--state-dir").arg(self.state());
        command
    }

    /// The daemon's command line on this host.
    #[must_use]
    pub fn daemon_command(&self) -> Command {
        let mut command = self.command("palyrad");
        if self.config().exists() {
            command.arg("--config").arg(self.config());
        }
        command
    }

    fn spawn(&self, stderr: Stdio) -> Child {
        let mut command = self.daemon_command();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("--workspace").arg(self.path("w"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().expect("palyrad starts")
    }

    fn log(&self) -> Stdio {
        let log = OpenOptions::new().create(true).append(true).open(self.path("log"));
        log.expect("a log").into()
    }

    /// Starts the daemon and waits for its word that the door is open.
    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        let mut child = self.spawn(self.log());
        let stdout = child.stdout.take().expect("piped");
        self.daemon = Some(child);
        let (sender, word) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            drop(sender.send(read.map(|_| line)));
        });
        let word = word.recv_timeout(PATIENCE).expect("palyrad said nothing").expect("its output can be read");
        if !word.starts_with("ready ") {
            self.kill();
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            let left: Vec<_> = left_behind(&self.state()).into_iter().map(doing).collect();
            panic!("palyrad did not start; still running on its state: {left:?}\n{log}");
        }
    }

    /// Starts the daemon and kills it at the first line it logs: after its recovery, before its door opens.
    pub fn start_and_kill_early(&mut self) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        let mut child = self.spawn(Stdio::piped());
        let stderr = child.stderr.take().expect("piped");
        self.daemon = Some(child);
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line).expect("its log can be read");
        self.kill();
    }

    /// Starts a daemon that is expected to give up.
    #[must_use]
    pub fn refused(&self) -> Stopped {
        let mut child = self.spawn(Stdio::piped());
        let mut word = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut word).expect("its output can be read");
        if !word.is_empty() {
            child.kill().expect("it can be killed");
        }
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(word, "", "the daemon served");
        Stopped { code: output.status.code(), log: String::from_utf8_lossy(&output.stderr).into_owned() }
    }

    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon runs").id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
    }

    /// SIGTERM, and its end.
    pub fn terminate(&mut self) -> Stopped {
        signal(self.pid(), rustix::process::Signal::TERM);
        self.terminate_ended()
    }

    /// The end of a daemon that was told to end.
    pub fn terminate_ended(&mut self) -> Stopped {
        let mut child = self.daemon.take().expect("the daemon runs");
        let code = child.wait().expect("it ends").code();
        Stopped { code, log: fs::read_to_string(self.path("log")).unwrap_or_default() }
    }

    /// Ends the daemon, by SIGKILL or in good order, and starts it again.
    pub fn restart(&mut self, by: Restart) {
        match by {
            Restart::Kill => self.kill(),
            Restart::Terminate => assert_eq!(self.terminate().code, Some(0)),
        }
        self.start();
    }
}

/// How a daemon is ended before it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// By SIGKILL.
    Kill,
    /// By SIGTERM.
    Terminate,
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            drop(child.kill());
            drop(child.wait());
        }
        // A daemon that leaves helpers behind has a bug that a test has just found; the machine is left clean all the
        // same.
        for pid in left_behind(&self.state()) {
            let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        if std::thread::panicking() {
            show_log(&self.path("log"));
        }
    }
}

/// Daemons, and forks of them, that were started on this state directory. Its name is ours alone.
fn left_behind(state: &Path) -> Vec<rustix::process::Pid> {
    use std::os::unix::ffi::OsStrExt as _;
    let words = |cmdline: &Path| fs::read(cmdline).unwrap_or_default();
    let ours = |cmdline: &[u8]| {
        let mut words = cmdline.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"/palyrad"))
            && words.any(|word| word == state.as_os_str().as_bytes())
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter(|entry| ours(&words(&entry.path().join("cmdline"))));
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(rustix::process::Pid::from_raw).collect()
}

/// A process and where in the kernel it waits.
fn doing(pid: rustix::process::Pid) -> String {
    let at = fs::read_to_string(format!("/proc/{}/wchan", pid.as_raw_nonzero())).unwrap_or_default();
    format!("{} in `{at}`", pid.as_raw_nonzero())
}

#[expect(clippy::print_stderr, reason = "a failed test shows what the daemon said")]
fn show_log(path: &Path) {
    if let Ok(log) = fs::read_to_string(path) {
        let last: Vec<_> = log.lines().rev().take(20).collect();
        eprintln!("the daemon's log ends with:");
        last.iter().rev().for_each(|line| eprintln!("  {line}"));
    }
}

/// Sends a signal to a process that we started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// The permission bits of a path.
#[must_use]
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let file = File::open(path).and_then(|f| f.metadata()).or_else(|_| fs::symlink_metadata(path));
    file.expect("it is there").permissions().mode() & 0o7777
}
