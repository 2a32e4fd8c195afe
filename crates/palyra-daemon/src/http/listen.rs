//! Connections: taken on loopback, held to their limits, and brought to their end when the daemon ends.
//!
//! Whoever is on this machine can connect, so nothing here waits for a client for ever: a head that does not come, a
//! body that does not come, an answer that is not read each have their time, and [`Guests`] keeps their number.

use super::error_responses::ErrorResponses;
use super::guests::{Guests, Room};
use super::site::Site;
use super::{Door, router};
use crate::doors::Doors;
use crate::ending::DRAIN;
use hyper::server::conn::http1 as hyper_http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The port when the configuration names none.
pub(crate) const DEFAULT_PORT: u16 = 7142;
/// How long a request's head may take, counted from when it could begin: also how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(20);
/// How long an answer may wait to be read.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(30);
/// How large a request's head may be.
pub(crate) const MAX_HEAD: usize = 32 << 10;
/// How many headers a request may have.
const MAX_HEADERS: usize = 64;
/// Where callers find the address.
const ADDRESS_FILE: &str = "http.url";

/// Why the door does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The port that was asked for is somebody else's.
    #[error(
        "port {port} on 127.0.0.1 is in use, so the HTTP door cannot open; end what listens there, or choose another \
         `port` in `[http]` of the configuration (0 for any free one)"
    )]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The host failed.
    #[error("the HTTP door cannot open: {0}")]
    Io(#[from] std::io::Error),
    /// A bug.
    #[error("the HTTP door cannot describe itself: {0}")]
    Description(#[from] serde_json::Error),
}

/// Which port to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// The default one; any free one if another daemon has it.
    Default,
    /// This one and no other; 0 for any free one.
    This(u16),
}

/// The open door.
#[derive(Debug)]
pub(crate) struct Listening {
    door: Door,
    connections: TaskTracker,
    address: SocketAddr,
    address_file: PathBuf,
}

/// Takes the port.
fn bind(port: Port) -> Result<StdListener, HttpError> {
    let take = |port| StdListener::bind((Ipv4Addr::LOCALHOST, port));
    let (wanted, taken) = match port {
        Port::Default => (DEFAULT_PORT, take(DEFAULT_PORT)),
        Port::This(port) => (port, take(port)),
    };
    let listener = match taken {
        Ok(listener) => listener,
        Err(error) if error.kind() == ErrorKind::AddrInUse && port == Port::Default => {
            tracing::warn!("port {DEFAULT_PORT} is in use, so the HTTP door takes another; `palyra status` shows it");
            take(0)?
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(HttpError::PortInUse { port: wanted }),
        Err(error) => return Err(error.into()),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Listening {
    /// Opens the door, and says in the state directory where it is.
    pub(crate) fn open(doors: Doors, port: Port, state_dir: &Path) -> Result<Self, HttpError> {
        let listener = TcpListener::from_std(bind(port)?)?;
        let address = listener.local_addr()?;
        let door = Door::new(doors, Site::Loopback(address.port()))?;
        let address_file = state_dir.join(ADDRESS_FILE);
        // A convenience: `palyra status` says the same, and a full disk must not keep anybody from asking it.
        if let Err(error) = std::fs::write(&address_file, format!("http://{address}\n")) {
            tracing::warn!(%error, file = %address_file.display(), "the HTTP door's address could not be written down");
        }
        let connections = TaskTracker::new();
        let room = Room::within(getrlimit(Resource::Nofile).current);
        let serving =
            Serving { closing: door.closing.clone(), router: router(door.clone()), guests: Guests::new(room) };
        tokio::spawn(accept(listener, serving, connections.clone()));
        tracing::info!(%address, "the HTTP door is open");
        Ok(Self { door, connections, address, address_file })
    }

    /// Where the door is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes no more connections, and answers whoever waits for a person.
    pub(crate) fn close(&self) {
        self.door.closing.cancel();
        self.connections.close();
        if let Err(error) = std::fs::remove_file(&self.address_file) {
            tracing::debug!(%error, "the address was gone");
        }
    }

    /// Waits until the last answers have gone out.
    pub(crate) async fn drained(&self) {
        if tokio::time::timeout(DRAIN, self.connections.wait()).await.is_err() {
            tracing::warn!(left = self.connections.len(), "connections were cut off at the end");
        }
    }
}

/// What every connection is served with.
#[derive(Clone)]
struct Serving {
    router: axum::Router,
    guests: Guests,
    closing: CancellationToken,
}

async fn accept(listener: TcpListener, serving: Serving, connections: TaskTracker) {
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = serving.closing.cancelled() => return,
        };
        match taken {
            Ok((stream, _)) => drop(connections.spawn(serve(stream, serving.clone()))),
            Err(error) => {
                // Out of descriptors, most likely: an idle connection makes room, and others do when they end.
                tracing::warn!(%error, "a connection could not be taken");
                serving.guests.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// HTTP/1.1 with this door's limits.
pub(crate) fn http1() -> hyper_http1::Builder {
    let mut builder = hyper_http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    builder
}

/// One connection, to its end.
async fn serve(stream: TcpStream, serving: Serving) {
    let Serving { router, guests, closing } = serving;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME));
    let guest = guests.welcome();
    let service = TowerToHyperService::new(router);
    let here = Arc::clone(&guest);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Arc::clone(&here));
        service.call(request)
    });
    let connection = http1().serve_connection(TokioIo::new(ErrorResponses::new(Box::pin(stream))), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        // Nobody who makes room for others is waited for.
        () = guest.dismissed() => return,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended early");
    }
}
