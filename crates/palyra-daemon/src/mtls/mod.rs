//! The remote door: everything that crosses the network, under mutual TLS from the daemon's own authority.
//!
//! [`listen`] accepts paired devices and holds their connections to limits; [`serve`] hands their requests to the same
//! gRPC services and HTTP door that this machine uses. [`pairing`] is a listener of its own, open only while a pairing
//! code lives.
//!
//! A device is known by its certificate alone. No header, no token and no address says who it is.

mod half_open;
mod listen;
mod pairing;
mod places;
mod serve;

use crate::config::RemoteConfig;
use crate::doors::Doors;
use crate::ending::DRAIN;
use crate::grpc::Services;
use crate::http::HttpError;
use palyra_engine::{EngineError, ErrorKind, Exposed, PairingOrder, VerifiedPeer};
use palyra_identity::Host;
use palyra_identity::pairing::{Address, CodeId, NewCode};
use palyra_protocol::Problem;
use serde::Serialize;
use std::io::ErrorKind as IoErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

/// Why the door does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The port is somebody else's.
    #[error(
        "`{address}` is in use, so the door for paired devices cannot open; end what listens there, or choose another \
         `listen` in `[remote]` of the configuration"
    )]
    InUse {
        /// Where.
        address: SocketAddr,
    },
    /// The host failed.
    #[error("the door for paired devices cannot open at `{address}`: {source}")]
    Io {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The HTTP side of it failed.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// The door for paired devices, for those who do not keep it open.
#[derive(Debug)]
pub(crate) struct WeakRemoteDoor(Weak<Inner>);

impl WeakRemoteDoor {
    pub(crate) fn upgrade(&self) -> Option<RemoteDoor> {
        self.0.upgrade().map(|inner| RemoteDoor { inner })
    }
}

/// The door for paired devices. Cloning gives another handle to the same one.
#[derive(Debug, Clone)]
pub(crate) struct RemoteDoor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    doors: Doors,
    config: Option<RemoteConfig>,
    address: Option<SocketAddr>,
    listener: Mutex<Option<StdListener>>,
    pairing: Option<pairing::PairingDoor>,
    connections: TaskTracker,
}

/// What is exposed to whom.
#[derive(Debug, Serialize)]
pub(crate) struct Exposure {
    /// Where the door is; none when it is closed.
    address: Option<SocketAddr>,
    /// Whether only this machine reaches it.
    loopback_only: bool,
    /// Where the pairing listener is while it is open.
    pairing_address: Option<SocketAddr>,
    /// The hosts that devices reach the daemon at.
    hosts: Vec<Host>,
    /// Who could come in.
    devices: Exposed,
}

/// A code that was made, and where devices use it.
#[derive(Debug)]
pub(crate) struct ShownCode {
    pub(crate) code: NewCode,
    pub(crate) addresses: Vec<String>,
    pub(crate) loopback_only: bool,
}

impl RemoteDoor {
    /// Takes the port. Nobody is let in before [`RemoteDoor::open`].
    pub(crate) fn bind(doors: Doors, config: Option<RemoteConfig>) -> Result<Self, RemoteError> {
        let listener = config.as_ref().map(bind).transpose()?;
        let address = match &listener {
            Some((listener, wanted)) => {
                Some(listener.local_addr().map_err(|source| RemoteError::Io { address: *wanted, source })?)
            }
            None => None,
        };
        let connections = TaskTracker::new();
        let pairing = address.map(|at| pairing::PairingDoor::new(doors.clone(), after(at), connections.clone()));
        let listener = Mutex::new(listener.map(|(listener, _)| listener));
        Ok(Self { inner: Arc::new(Inner { doors, config, address, listener, pairing, connections }) })
    }

    pub(crate) fn downgrade(&self) -> WeakRemoteDoor {
        WeakRemoteDoor(Arc::downgrade(&self.inner))
    }

    /// Lets devices in.
    pub(crate) fn open(&self, services: Services) -> Result<(), RemoteError> {
        let taken = self.inner.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(listener), Some(address)) = (taken, self.inner.address) else { return Ok(()) };
        let failed = |source| RemoteError::Io { address, source };
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let service = serve::DeviceService::new(&self.inner.doors, services)?;
        let serving = listen::Serving::new(self.inner.doors.clone(), service, self.inner.connections.clone());
        tokio::spawn(listen::accept(listener, serving));
        tracing::info!(%address, "paired devices are let in");
        Ok(())
    }

    /// Where the door is; none when it is closed.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.inner.address
    }

    /// Waits until the last answers have gone out.
    pub(crate) async fn drained(&self) {
        self.inner.connections.close();
        if tokio::time::timeout(DRAIN, self.inner.connections.wait()).await.is_err() {
            tracing::warn!(left = self.inner.connections.len(), "devices were cut off at the end");
        }
    }

    /// What is exposed to whom.
    ///
    /// # Errors
    /// The peer may not know.
    pub(crate) async fn exposure(&self, peer: &VerifiedPeer) -> Result<Exposure, EngineError> {
        let devices = self.inner.doors.engine.exposed(peer).await?;
        let open = self.inner.pairing.as_ref().filter(|pairing| pairing.is_open());
        Ok(Exposure {
            address: self.inner.address,
            loopback_only: self.loopback_only(),
            pairing_address: open.map(pairing::PairingDoor::address),
            hosts: self.inner.config.as_ref().map_or_else(Vec::new, |config| config.hosts.clone()),
            devices,
        })
    }

    /// Makes a pairing code, and opens the pairing listener for it.
    ///
    /// # Errors
    /// The peer may not, devices cannot come in at all, or the listener cannot open.
    pub(crate) async fn create_code(
        &self,
        peer: &VerifiedPeer,
        mut order: PairingOrder,
        qr: Option<Option<Host>>,
    ) -> Result<ShownCode, EngineError> {
        let engine = &self.inner.doors.engine;
        engine.may_pair(peer)?;
        let (Some(address), Some(pairing)) = (self.inner.address, &self.inner.pairing) else { return Err(closed()) };
        let hosts = self.hosts(address);
        if let Some(host) = qr {
            let host = host.or_else(|| hosts.first().cloned()).ok_or_else(closed)?;
            order.address = Some(at(&host, pairing.address().port()).parse::<Address>().map_err(|_| closed())?);
        }
        let code = engine.create_pairing_code(peer, order).await?;
        if let Err(error) = pairing.ensure_open().await {
            engine.withdraw_pairing_code(peer, code.id).await?;
            return Err(error);
        }
        let addresses = hosts.iter().map(|host| at(host, address.port())).collect();
        Ok(ShownCode { code, addresses, loopback_only: self.loopback_only() })
    }

    /// Withdraws a pairing code; tells whether it lived.
    ///
    /// # Errors
    /// The peer may not.
    pub(crate) async fn withdraw_code(&self, peer: &VerifiedPeer, code: CodeId) -> Result<bool, EngineError> {
        let lived = self.inner.doors.engine.withdraw_pairing_code(peer, code).await?;
        if let Some(pairing) = &self.inner.pairing {
            pairing.look_again();
        }
        Ok(lived)
    }

    fn loopback_only(&self) -> bool {
        self.inner.address.is_none_or(|address| address.ip().is_loopback())
    }

    /// The hosts to tell people, the likeliest first.
    fn hosts(&self, address: SocketAddr) -> Vec<Host> {
        let configured = self.inner.config.as_ref().map_or_else(Vec::new, |config| config.hosts.clone());
        if !configured.is_empty() {
            return configured;
        }
        let ip = if address.ip().is_unspecified() { outward(address.ip()) } else { address.ip() };
        vec![Host::Address(ip)]
    }
}

/// Why a token means nothing on a device's connection.
pub(crate) fn token_of_a_device() -> Problem {
    Problem::new(
        "token_of_a_device",
        "a paired device speaks by its certificate; a token says nothing here",
        "leave the token out, or use it on the daemon's own machine",
    )
}

fn closed() -> EngineError {
    let hint = "set `enabled = true` in `[remote]` of the configuration";
    let problem = Problem::new("remote_closed", "the door for paired devices is closed", hint);
    EngineError::new(ErrorKind::Conflict, problem)
}

/// The pairing listener's address: the port after the door's.
fn after(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port().saturating_add(1))
}

/// A host and a port, as they are typed.
fn at(host: &Host, port: u16) -> String {
    match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

/// The address by which this machine reaches others; nothing is sent to find it.
fn outward(listening: IpAddr) -> IpAddr {
    let (own, anybody) = match listening {
        IpAddr::V4(_) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from([192, 0, 2, 1])),
        IpAddr::V6(_) => (IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1_u16])),
    };
    let found = UdpSocket::bind((own, 0)).and_then(|socket| {
        socket.connect((anybody, 9))?;
        socket.local_addr()
    });
    found.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// Takes the port that is configured; where nobody asked for one, any free one will do.
fn bind(config: &RemoteConfig) -> Result<(StdListener, SocketAddr), RemoteError> {
    let address = config.listen;
    let bound = if address.port() == 0 { free_pair(address.ip()) } else { StdListener::bind(address) };
    let taken = match bound {
        Err(error) if error.kind() == IoErrorKind::AddrInUse && config.any_port_will_do => {
            tracing::warn!("`{address}` is in use, so paired devices use another port; `palyra status` shows it");
            free_pair(address.ip())
        }
        taken => taken,
    };
    match taken {
        Ok(listener) => Ok((listener, address)),
        Err(error) if error.kind() == IoErrorKind::AddrInUse => Err(RemoteError::InUse { address }),
        Err(source) => Err(RemoteError::Io { address, source }),
    }
}

/// A free port whose neighbour is free as well: pairing will need it.
fn free_pair(ip: IpAddr) -> std::io::Result<StdListener> {
    const TRIES: usize = 32;
    let mut last = IoErrorKind::AddrInUse.into();
    for _ in 0..TRIES {
        let listener = StdListener::bind((ip, 0))?;
        match listener.local_addr().and_then(|address| StdListener::bind(after(address))) {
            Ok(_) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_typed() {
        assert_eq!(at(&"home.lan".parse().unwrap(), 7443), "home.lan:7443");
        assert_eq!(at(&"fd00::1".parse().unwrap(), 7444), "[fd00::1]:7444");
        assert!(at(&"fd00::1".parse().unwrap(), 7444).parse::<Address>().is_ok());
    }

    #[test]
    fn a_port_that_nobody_asked_for_may_be_another() {
        let other = StdListener::bind("127.0.0.1:0").unwrap();
        let listen = other.local_addr().unwrap();
        let config = RemoteConfig { listen, any_port_will_do: true, hosts: vec![] };
        let (listener, _) = bind(&config).unwrap();
        assert_ne!(listener.local_addr().unwrap(), listen);
        let asked_for = RemoteConfig { any_port_will_do: false, ..config };
        assert!(matches!(bind(&asked_for), Err(RemoteError::InUse { .. })));
    }
}
