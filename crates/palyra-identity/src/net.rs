//! TLS over sockets that do not block: what the daemon accepts, and what a device opens.
//!
//! The configurations are those of `tls`; here they meet a socket. Nothing here waits for ever by itself: callers bound
//! the time.

use crate::error::IdentityError;
use crate::identity::{ConnectedDevice, Identity};
use crate::pairing::{ChannelBinding, PairingError};
use crate::refusal::CertificateRefusal;
use crate::tls::{ConnectionFault, DeviceCredentials, PairingServer, client_config};
use palyra_protocol::Clock;
use rustls::{ClientConnection, ServerConnection};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The daemon's end of a connection.
pub type ServerStream<S> = tokio_rustls::server::TlsStream<S>;

/// Why a handshake failed, on the daemon's side.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeFault {
    /// The connection failed, or what came was no handshake.
    #[error("the handshake failed")]
    Tls(#[from] io::Error),
    /// The certificate does not stand any more.
    #[error(transparent)]
    Certificate(#[from] CertificateRefusal),
}

impl HandshakeFault {
    /// What to count; none for a certificate that the verifier has counted already.
    #[must_use]
    pub fn counted(&self) -> Option<&'static str> {
        let error = match self {
            Self::Certificate(refusal) => return Some(refusal.code()),
            Self::Tls(error) => error,
        };
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        Some(match tls {
            Some(rustls::Error::InvalidCertificate(_)) => return None,
            Some(rustls::Error::NoCertificatesPresented) => "certificate_missing",
            Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => "tls_incompatible",
            Some(rustls::Error::AlertReceived(_)) => "tls_refused_by_device",
            Some(_) => "not_tls",
            None if error.kind() == ErrorKind::UnexpectedEof => "handshake_truncated",
            None => "handshake_broken_off",
        })
    }
}

/// A device that the daemon's listener let in.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The device, from its certificate.
    pub device: ConnectedDevice,
    /// The protocol that both sides agreed on; none where the device named none.
    pub alpn: Option<Vec<u8>>,
    /// The connection.
    pub stream: ServerStream<S>,
}

/// Accepts paired devices.
#[derive(Clone)]
pub struct DeviceAcceptor {
    identity: Arc<Identity>,
    tls: TlsAcceptor,
}

impl std::fmt::Debug for DeviceAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceAcceptor").finish()
    }
}

impl DeviceAcceptor {
    /// An acceptor of connections that speak one of these protocols.
    ///
    /// # Errors
    /// The TLS library refuses, which would be a bug.
    pub fn new(identity: &Arc<Identity>, alpn: &[&[u8]]) -> Result<Self, IdentityError> {
        let tls = TlsAcceptor::from(Arc::new(identity.server_config(alpn)?));
        Ok(Self { identity: Arc::clone(identity), tls })
    }

    /// The daemon's identity.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Runs the handshake.
    ///
    /// # Errors
    /// The peer is no device that is let in.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: S) -> Result<Accepted<S>, HandshakeFault> {
        let stream = self.tls.accept(socket).await?;
        let connection: &ServerConnection = stream.get_ref().1;
        let device = self.identity.connected(connection.peer_certificates())?;
        let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Accepted { device, alpn, stream })
    }
}

/// Accepts devices that want to be paired.
#[derive(Clone)]
pub struct PairingAcceptor {
    server: PairingServer,
    tls: TlsAcceptor,
}

impl std::fmt::Debug for PairingAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PairingAcceptor").finish()
    }
}

impl PairingAcceptor {
    /// An acceptor that shows one certificate for as long as it is used.
    #[must_use]
    pub fn new(server: PairingServer) -> Self {
        let tls = TlsAcceptor::from(Arc::clone(&server.config));
        Self { server, tls }
    }

    /// Runs the handshake: the connection, and what a pairing over it is bound to.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> Result<(ServerStream<S>, ChannelBinding), PairingError> {
        let stream = self.tls.accept(socket).await?;
        let binding = ChannelBinding::of_server(stream.get_ref().1, &self.server)?;
        Ok((stream, binding))
    }
}

/// A device's end of a connection that the daemon has accepted.
#[derive(Debug)]
pub struct ClientStream<S> {
    tls: tokio_rustls::client::TlsStream<S>,
    /// What the daemon said before anybody asked: read to see whether it lets this device in.
    first: Vec<u8>,
}

/// Connects a paired device: runs the handshake, and waits for the daemon's first words.
///
/// In TLS 1.3 a device's handshake is over before the daemon has looked at its certificate. The daemon speaks first on
/// every protocol that is agreed on here, so its first words say that the device is let in; a refusal comes in their
/// place.
///
/// # Errors
/// The daemon is another one, does not let this device in, or cannot be spoken with. [`ConnectionFault::of`] tells
/// which.
pub async fn connect_device<S: AsyncRead + AsyncWrite + Unpin>(
    credentials: &Arc<DeviceCredentials>,
    clock: Arc<dyn Clock>,
    alpn: &[u8],
    socket: S,
) -> io::Result<ClientStream<S>> {
    let config = client_config(credentials, clock, &[alpn]).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut tls = connector.connect(credentials.zone().server_name(), socket).await?;
    let mut room = [0; 512];
    let mut buffer = ReadBuf::new(&mut room);
    poll_fn(|context| Pin::new(&mut tls).poll_read(context, &mut buffer)).await?;
    if buffer.filled().is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let connection: &ClientConnection = tls.get_ref().1;
    if connection.alpn_protocol() != Some(alpn) {
        return Err(io::Error::other(ConnectionFault::NotTheDaemon));
    }
    Ok(ClientStream { first: buffer.filled().to_vec(), tls })
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let fits = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..fits]);
            self.first.drain(..fits);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.tls).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }
}
