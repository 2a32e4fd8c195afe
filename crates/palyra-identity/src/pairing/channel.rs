//! The TLS connection that a pairing is bound to.

use super::PairingError;
use crate::tls::{PairingServer, presented_server};
use palyra_protocol::Digest;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, ServerConnection};
use std::fmt;
use zeroize::Zeroizing;

/// The label under which both sides export keying material (RFC 5705).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-palyra-pairing-v1";
/// How many bytes are exported: half for the channel identifier, half for the session.
const EXPORTED: usize = 64;

/// What both ends of one TLS connection have in common, and no other two have.
pub struct ChannelBinding {
    exported: Zeroizing<[u8; EXPORTED]>,
    server_key: Digest,
}

impl fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelBinding({}, [redacted])", self.server_key.short())
    }
}

impl ChannelBinding {
    pub(crate) fn new(exported: [u8; EXPORTED], server_key: Digest) -> Self {
        Self { exported: Zeroizing::new(exported), server_key }
    }

    /// The daemon's end of a connection that the pairing listener accepted, after the handshake.
    ///
    /// # Errors
    /// The handshake is not over.
    pub fn of_server(connection: &ServerConnection, server: &PairingServer) -> Result<Self, PairingError> {
        let exported = connection.export_keying_material([0; EXPORTED], EXPORTER_LABEL, None);
        Ok(Self::new(exported.map_err(|_| PairingError::Channel)?, server.server_key))
    }

    pub(crate) fn exporter(&self) -> &[u8] {
        &self.exported[..EXPORTED / 2]
    }

    pub(crate) fn session(&self) -> &[u8] {
        &self.exported[EXPORTED / 2..]
    }

    pub(crate) fn server_key(&self) -> Digest {
        self.server_key
    }
}

/// The device's end of a connection: the binding, and the certificate that the server showed.
#[derive(Debug)]
pub struct DeviceChannel {
    pub(crate) binding: ChannelBinding,
    pub(crate) server: CertificateDer<'static>,
}

impl DeviceChannel {
    /// The device's end of a connection with [`crate::pairing_client_config`], after the handshake.
    ///
    /// # Errors
    /// The handshake is not over.
    pub fn of_client(connection: &ClientConnection) -> Result<Self, PairingError> {
        let server = connection.peer_certificates().and_then(<[_]>::first).ok_or(PairingError::Channel)?;
        let (_zone, server_key) = presented_server(server).ok_or(PairingError::Channel)?;
        let exported = connection.export_keying_material([0; EXPORTED], EXPORTER_LABEL, None);
        let binding = ChannelBinding::new(exported.map_err(|_| PairingError::Channel)?, server_key);
        Ok(Self { binding, server: server.clone().into_owned() })
    }
}
