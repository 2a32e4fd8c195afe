//! The command's streams, tied to ours while it runs.
//!
//! The thread that runs the command must never wait for whoever reads our output: the clock would stop with it. So a
//! thread of its own writes, and what waits for it is at most what the policy lets through. Input comes the other way
//! through a pipe, because a read from a descriptor that we share with others could block.

use palyra_egress::EgressRecord;
use palyra_protocol::display::Sanitizer;
use palyra_sandbox::{CancelHandle, OutputSink, OutputStream};
use std::io::{self, IsTerminal as _, PipeReader, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How many connections a report lists; the others it counts.
const MOST_CONNECTIONS: usize = 1000;

/// The connections of a command.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The first.
    pub(super) listed: Vec<EgressRecord>,
    /// How many there were besides.
    pub(super) further: u64,
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Waiting {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Desk {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write; nothing when the command has ended and everything was taken.
    fn take(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut waiting = self.lock();
        while waiting.stdout.is_empty() && waiting.stderr.is_empty() {
            if waiting.ended {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        Some((std::mem::take(&mut waiting.stdout), std::mem::take(&mut waiting.stderr)))
    }
}

/// The command's end of the streams. When it is dropped, no more output comes.
#[derive(Debug)]
pub(super) struct Streams {
    desk: Arc<Desk>,
    input: Option<PipeReader>,
    connections: Arc<Mutex<Connections>>,
}

impl Streams {
    /// The connections that the command makes, as they end.
    pub(super) fn connections(&self) -> Arc<Mutex<Connections>> {
        Arc::clone(&self.connections)
    }
}

impl OutputSink for Streams {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        let mut waiting = self.desk.lock();
        match stream {
            OutputStream::Stdout => waiting.stdout.extend_from_slice(bytes),
            OutputStream::Stderr => waiting.stderr.extend_from_slice(bytes),
        }
        self.desk.changed.notify_one();
    }

    fn input(&mut self) -> Option<PipeReader> {
        self.input.take()
    }

    fn egress(&mut self, record: &EgressRecord) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.listed.len() < MOST_CONNECTIONS {
            connections.listed.push(record.clone());
        } else {
            connections.further += record.count;
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.desk.lock().ended = true;
        self.desk.changed.notify_one();
    }
}

/// What became of our standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it was taken.
    All,
    /// Its reader went away, and the command was ended, as a pipe would have ended it.
    ReaderGone,
}

/// Ties the streams. The thread ends when the command has ended and all its output is written.
pub(super) fn tie(cancel: CancelHandle) -> io::Result<(Streams, JoinHandle<Written>)> {
    let desk = Arc::new(Desk::default());
    let from = Arc::clone(&desk);
    let writer = std::thread::Builder::new().name("output".into()).spawn(move || write_all(&from, &cancel))?;
    Ok((Streams { desk, input: input()?, connections: Arc::default() }, writer))
}

fn write_all(desk: &Desk, cancel: &CancelHandle) -> Written {
    let sanitizer = |terminal: bool| terminal.then(Sanitizer::default);
    let mut sanitizers = [sanitizer(io::stdout().is_terminal()), sanitizer(io::stderr().is_terminal())];
    let mut written = Written::All;
    let mut pass_on = |stdout: &[u8], stderr: &[u8]| {
        if written == Written::All && put(io::stdout(), stdout).is_err() {
            written = Written::ReaderGone;
            cancel.cancel();
        }
        // There is nobody left to tell.
        drop(put(io::stderr(), stderr));
        written
    };
    while let Some((stdout, stderr)) = desk.take() {
        let [stdout, stderr] = [(0, stdout), (1, stderr)].map(|(at, bytes)| match &mut sanitizers[at] {
            Some(sanitizer) => sanitizer.push(&bytes).into_bytes(),
            None => bytes,
        });
        pass_on(&stdout, &stderr);
    }
    let [stdout, stderr] = sanitizers.map(|last| last.map(|mut last| last.finish()).unwrap_or_default());
    pass_on(stdout.as_bytes(), stderr.as_bytes())
}

fn put(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Our standard input, unless it is a terminal: who types there does not type for the command.
fn input() -> io::Result<Option<PipeReader>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let (reader, mut writer) = io::pipe()?;
    std::thread::Builder::new().name("input".into()).spawn(move || {
        // Ends with the input, or when the command reads no more.
        drop(io::copy(&mut io::stdin().lock(), &mut writer));
    })?;
    Ok(Some(reader))
}
