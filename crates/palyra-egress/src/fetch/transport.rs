//! The bytes beneath an exchange: over a connection that was made and checked before, and no other.
//!
//! The HTTP library is given one connected socket and cannot make another. Each wait ends at the deadline of the whole
//! fetch or when the call is cancelled. What was moved is counted here, encrypted as it is.

use super::super::wait::{Woken, wait};
use crate::CancelSignal;
use rustix::event::PollFlags;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};

/// What is known of a connection while it is used.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) cancelled: AtomicBool,
    pub(super) timed_out: AtomicBool,
}

/// A connection for the HTTP library to take.
#[derive(Debug)]
pub(super) struct Ready {
    socket: Mutex<Option<TcpStream>>,
    cancel: CancelSignal,
    deadline: Instant,
    traffic: Arc<Traffic>,
}

impl Ready {
    pub(super) fn new(socket: TcpStream, cancel: CancelSignal, deadline: Instant, traffic: Arc<Traffic>) -> Self {
        Self { socket: Mutex::new(Some(socket)), cancel, deadline, traffic }
    }
}

impl Connector for Ready {
    type Out = Wire;

    fn connect(&self, details: &ConnectionDetails<'_>, _chained: Option<()>) -> Result<Option<Wire>, Error> {
        // There is one connection: a second exchange over this agent has none.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = socket.ok_or(Error::ConnectionFailed)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        let (cancel, traffic) = (self.cancel.clone(), Arc::clone(&self.traffic));
        Ok(Some(Wire { socket, buffers, cancel, deadline: self.deadline, traffic }))
    }
}

/// The address that the connection leads to; nobody is asked.
#[derive(Debug)]
pub(super) struct Pinned(pub(super) SocketAddr);

impl Resolver for Pinned {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Wire {
    socket: TcpStream,
    buffers: LazyBuffers,
    cancel: CancelSignal,
    deadline: Instant,
    traffic: Arc<Traffic>,
}

impl Wire {
    fn wait(&self, flags: PollFlags) -> Result<(), Error> {
        let woken = wait(&self.cancel, [(self.socket.as_fd(), flags)], self.deadline)?;
        match woken {
            Woken::Ready(_) if Instant::now() < self.deadline => Ok(()),
            Woken::Stopped => {
                self.traffic.cancelled.store(true, Ordering::Release);
                Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())
            }
            // A server that never stops sending does not outrun the deadline.
            Woken::Timeout | Woken::Ready(_) => {
                self.traffic.timed_out.store(true, Ordering::Release);
                Err(io::Error::from(io::ErrorKind::TimedOut).into())
            }
        }
    }
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let mut done = 0;
        while done < amount {
            match self.socket.write(&self.buffers.output()[done..amount]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(count) => {
                    done += count;
                    self.traffic.sent.fetch_add(count as u64, Ordering::AcqRel);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        loop {
            self.wait(PollFlags::IN)?;
            match self.socket.read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.buffers.input_appended(count);
                    self.traffic.received.fetch_add(count as u64, Ordering::AcqRel);
                    return Ok(count > 0);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        false
    }
}
