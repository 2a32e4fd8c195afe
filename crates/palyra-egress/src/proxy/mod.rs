//! The filtering proxy: one port, three protocols, a thread for each connection.
//!
//! A connection has a thread because everything it does can block: resolving, connecting, moving bytes. There are never
//! more than [`ProxyLimits::max_connections`] of them, and who comes when all places are taken waits a moment for one.
//! Each waits in `poll` with a deadline and for the order to stop, so [`Proxy::stop`] ends all of them at once and
//! nothing is left behind. What a run may do to the journal is bounded too: after
//! [`ProxyLimits::max_total_connections`] further ones are refused and counted in one record.
//!
//! The listener may live in another network namespace; connections to servers are made in the one of this process.

mod answer;
mod client;
mod flow;
mod inspect;
mod relay;

use super::credentials::Credentials;
use super::denial::{Denial, DenialCode, Denials};
use super::dial::Dialer;
use super::fetch::{Fetcher, Roots};
use super::resolve::Resolve;
use super::rules::EgressRules;
use super::wait::{Woken, wait};
use crate::{CancelHandle, CancelSignal};
use palyra_protocol::egress::{EgressProtocol, EgressRecord, EgressVerdict};
use palyra_protocol::{Clock as _, SystemClock};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Enough for a connection; what it reads goes to the heap.
const STACK: usize = 256 * 1024;

/// Who is told of each connection when it has ended.
pub type EgressObserver = Arc<dyn Fn(&EgressRecord) + Send + Sync>;

/// What a proxy may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections at once.
    pub max_connections: usize,
    /// Connections over the proxy's life. Those beyond are refused and counted in one record.
    pub max_total_connections: u64,
    /// Names being resolved at once, those included that were given up on.
    pub max_lookups: usize,
    /// How long a client has to say what it wants, from its first byte to the last.
    pub head_timeout: Duration,
    /// How long resolving may take.
    pub resolve_timeout: Duration,
    /// How long connecting may take, over all addresses.
    pub connect_timeout: Duration,
    /// How long nothing may move.
    pub idle_timeout: Duration,
    /// How long nothing may move where a client has sent its request and ended: it may have given up.
    pub abandoned_timeout: Duration,
    /// How long nothing may move in a tunnel of which one side has ended.
    pub half_closed_timeout: Duration,
    /// How long a client waits for a place.
    pub place_timeout: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            max_connections: 128,
            max_total_connections: 10_000,
            max_lookups: 64,
            head_timeout: Duration::from_secs(10),
            resolve_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(300),
            abandoned_timeout: Duration::from_secs(10),
            half_closed_timeout: Duration::from_secs(60),
            place_timeout: Duration::from_secs(2),
        }
    }
}

/// What a proxy did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxySummary {
    /// Connections that a rule allowed.
    pub allowed: u64,
    /// Connections that were refused.
    pub denied: u64,
    /// Bytes that went to servers.
    pub bytes_sent: u64,
    /// Bytes that came from them.
    pub bytes_received: u64,
    /// What the refused ones were told.
    pub denials: Denials,
}

/// Why a proxy could not start.
#[derive(Debug, thiserror::Error)]
#[error("the egress proxy could not {action}")]
pub struct ProxyError {
    action: &'static str,
    #[source]
    source: io::Error,
}

/// A running proxy.
pub struct Proxy {
    stop: CancelHandle,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    address: SocketAddr,
}

/// What all threads of a proxy have in common.
struct Shared {
    dialer: Dialer,
    limits: ProxyLimits,
    observer: EgressObserver,
    active: AtomicUsize,
    /// Readable when a place was given back.
    freed: OwnedFd,
    summary: Mutex<ProxySummary>,
    /// What is attached to requests, and what sends those.
    credentials: Option<Arc<dyn Credentials>>,
    fetcher: Option<Fetcher>,
}

/// What a proxy is made of.
pub struct ProxySetup {
    /// Where clients come in.
    pub listener: TcpListener,
    /// What they may reach.
    pub rules: Arc<EgressRules>,
    /// Who knows addresses.
    pub resolver: Arc<dyn Resolve>,
    /// What it may use up.
    pub limits: ProxyLimits,
    /// Who is told of connections.
    pub observer: EgressObserver,
    /// What is attached to requests to bound hosts, and whose word is taken for who those are.
    pub credentials: Option<(Arc<dyn Credentials>, Roots)>,
}

impl fmt::Debug for ProxySetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySetup").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts to serve a listener.
    ///
    /// # Errors
    /// When the host is out of descriptors or threads, or the listener is none.
    pub fn start(
        listener: TcpListener,
        rules: Arc<EgressRules>,
        resolver: Arc<dyn Resolve>,
        limits: ProxyLimits,
        observer: EgressObserver,
    ) -> Result<Self, ProxyError> {
        Self::with(ProxySetup { listener, rules, resolver, limits, observer, credentials: None })
    }

    /// Starts to serve, with credentials for bound hosts.
    ///
    /// # Errors
    /// As for [`Proxy::start`].
    pub fn with(setup: ProxySetup) -> Result<Self, ProxyError> {
        let ProxySetup { listener, rules, resolver, limits, observer, credentials } = setup;
        let (credentials, fetcher) = match credentials {
            Some((credentials, roots)) => {
                (Some(credentials), Some(Fetcher::new(Arc::clone(&rules), Arc::clone(&resolver), roots)))
            }
            None => (None, None),
        };
        let failed = |action| move |source| ProxyError { action, source };
        let (handle, stop) =
            CancelSignal::new().map_err(|e| failed("create an event descriptor")(io::Error::other(e)))?;
        listener.set_nonblocking(true).map_err(failed("set up its listener"))?;
        let address = listener.local_addr().map_err(failed("set up its listener"))?;
        let freed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let freed = freed.map_err(|e| failed("create an event descriptor")(e.into()))?;
        let shared = Arc::new(Shared {
            dialer: Dialer {
                rules,
                resolver,
                stop,
                lookups: Arc::default(),
                max_lookups: limits.max_lookups,
                resolve_timeout: limits.resolve_timeout,
                connect_timeout: limits.connect_timeout,
            },
            limits,
            observer,
            active: AtomicUsize::new(0),
            freed,
            summary: Mutex::default(),
            credentials,
            fetcher,
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread("egress-accept", move || accept_all(&listener, &shared)).map_err(failed("start a thread"))?
        };
        Ok(Self { stop: handle, shared, acceptor: Some(acceptor), address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection and thread. When it returns, every record has been handed over.
    pub fn stop(mut self) -> ProxySummary {
        self.end();
        std::mem::take(&mut *self.shared.summary.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.stop.cancel();
        if let Some(acceptor) = self.acceptor.take() {
            // A panic in there has been printed; there is nothing more to end.
            let _ended = acceptor.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    /// Keeps what a client was told, for whoever asks when the run is over.
    fn note(&self, denial: &Denial) {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).denials.add(denial);
    }

    fn record(&self, record: &EgressRecord) {
        {
            let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
            match record.verdict {
                EgressVerdict::Allowed => summary.allowed += record.count,
                EgressVerdict::Denied => summary.denied += record.count,
            }
            summary.bytes_sent += record.bytes_sent;
            summary.bytes_received += record.bytes_received;
        }
        (self.observer)(record);
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work)
}

/// A connection's place among those that are open.
struct Place(Arc<Shared>);

impl Place {
    /// A place; waits a moment for one.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let deadline = Instant::now() + shared.limits.place_timeout;
        // Only the accepting thread adds, so the count cannot pass the limit in between.
        while shared.active.load(Ordering::Acquire) >= shared.limits.max_connections {
            match wait(&shared.dialer.stop, [(shared.freed.as_fd(), PollFlags::IN)], deadline) {
                // Places may have been given back long ago; what counts is the count.
                Ok(Woken::Ready(_)) => drop(rustix::io::read(&shared.freed, &mut [0u8; 8])),
                _ => return None,
            }
        }
        shared.active.fetch_add(1, Ordering::AcqRel);
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
        // The only failure is a counter at its maximum, and then it is readable already.
        let _rung = rustix::io::write(&self.0.freed, &1u64.to_ne_bytes());
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut total = 0u64;
    let mut beyond: Option<EgressRecord> = None;
    while let Some(socket) = next_client(listener, shared) {
        total += 1;
        if total > shared.limits.max_total_connections {
            refuse(&socket, shared, &spent(shared.limits.max_total_connections));
            let record = beyond.get_or_insert_with(|| EgressRecord { count: 0, ..busy_record() });
            record.count += 1;
            continue;
        }
        threads.retain(|thread| !thread.is_finished());
        match serve(socket, shared) {
            Ok(thread) => threads.push(thread),
            Err(record) => shared.record(&record),
        }
    }
    for thread in threads {
        let _ended = thread.join();
    }
    if let Some(record) = beyond {
        shared.record(&record);
    }
}

/// More connections at once than there are places.
fn crowded() -> Denial {
    Denial::unreadable(
        DenialCode::TooManyConnections,
        "too many connections at once",
        "close connections that are no longer needed and try again",
    )
}

/// More connections than a run may make.
fn spent(limit: u64) -> Denial {
    Denial::unreadable(
        DenialCode::TooManyConnections,
        format!("the run has made {limit} connections, and further ones are not served"),
        "trying again does not help; do the work in several calls, or over fewer connections",
    )
}

/// Tells a client that it is not served.
fn refuse(socket: &TcpStream, shared: &Shared, denial: &Denial) {
    /// Clients speak first, and what they say tells in which protocol to answer.
    const MOMENT: Duration = Duration::from_millis(50);
    shared.note(denial);
    // However this ends, what is there by then is what is answered.
    let _woken = wait(&shared.dialer.stop, [(socket.as_fd(), PollFlags::IN)], Instant::now() + MOMENT);
    answer::busy(socket, denial);
}

fn busy_record() -> EgressRecord {
    let code = Some(DenialCode::TooManyConnections.to_string());
    EgressRecord { code, ..EgressRecord::new(EgressProtocol::Unknown, SystemClock.now()) }
}

fn serve(socket: TcpStream, shared: &Arc<Shared>) -> Result<JoinHandle<()>, Box<EgressRecord>> {
    let Some(place) = Place::take(shared) else {
        refuse(&socket, shared, &crowded());
        return Err(Box::new(busy_record()));
    };
    // The socket goes with the thread; if there is none to be had, it is closed.
    thread("egress-client", move || {
        let shared = &place.0;
        let record = client::serve(socket, shared);
        shared.record(&record);
    })
    .map_err(|_| Box::new(busy_record()))
}

/// The next connection; nothing when the proxy is to stop.
fn next_client(listener: &TcpListener, shared: &Shared) -> Option<TcpStream> {
    /// How long to wait when the host is out of descriptors or memory.
    const PAUSE: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(3600);
    loop {
        match wait(&shared.dialer.stop, [(listener.as_fd(), PollFlags::IN)], Instant::now() + LONG) {
            Ok(Woken::Ready(_)) => {}
            Ok(Woken::Timeout) => continue,
            Ok(Woken::Stopped) | Err(_) => return None,
        }
        match listener.accept() {
            Ok((socket, _)) => return Some(socket),
            Err(error) if gone(&error) => {}
            Err(_) => match wait(&shared.dialer.stop, [], Instant::now() + PAUSE) {
                Ok(Woken::Timeout) => {}
                _ => return None,
            },
        }
    }
}

/// Whether only this one connection is lost.
fn gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

#[cfg(test)]
mod tests;
