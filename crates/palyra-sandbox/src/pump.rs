//! Moves bytes between the daemon and a running command, and watches the clock and the cancel signal.
//!
//! One `poll` over everything that can happen: output, room in the input pipe, the end of the command, a cancellation,
//! something that an attendant watches, the deadline. Nothing sleeps and nothing looks at regular intervals. No stream
//! may block another: all descriptors are non-blocking, and output beyond the limit is read, counted and dropped, so
//! that a flood can neither fill memory nor stop the clock.

use crate::error::SandboxError;
use crate::outcome::{CapturedStream, KILL_GRACE, LimitHit, OutputSink, OutputStream};
use palyra_egress::CancelSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::PipeReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 * 1024;

/// The daemon's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// A running command with all that it started, as a platform follows and ends it.
pub(crate) trait Tree {
    /// Becomes readable, or is hung up, when the command is over.
    fn over(&self) -> BorrowedFd<'_>;
    /// Ends it: [`Tree::over`] follows.
    fn stop(&mut self);
    /// Takes it off the process table once it is over, and whatever it left running with it.
    fn reap(&mut self);
    /// It does not end: lets go of it.
    fn abandon(&mut self);
    /// Writes to its input. When nobody reads there any more that is an error, never a signal to the daemon.
    fn write(&self, pipe: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno>;
}

/// The bounds of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) started: Instant,
    pub(crate) wall_clock: Duration,
    pub(crate) max_output: u64,
}

/// Somebody with something of its own to look after while the process runs.
pub(crate) trait Attendant {
    /// What to watch, and what on it means that [`Attendant::attend`] has work.
    fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        None
    }
    /// Looks after it. An error ends the run.
    fn attend(&mut self, sink: &mut dyn OutputSink) -> Result<(), SandboxError> {
        let _nothing_to_tell = sink;
        Ok(())
    }
}

/// Nothing to look after.
#[cfg(any(target_os = "macos", test))]
impl Attendant for () {}

/// What came out.
#[derive(Debug)]
pub(crate) struct Pumped {
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    pub(crate) stopped_by: Option<LimitHit>,
}

struct Stream {
    which: OutputStream,
    fd: Option<OwnedFd>,
    captured: CapturedStream,
}

struct Pump<'a> {
    tree: &'a mut dyn Tree,
    streams: [Stream; 2],
    stdin: Option<OwnedFd>,
    input: Input<'a>,
    stopped_by: Option<LimitHit>,
    bounds: Bounds,
    buffer: Vec<u8>,
}

/// Runs until the command is over.
pub(crate) fn pump(
    tree: &mut dyn Tree,
    pipes: Pipes,
    input: &[u8],
    bounds: Bounds,
    cancel: &CancelSignal,
    attendant: &mut dyn Attendant,
    sink: &mut dyn OutputSink,
) -> Result<Pumped, SandboxError> {
    let stream = |which, fd| Stream { which, fd: Some(fd), captured: CapturedStream::default() };
    let mut pump = Pump {
        tree,
        streams: [stream(OutputStream::Stdout, pipes.stdout), stream(OutputStream::Stderr, pipes.stderr)],
        stdin: Some(pipes.stdin),
        input: Input { own: input, source: sink.input(), more: Vec::new(), taken: 0 },
        stopped_by: None,
        bounds,
        buffer: Vec::with_capacity(READ_BYTES),
    };
    pump.feed();
    pump.run(cancel, attendant, sink)?;
    let [stdout, stderr] = pump.streams;
    Ok(Pumped { stdout: stdout.captured, stderr: stderr.captured, stopped_by: pump.stopped_by })
}

/// What a poll found.
#[derive(Debug, Default, Clone, Copy)]
struct Ready {
    streams: [bool; 2],
    stdin: bool,
    source: bool,
    over: bool,
    cancelled: bool,
    watched: bool,
    late: bool,
}

impl Pump<'_> {
    fn run(
        &mut self,
        cancel: &CancelSignal,
        attendant: &mut dyn Attendant,
        sink: &mut dyn OutputSink,
    ) -> Result<(), SandboxError> {
        let mut deadline = self.bounds.started + self.bounds.wall_clock;
        loop {
            // What is being stopped needs no attendance, and what it lacks by now says nothing about the host.
            let watched = attendant.watched().filter(|_| self.stopped_by.is_none());
            let ready = self.wait(cancel, watched, deadline)?;
            if ready.watched {
                attendant.attend(sink)?;
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
            if ready.over {
                self.tree.reap();
                // Everything that could write is dead: what is in the pipes is all there will be.
                self.drain(sink);
                return Ok(());
            }
            let stop = self.reason_to_stop(ready);
            match (stop, self.stopped_by) {
                (Some(reason), None) => {
                    self.stopped_by = Some(reason);
                    self.tree.stop();
                    deadline = Instant::now() + KILL_GRACE;
                }
                (Some(LimitHit::WallClock), Some(_)) if ready.late => {
                    self.tree.abandon();
                    return Err(SandboxError::TreeStuck { seconds: KILL_GRACE.as_secs() });
                }
                _ => {}
            }
        }
    }

    fn reason_to_stop(&self, ready: Ready) -> Option<LimitHit> {
        let flooded = |stream: &Stream| stream.captured.is_flood(self.bounds.max_output);
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
        let over = add(&mut fds, Some(self.tree.over()), PollFlags::IN);
        let streams = [0, 1].map(|at| add(&mut fds, self.streams[at].fd.as_ref().map(AsFd::as_fd), PollFlags::IN));
        // With nothing to write, only that nobody reads any more is of interest.
        let wanted = if self.input.pending().is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let stdin = add(&mut fds, self.stdin.as_ref().map(AsFd::as_fd), wanted);
        let source = self.input.source.as_ref().filter(|_| self.stdin.is_some() && self.input.pending().is_empty());
        let source = add(&mut fds, source.map(AsFd::as_fd), PollFlags::IN);
        // Once it is being stopped, a cancellation has nothing to add, and would be found again and again.
        let cancelled = add(&mut fds, self.stopped_by.is_none().then(|| cancel.fd()), PollFlags::IN);
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
            over: is(over),
            cancelled: is(cancelled),
            watched: is(watched),
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
                stream.captured.keep(stream.which, &self.buffer, self.bounds.max_output, sink);
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
            match self.tree.write(fd, self.input.pending()) {
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
