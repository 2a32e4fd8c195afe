//! A device's side of a pairing connection, before it trusts anybody.
//!
//! With a QR code the device knows the authority's fingerprint and demands it. With a PIN it knows nothing: it accepts
//! whatever certificate the other side holds the key of, and the PAKE that follows finds out who that is. Nothing but
//! the pairing protocol may ever run over such a connection.

use super::client::verify_server;
use super::fault::ConnectionFault;
use super::server::PAIRING_ALPN;
use super::{TlsClock, handshake_signatures, provider};
use crate::authority::AuthorityCertificate;
use crate::device_key::PublicKey;
use crate::names::Zone;
use crate::refusal::CertificateRefusal;
use palyra_protocol::{Clock, Digest};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

/// The configuration of a pairing connection. `authority` is the fingerprint from a QR code; without one the connection
/// proves nothing until the pairing protocol has.
///
/// # Errors
/// The TLS library refuses, which would be a bug.
pub fn pairing_client_config(authority: Option<Digest>, clock: Arc<dyn Clock>) -> Result<ClientConfig, rustls::Error> {
    let verifier = Arc::new(PairingVerifier { authority, clock: Arc::clone(&clock) });
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(TlsClock(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![PAIRING_ALPN.to_vec()];
    Ok(config)
}

/// Demands an authority where one is known, and possession of the key always.
#[derive(Debug)]
struct PairingVerifier {
    authority: Option<Digest>,
    clock: Arc<dyn Clock>,
}

impl PairingVerifier {
    fn verify(&self, leaf: &CertificateDer<'_>, also_sent: &[CertificateDer<'_>]) -> Result<(), ConnectionFault> {
        let malformed = || ConnectionFault::foreign(&CertificateRefusal::Malformed);
        let (zone, _key) = presented_server(leaf).ok_or_else(malformed)?;
        let Some(expected) = self.authority else { return Ok(()) };
        let fits = also_sent.iter().find(|sent| Digest::of(sent) == expected);
        let authority = fits.ok_or_else(|| ConnectionFault::AuthorityChanged {
            known: vec![expected],
            presented: also_sent.first().map(|sent| Digest::of(sent)),
        })?;
        let authority = AuthorityCertificate::read(authority).map_err(|_| malformed())?;
        verify_server(leaf, &[authority], &zone, self.clock.now(), Some(expected))
    }
}

impl ServerCertVerifier for PairingVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        also_sent: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(leaf, also_sent).map_err(ConnectionFault::into_tls)?;
        Ok(ServerCertVerified::assertion())
    }

    handshake_signatures!();
}

/// The zone that a server's certificate names, and SHA-256 of its public key. Whether it may, is not asked here.
pub(crate) fn presented_server(leaf: &CertificateDer<'_>) -> Option<(Zone, Digest)> {
    let (rest, certificate) = x509_parser::parse_x509_certificate(leaf).ok()?;
    let key = PublicKey::read(certificate.public_key().raw).ok()?;
    let common_name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    let zone = common_name.parse().ok()?;
    rest.is_empty().then(|| (zone, key.digest()))
}
