//! Accepting paired devices: a handshake that does not come is not waited for, and a connection ends with its device's
//! rights.

use super::half_open::{HalfOpen, Place};
use super::places::Places;
use super::serve::DeviceService;
use crate::doors::Doors;
use palyra_engine::{Engine, EngineError};
use palyra_identity::{Accepted, DeviceAcceptor, Identity};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

/// What devices may speak: gRPC and HTTP over HTTP/2, HTTP/1.1, and MCP line by line.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", palyra_api::MCP_PROTOCOL];
/// How many connections may be in the middle of a handshake.
const MAX_HANDSHAKES: usize = 256;
/// How long a handshake may take.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long nothing is accepted after accepting failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What every connection is served with.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    doors: Doors,
    service: DeviceService,
    connections: TaskTracker,
    half_open: HalfOpen,
    places: Places,
    acceptor: Arc<OnceLock<DeviceAcceptor>>,
}

impl Serving {
    pub(super) fn new(doors: Doors, service: DeviceService, connections: TaskTracker) -> Self {
        let half_open = HalfOpen::new(MAX_HANDSHAKES);
        Self { doors, service, connections, half_open, places: Places::default(), acceptor: Arc::default() }
    }

    /// What runs handshakes. The first device to come has the identity opened, and made where there is none.
    async fn acceptor(&self, engine: &Engine) -> Result<&DeviceAcceptor, EngineError> {
        if let Some(acceptor) = self.acceptor.get() {
            return Ok(acceptor);
        }
        let open = engine.open_devices().await?;
        let acceptor = DeviceAcceptor::new(open.identity(), &PROTOCOLS)?;
        Ok(self.acceptor.get_or_init(|| acceptor))
    }
}

/// Accepts until the daemon ends.
pub(super) async fn accept(listener: TcpListener, serving: Serving) {
    let closing = serving.doors.ending.closing().clone();
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = closing.cancelled() => return,
        };
        match taken {
            Ok((stream, from)) => {
                let place = serving.half_open.enter();
                drop(serving.connections.spawn(connection(stream, from, place, serving.clone())));
            }
            Err(error) => {
                // Out of descriptors, most likely: others must end first.
                tracing::warn!(%error, "a device's connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One connection, to its end.
async fn connection(stream: TcpStream, from: SocketAddr, place: Place, serving: Serving) {
    let engine = &serving.doors.engine;
    let acceptor = match serving.acceptor(engine).await {
        Ok(acceptor) => acceptor,
        Err(error) => {
            tracing::debug!(code = error.problem.code, "no device is let in");
            return;
        }
    };
    let source = from.ip().to_string();
    let Some(accepted) = handshake(acceptor, stream, &source, &place).await else { return };
    // It has shown who it is: the place is for the next.
    drop(place);
    let Some(_place) = serving.places.enter(accepted.device.device_id()) else {
        acceptor.identity().count_refusal(&source, "too_many_connections");
        return;
    };
    Box::pin(serving.service.serve(accepted, &serving.doors)).await;
}

/// Runs a handshake, and counts one that fails.
async fn handshake(
    acceptor: &DeviceAcceptor,
    stream: TcpStream,
    source: &str,
    place: &Place,
) -> Option<Accepted<TcpStream>> {
    let identity: &Identity = acceptor.identity();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
    }
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)) => shaken,
        () = place.dismissed() => {
            identity.count_refusal(source, "handshake_made_room");
            return None;
        }
    };
    let code = match shaken {
        Ok(Ok(accepted)) => return Some(accepted),
        Ok(Err(fault)) => fault.counted(),
        Err(_) => Some("handshake_too_slow"),
    };
    if let Some(code) = code {
        identity.count_refusal(source, code);
    }
    None
}
