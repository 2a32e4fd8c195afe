//! The binaries as a user feels them: daemon start to first answer, idle memory, command line start, a call end to end.

use crate::Result;
use crate::report::{Report, median, percentile, show};
use palyra_api::Connection;
use palyra_api::client::Whereabouts;
use palyra_api::v1::{ProposeRequest, StatusRequest};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 20;
const CALLS: usize = 500;

pub fn run(report: &mut Report) -> Result {
    let bin = binaries()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let dir = tempfile::tempdir()?;
        let start = Instant::now();
        let daemon = Daemon::start(&bin, dir.path())?;
        runtime.block_on(async {
            let connection = Connection::open(&dir.path().join("state/palyra.sock"), None).await?;
            connection.daemon().status(StatusRequest { probe_sandbox: false }).await?;
            Ok::<_, Box<dyn std::error::Error>>(())
        })?;
        starts.push(start.elapsed());
        drop(daemon);
    }
    report.figure("daemon start to first answer (aim 100 ms)", &show(median(starts)));

    let dir = tempfile::tempdir()?;
    let daemon = Daemon::start(&bin, dir.path())?;
    report.figure("daemon's memory when idle (aim 40 MB)", &format!("{:.1} MB", daemon.resident_bytes()? as f64 / 1e6));
    let help: Vec<Duration> =
        (0..STARTS).map(|_| timed(Command::new(bin.join("palyra")).arg("--version"))).collect::<Result<_>>()?;
    report.figure("command line start (aim 15 ms)", &show(median(help)));
    let status: Vec<Duration> = (0..STARTS)
        .map(|_| timed(Command::new(bin.join("palyra")).arg("--state-dir").arg(dir.path().join("state")).arg("status")))
        .collect::<Result<_>>()?;
    report.figure("palyra status, start to end", &show(median(status)));
    let mut calls = runtime.block_on(over_the_socket(dir.path()))?;
    report.figure(
        "palyra.echo over the socket, p50 and p99",
        &format!("{} and {}", show(median(calls.clone())), show(percentile(&mut calls, 99))),
    );
    report.figure("daemon's memory after 500 calls", &format!("{:.1} MB", daemon.resident_bytes()? as f64 / 1e6));
    Ok(())
}

/// The owner, at work in the workspace of a daemon's directory.
pub async fn owner(dir: &Path) -> Result<Connection> {
    let workspace = dir.join("workspace").canonicalize()?.to_string_lossy().into_owned();
    let place = Whereabouts { workspace: Some(workspace), directory: None };
    Ok(Connection::open(&dir.join("state/palyra.sock"), None).await?.at(&place)?)
}

async fn over_the_socket(dir: &Path) -> Result<Vec<Duration>> {
    let connection = owner(dir).await?;
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        let request = ProposeRequest {
            tool: "palyra.echo".to_owned(),
            input: br#"{"text":"hello"}"#.to_vec(),
            ..ProposeRequest::default()
        };
        let mut updates = connection.calls().propose(request).await?.into_inner();
        while updates.message().await?.is_some_and(|update| update.outcome_json.is_empty()) {}
        times.push(start.elapsed());
    }
    Ok(times)
}

/// A daemon with a directory of its own.
#[derive(Debug)]
pub struct Daemon(Child);

impl Daemon {
    pub fn start(bin: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir.join("workspace"))?;
        let mut command = Command::new(bin.join("palyrad"));
        let config = dir.join("palyra.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        let mut child = command
            .arg("--state-dir")
            .arg(dir.join("state"))
            .arg("--workspace")
            .arg(dir.join("workspace"))
            .env("PALYRA_LOG", "error")
            .env("PALYRA_HTTP_PORT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut word = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut word)?;
        if !word.starts_with("ready") {
            return Err("the daemon did not start".into());
        }
        Ok(Self(child))
    }

    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kb: u64 = line.split_whitespace().nth(1).ok_or("no figure")?.parse()?;
        Ok(kb * 1024)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended at once: nothing of a benchmark is kept.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{command:?} failed").into());
    }
    Ok(start.elapsed())
}

/// The release binaries beside this one.
pub fn binaries() -> Result<PathBuf> {
    let dir = std::env::current_exe()?.parent().ok_or("no directory")?.to_owned();
    if !dir.join("palyrad").exists() || !dir.join("palyra").exists() {
        return Err("build the binaries first: `cargo build --release`".into());
    }
    Ok(dir)
}
