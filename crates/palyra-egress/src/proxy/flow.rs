//! One direction of a connection.
//!
//! Bytes that a gate has to see pass through memory; once it is open the kernel moves them from socket to socket
//! through a pipe, and this process never touches them.

use super::super::gate::{Gate, Seen, Shut, Step};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

/// How much is moved at once, and how much a pipe is asked to hold once there is much to move. What a user's pipes may
/// hold together is limited, so a tunnel that only chats keeps the small pipe it was made with.
const BULK: usize = 1 << 20;
const MUCH: usize = 64 * 1024;
/// How much is read at once for a gate.
const READ: usize = 64 * 1024;
/// How often one direction may go before the other has its turn.
const TURNS: usize = 8;

/// One direction.
#[derive(Debug)]
pub(super) struct Flow {
    /// What goes out first.
    pending: Vec<u8>,
    pub(super) gate: Option<Gate>,
    /// What a gate found out, once it is open.
    pub(super) seen: Option<Seen>,
    pipe: Option<Pipe>,
    source: Source,
    /// How much may still be taken from the source without being looked at; nothing for all of it.
    left: Option<u64>,
    /// The source ended before what it had announced was whole.
    pub(super) torn: bool,
    /// Whether the end of this direction is told to the sink.
    close: bool,
    pub(super) read: u64,
    pub(super) written: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Open,
    Ended,
    /// Ended, and the sink knows.
    Done,
}

#[derive(Debug)]
struct Pipe {
    outlet: OwnedFd,
    inlet: OwnedFd,
    held: usize,
    grown: bool,
}

/// Why a direction broke.
#[derive(Debug)]
pub(super) enum Broken {
    Source,
    Sink,
    Shut(Shut),
    /// The host could not give a pipe.
    Host,
}

impl Flow {
    /// A direction that begins with these bytes, looked at by a gate, if any.
    pub(super) fn new(pending: Vec<u8>, gate: Option<Gate>) -> Self {
        let (seen, pipe, source, left) = (None, None, Source::Open, None);
        Self { pending, gate, seen, pipe, source, left, torn: false, close: true, read: 0, written: 0 }
    }

    /// The sink is not told when this direction ends.
    pub(super) fn without_close(mut self) -> Self {
        self.close = false;
        self
    }

    /// Nothing is taken from the source: only what is pending goes out.
    pub(super) fn without_source(mut self) -> Self {
        self.source = Source::Ended;
        self
    }

    /// Gives the gate what was read ahead of it.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.read += bytes.len() as u64;
        let Some(gate) = &mut self.gate else {
            self.pending.extend_from_slice(bytes);
            return Ok(());
        };
        match gate.feed(bytes, &mut self.pending).map_err(Broken::Shut)? {
            Step::More => {}
            Step::Only(left) => {
                self.gate = None;
                self.left = Some(left);
            }
            Step::Pass => {
                if let Some(Gate::Hello(hello)) = self.gate.take() {
                    self.seen = hello.seen;
                }
            }
            Step::End => {
                self.gate = None;
                self.source = Source::Ended;
            }
        }
        Ok(())
    }

    pub(super) fn wants_to_read(&self) -> bool {
        self.source == Source::Open && !self.wants_to_write()
    }

    /// Whether everything was taken from the source that is wanted of it.
    pub(super) fn has_all(&self) -> bool {
        self.source != Source::Open
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.pending.is_empty() || self.pipe.as_ref().is_some_and(|pipe| pipe.held > 0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.source == Source::Done
    }

    /// The sink is gone and that does not matter: the direction is over.
    pub(super) fn abandon(&mut self) {
        self.pending.clear();
        self.pipe = None;
        self.source = Source::Done;
    }

    /// Moves what can be moved without waiting.
    pub(super) fn go(&mut self, source: &TcpStream, sink: &TcpStream) -> Result<(), Broken> {
        for _ in 0..TURNS {
            if !self.flush(sink)? || self.source != Source::Open || !self.fill(source)? {
                break;
            }
        }
        if self.source == Source::Ended && !self.wants_to_write() {
            self.source = Source::Done;
            if self.close {
                // A sink that is gone already needs no telling.
                let _told = sink.shutdown(Shutdown::Write);
            }
        }
        Ok(())
    }

    /// Whether nothing is left to be written.
    fn flush(&mut self, mut sink: &TcpStream) -> Result<bool, Broken> {
        while !self.pending.is_empty() {
            match sink.write(&self.pending) {
                Ok(0) => return Err(Broken::Sink),
                Ok(count) => {
                    self.pending.drain(..count);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Sink),
            }
        }
        let Some(pipe) = &mut self.pipe else { return Ok(true) };
        while pipe.held > 0 {
            match splice(&pipe.outlet, None, sink, None, pipe.held, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(0) => return Err(Broken::Sink),
                Ok(count) => {
                    pipe.held -= count.min(pipe.held);
                    self.written += count as u64;
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Sink),
            }
        }
        Ok(true)
    }

    /// Takes from the source; whether there was anything. Only called when nothing is left to be written.
    fn fill(&mut self, source: &TcpStream) -> Result<bool, Broken> {
        if self.gate.is_some() {
            return self.fill_gate(source);
        }
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => none.insert(Pipe::new().map_err(|_| Broken::Host)?),
        };
        let most = self.left.map_or(BULK, |left| usize::try_from(left).unwrap_or(BULK).min(BULK));
        match splice(source, None, &pipe.inlet, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
            Ok(0) => {
                self.torn = self.left.is_some();
                self.source = Source::Ended;
                Ok(false)
            }
            Ok(count) => {
                pipe.held += count;
                pipe.grow_for(count);
                self.read += count as u64;
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(count as u64);
                    if *left == 0 {
                        self.source = Source::Ended;
                    }
                }
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(_) => Err(Broken::Source),
        }
    }

    fn fill_gate(&mut self, mut source: &TcpStream) -> Result<bool, Broken> {
        let mut buffer = vec![0; READ];
        match source.read(&mut buffer) {
            Ok(0) => {
                match &self.gate {
                    // A body that ends early: the client broke off, and the server must not take it for whole.
                    Some(Gate::Body(_)) => return Err(Broken::Source),
                    // An answer that ends early: the client sees that by its framing.
                    Some(gate) if gate.is_in_answer() => self.torn = true,
                    Some(gate) => gate.finish().map_err(Broken::Shut)?,
                    None => {}
                }
                self.source = Source::Ended;
                Ok(false)
            }
            Ok(count) => self.feed(&buffer[..count]).map(|()| true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(_) => Err(Broken::Source),
        }
    }
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (outlet, inlet) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { outlet, inlet, held: 0, grown: false })
    }

    fn grow_for(&mut self, moved: usize) {
        if moved >= MUCH && !self.grown {
            self.grown = true;
            // The kernel may refuse; a smaller pipe is slower and not wrong.
            let _size = fcntl_setpipe_size(&self.inlet, BULK);
        }
    }
}
