//! From an allowed target to a connected socket: resolve once, check, connect to what was checked.

use super::denial::Denial;
use super::host::Host;
use super::resolve::{Resolve, is_ours, known_addresses, vet};
use super::rules::EgressRules;
use super::wait::{Woken, wait};
use crate::CancelSignal;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What connecting needs.
pub(super) struct Dialer {
    pub(super) rules: Arc<EgressRules>,
    pub(super) resolver: Arc<dyn Resolve>,
    /// Ends whatever is waited for.
    pub(super) stop: CancelSignal,
    /// Names being resolved now, those included that were given up on.
    pub(super) lookups: Arc<AtomicUsize>,
    pub(super) max_lookups: usize,
    pub(super) resolve_timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum DialError {
    Denied(Denial),
    Resolve(String),
    Connect(io::Error),
    Stopped,
}

/// Connects to a host that a rule has allowed.
pub(super) fn dial(dialer: &Dialer, host: &Host, port: u16) -> Result<(TcpStream, SocketAddr), DialError> {
    let addresses = match known_addresses(host, port) {
        // A rule names this address or localhost: that is what `check` found.
        Some(addresses) => addresses,
        None => {
            let name = host.to_string();
            let found = lookup(dialer, &name, port)?;
            vet(&dialer.rules, (&name, port), &found, is_ours).map_err(DialError::Denied)?
        }
    };
    connect_any(dialer, &addresses)
}

/// A lookup's place among those under way.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Resolves in a thread of its own: a resolver that hangs is given up on, and keeps nothing of the proxy but its slot.
fn lookup(dialer: &Dialer, name: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |why: &str| DialError::Resolve(format!("{name} could not be resolved: {why}"));
    let slot = Slot(Arc::clone(&dialer.lookups));
    if dialer.lookups.fetch_add(1, Ordering::AcqRel) >= dialer.max_lookups {
        return Err(failed("too many names are being resolved"));
    }
    let (done, arrived) = CancelSignal::new().map_err(|error| failed(&error.to_string()))?;
    let (sender, receiver) = mpsc::channel();
    let resolver = Arc::clone(&dialer.resolver);
    let owned = name.to_owned();
    let work = move || {
        let _slot = slot;
        // Nobody may be waiting any more; then the answer is dropped.
        let _sent = sender.send(resolver.resolve(&owned, port));
        done.cancel();
    };
    std::thread::Builder::new()
        .name("egress-resolve".to_owned())
        .spawn(work)
        .map_err(|error| failed(&error.to_string()))?;
    let deadline = Instant::now() + dialer.resolve_timeout;
    match wait(&dialer.stop, [(arrived.fd(), PollFlags::IN)], deadline) {
        Ok(Woken::Ready(_)) => {}
        Ok(Woken::Timeout) => return Err(failed("no answer in time")),
        Ok(Woken::Stopped) => return Err(DialError::Stopped),
        Err(error) => return Err(failed(&error.to_string())),
    }
    match receiver.try_recv() {
        Ok(Ok(found)) if found.is_empty() => Err(failed("it has no addresses")),
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Err(_) => Err(failed("the resolver broke")),
    }
}

/// Tries one address after the other, each with its share of the time.
fn connect_any(dialer: &Dialer, addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), DialError> {
    let deadline = Instant::now() + dialer.connect_timeout;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, address) in addresses.iter().enumerate() {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(1);
        match connect_one(dialer, *address, now + share.max(Duration::from_millis(1))) {
            Ok(socket) => return Ok((socket, *address)),
            Err(DialError::Connect(error)) => last = error,
            Err(other) => return Err(other),
        }
    }
    Err(DialError::Connect(last))
}

fn connect_one(dialer: &Dialer, address: SocketAddr, deadline: Instant) -> Result<TcpStream, DialError> {
    let failed = |error: rustix::io::Errno| DialError::Connect(error.into());
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(socket.into()),
        Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(failed(error)),
    }
    match wait(&dialer.stop, [(socket.as_fd(), PollFlags::OUT)], deadline) {
        Ok(Woken::Ready(_)) => {}
        Ok(Woken::Timeout) => return Err(DialError::Connect(io::ErrorKind::TimedOut.into())),
        Ok(Woken::Stopped) => return Err(DialError::Stopped),
        Err(error) => return Err(DialError::Connect(error)),
    }
    match sockopt::socket_error(&socket) {
        Ok(Ok(())) => Ok(socket.into()),
        Ok(Err(error)) | Err(error) => Err(failed(error)),
    }
}
