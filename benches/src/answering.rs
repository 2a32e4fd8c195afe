//! From a proposal to the approval that a person can read, on a real terminal beside a running daemon.

use crate::Result;
use crate::process::{Daemon, binaries, owner};
use crate::report::{Report, percentile, show};
use palyra_api::v1::{CancelCallRequest, ProposeRequest};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PROPOSALS: usize = 100;
/// How long nothing may be written before the watch counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);
/// The promise.
const AIM: Duration = Duration::from_millis(20);

/// `palyra approvals watch` on a pseudo-terminal. It ends with this.
struct Watch {
    child: Child,
    written: Receiver<(Instant, Vec<u8>)>,
    text: String,
}

impl Watch {
    fn start(state: &Path, palyra: &Path) -> Result<Self> {
        // `script` makes the terminal.
        let command = format!("stty cols 100 rows 80; {} --state-dir {}", palyra.display(), state.display());
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--command", &format!("{command} approvals watch"), "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = child.stdout.take().ok_or("no output")?;
        let (sender, written) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(length @ 1..) = out.read(&mut bytes) {
                if sender.send((Instant::now(), bytes[..length].to_vec())).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, written, text: String::new() })
    }

    /// When these texts were on the terminal, in this order. What was written before that is forgotten.
    fn shows(&mut self, wanted: &[&str]) -> Result<Instant> {
        loop {
            let (at, bytes) = self.written.recv_timeout(PATIENCE)?;
            self.text.push_str(&String::from_utf8_lossy(&bytes));
            let found = wanted.iter().try_fold(self.text.as_str(), |rest, text| Some(rest.split_once(text)?.1));
            if found.is_some() {
                self.text.clear();
                return Ok(at);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn run(report: &mut Report) -> Result {
    let (bin, dir) = (binaries()?, tempfile::tempdir()?);
    let daemon = Daemon::start(&bin, dir.path())?;
    let state = dir.path().join("state");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let connection = runtime.block_on(owner(dir.path()))?;
    let mut watch = Watch::start(&state, &bin.join("palyra"))?;
    watch.shows(&["nothing waits"])?;
    let mut times = Vec::with_capacity(PROPOSALS);
    for number in 0..PROPOSALS {
        let input = format!(r#"{{"argv":["tee","-a","log-{number}"]}}"#).into_bytes();
        let request = ProposeRequest { tool: "palyra.process.run".to_owned(), input, ..ProposeRequest::default() };
        let start = Instant::now();
        let call = runtime.block_on(async {
            let mut updates = connection.calls().propose(request).await?.into_inner();
            let call = updates.message().await?.ok_or("the call has no id")?.call_id;
            Result::Ok(call)
        })?;
        // The prompt is written after the last line of the review.
        let shown = watch.shows(&[&format!("log-{number}"), "…"])?;
        times.push(shown.duration_since(start));
        runtime.block_on(connection.calls().cancel(CancelCallRequest { call_id: call }))?;
        watch.shows(&["nothing waits"])?;
    }
    drop(daemon);
    report.figure("proposal to visible approval, p99", &show(percentile(&mut times, 99)));
    report.at_most("proposal to visible approval, p50, against 20 ms", percentile(&mut times, 50), AIM, 1.0);
    Ok(())
}
