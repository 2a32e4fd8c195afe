//! Moves bytes between the daemon and a running command, and watches the clock and the cancel signal.
//!
//! One `poll` over everything that can happen: output, room in the input pipe, the supervisor's end, a cancellation,
//! something that the backend watches, the deadline. Nothing sleeps and nothing looks at regular intervals. No stream may block another: all
//! descriptors are non-blocking, and output beyond the limit is read, counted and dropped, so that a flood can neither fill
//! memory nor stop the clock.

use super::plan::{Record, TAG_ENDED, TAG_FAILED};
use super::run::Backend;
use super::sys::{self, Supervisor};
use crate::cancel::CancelSignal;
use crate::error::SandboxError;
use crate::outcome::{CapturedStream, LimitHit, OutputSink, OutputStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A process may write this many times its limit before it is ended; in between, output is only dropped.
const FLOOD_FACTOR: u64 = 16;
/// How long a killed tree may take to be gone.
const KILL_GRACE: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;

/// The daemon's ends of the pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) report: OwnedFd,
}

/// The bounds of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) started: Instant,
    pub(super) wall_clock: Duration,
    pub(super) max_output: u64,
}

/// What came out.
#[derive(Debug)]
pub(super) struct Pumped {
    pub(super) stdout: CapturedStream,
    pub(super) stderr: CapturedStream,
    pub(super) stopped_by: Option<LimitHit>,
    pub(super) failed: Option<Record>,
    pub(super) ended: Option<Record>,
}

struct Stream {
    which: OutputStream,
    fd: Option<OwnedFd>,
    captured: CapturedStream,
}

struct Pump<'a, 'plan> {
    supervisor: &'a mut Supervisor<'plan>,
    streams: [Stream; 2],
    stdin: Option<OwnedFd>,
    input: Input<'a>,
    report: OwnedFd,
    result: Pumped,
    bounds: Bounds,
    buffer: Vec<u8>,
}

/// Runs until the supervisor is gone.
pub(super) fn pump(
    supervisor: &mut Supervisor<'_>,
    pipes: Pipes,
    input: &[u8],
    bounds: Bounds,
    cancel: &CancelSignal,
    backend: &mut dyn Backend,
    sink: &mut dyn OutputSink,
) -> Result<Pumped, SandboxError> {
    let stream = |which, fd| Stream { which, fd: Some(fd), captured: CapturedStream::default() };
    let mut pump = Pump {
        supervisor,
        streams: [stream(OutputStream::Stdout, pipes.stdout), stream(OutputStream::Stderr, pipes.stderr)],
        stdin: Some(pipes.stdin),
        input: Input { own: input, source: sink.input(), more: Vec::new(), taken: 0 },
        report: pipes.report,
        result: Pumped {
            stdout: CapturedStream::default(),
            stderr: CapturedStream::default(),
            stopped_by: None,
            failed: None,
            ended: None,
        },
        bounds,
        buffer: Vec::with_capacity(READ_BYTES),
    };
    pump.feed();
    pump.run(cancel, backend, sink)?;
    let [stdout, stderr] = pump.streams;
    pump.result.stdout = stdout.captured;
    pump.result.stderr = stderr.captured;
    Ok(pump.result)
}

/// What a poll found.
#[derive(Debug, Default, Clone, Copy)]
struct Ready {
    streams: [bool; 2],
    stdin: bool,
    source: bool,
    gone: bool,
    cancelled: bool,
    backend: bool,
    late: bool,
}

impl Pump<'_, '_> {
    fn run(
        &mut self,
        cancel: &CancelSignal,
        backend: &mut dyn Backend,
        sink: &mut dyn OutputSink,
    ) -> Result<(), SandboxError> {
        let mut deadline = self.bounds.started + self.bounds.wall_clock;
        loop {
            let ready = self.wait(cancel, backend.watched(), deadline)?;
            if ready.backend {
                backend.attend(sink)?;
            }
            for at in 0..2 {
                if ready.streams[at] {
                    self.read(at, sink);
                }
            }
            if ready.source {
                self.input.refill();
            }
            if ready.stdin || ready.source {
                self.feed();
            }
            if ready.gone {
                // Everything that could write is dead: what is in the pipes is all there will be.
                self.read_report();
                self.drain(sink);
                self.supervisor.reap();
                return Ok(());
            }
            let stop = self.reason_to_stop(ready);
            match (stop, self.result.stopped_by) {
                (Some(reason), None) => {
                    self.result.stopped_by = Some(reason);
                    self.supervisor.stop();
                    deadline = Instant::now() + KILL_GRACE;
                }
                (Some(LimitHit::WallClock), Some(_)) if ready.late => {
                    self.supervisor.kill();
                    self.supervisor.reap();
                    return Err(SandboxError::TreeStuck { seconds: KILL_GRACE.as_secs() });
                }
                _ => {}
            }
        }
    }

    fn reason_to_stop(&self, ready: Ready) -> Option<LimitHit> {
        let flooded =
            |stream: &Stream| stream.captured.total_bytes > self.bounds.max_output.saturating_mul(FLOOD_FACTOR);
        if ready.late {
            Some(LimitHit::WallClock)
        } else if ready.cancelled {
            Some(LimitHit::Cancelled)
        } else if self.streams.iter().any(flooded) {
            Some(LimitHit::Output)
        } else {
            None
        }
    }

    fn wait(
        &self,
        cancel: &CancelSignal,
        watched: Option<(BorrowedFd<'_>, PollFlags)>,
        deadline: Instant,
    ) -> Result<Ready, SandboxError> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(8);
        let gone = add(&mut fds, Some(self.supervisor.pidfd().as_fd()), PollFlags::IN);
        let streams = [0, 1].map(|at| add(&mut fds, self.streams[at].fd.as_ref().map(AsFd::as_fd), PollFlags::IN));
        // With nothing to write, only that nobody reads any more is of interest.
        let wanted = if self.input.pending().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let stdin = add(&mut fds, self.stdin.as_ref().map(AsFd::as_fd), wanted);
        let source = self.input.source.as_ref().filter(|_| self.stdin.is_some() && self.input.pending().is_empty());
        let source = add(&mut fds, source.map(AsFd::as_fd), PollFlags::IN);
        // Once it is being stopped, a cancellation has nothing to add, and would be found again and again.
        let cancelled = add(&mut fds, self.result.stopped_by.is_none().then(|| cancel.fd()), PollFlags::IN);
        let watched = watched.and_then(|(fd, flags)| add(&mut fds, Some(fd), flags));
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let count = match poll(&mut fds, Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(SandboxError::Io { action: "wait for the process", source: error.into() }),
        };
        let is = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        let ready = Ready {
            streams: streams.map(is),
            stdin: is(stdin),
            source: is(source),
            gone: is(gone),
            cancelled: is(cancelled),
            backend: is(watched),
            late: count == 0 || Instant::now() >= deadline,
        };
        Ok(ready)
    }

    /// Reads once from a stream.
    fn read(&mut self, at: usize, sink: &mut dyn OutputSink) -> bool {
        let stream = &mut self.streams[at];
        let Some(fd) = &stream.fd else { return false };
        self.buffer.clear();
        match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut self.buffer)) {
            Ok(0) | Err(Errno::IO | Errno::BADF) => {
                stream.fd = None;
                false
            }
            Ok(_) => {
                stream.keep(&self.buffer, self.bounds.max_output, sink);
                true
            }
            Err(_) => false,
        }
    }

    /// Reads what is left, without waiting for more: a descriptor that was sent out of the run must not hold us.
    fn drain(&mut self, sink: &mut dyn OutputSink) {
        for at in 0..2 {
            while self.read(at, sink) {}
        }
    }

    /// Writes as much input as fits; closes the pipe at the end of it, or when nobody reads.
    fn feed(&mut self) {
        let Some(fd) = &self.stdin else { return };
        while !self.input.pending().is_empty() {
            match sys::write_quietly(fd, self.input.pending()) {
                Ok(written) => self.input.advance(written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Closed by the command; what it did not want to read is not an error.
                Err(_) => self.input = Input::default(),
            }
        }
        if self.input.source.is_none() || is_deaf(fd) {
            self.stdin = None;
        }
    }

    /// Reads the one record that the supervisor leaves behind.
    fn read_report(&mut self) {
        let mut bytes = [0u8; Record::BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::read(&self.report, &mut bytes[filled..]) {
                Ok(0) => return,
                Ok(length) => filled += length,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        match Record::parse(&bytes) {
            Some(record) if record.tag == TAG_FAILED => self.result.failed = Some(record),
            Some(record) if record.tag == TAG_ENDED => self.result.ended = Some(record),
            _ => {}
        }
    }
}

/// What the command is given to read: the request's own input, then whatever comes from a source.
#[derive(Debug, Default)]
struct Input<'a> {
    own: &'a [u8],
    source: Option<PipeReader>,
    more: Vec<u8>,
    taken: usize,
}

impl Input<'_> {
    /// What is to be written next; empty: nothing is there yet.
    fn pending(&self) -> &[u8] {
        if self.own.is_empty() { &self.more[self.taken..] } else { self.own }
    }

    fn advance(&mut self, written: usize) {
        if self.own.is_empty() {
            self.taken += written;
        } else {
            self.own = &self.own[written..];
        }
    }

    /// Reads once from the source, which has something or has ended.
    fn refill(&mut self) {
        let Some(source) = &self.source else { return };
        self.more.clear();
        self.taken = 0;
        self.more.reserve(READ_BYTES);
        match rustix::io::read(source, rustix::buffer::spare_capacity(&mut self.more)) {
            Ok(1..) | Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(0) | Err(_) => self.source = None,
        }
    }
}

/// Whether nobody reads from a pipe any more.
fn is_deaf(fd: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(fd, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_ok() && watched[0].revents().contains(PollFlags::ERR)
}

/// Adds a descriptor to poll, and tells where it went.
fn add<'fd>(fds: &mut Vec<PollFd<'fd>>, fd: Option<BorrowedFd<'fd>>, flags: PollFlags) -> Option<usize> {
    fds.push(PollFd::from_borrowed_fd(fd?, flags));
    Some(fds.len() - 1)
}

impl Stream {
    fn keep(&mut self, bytes: &[u8], limit: u64, sink: &mut dyn OutputSink) {
        let captured = &mut self.captured;
        captured.total_bytes += bytes.len() as u64;
        let room = limit.saturating_sub(captured.bytes.len() as u64);
        let kept = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        captured.truncated |= kept.len() < bytes.len();
        if !kept.is_empty() {
            captured.bytes.extend_from_slice(kept);
            sink.chunk(self.which, kept);
        }
    }
}
