//! A paired device's side: it trusts the authority it was paired with and nobody else, and shows its certificate.

use super::fault::ConnectionFault;
use super::{TlsClock, handshake_signatures, provider};
use crate::authority::AuthorityCertificate;
use crate::device_key::DeviceKey;
use crate::names::Zone;
use crate::refusal::CertificateRefusal;
use crate::verify;
use palyra_protocol::signing::SignatureError;
use palyra_protocol::{Clock, ConsoleKey, ConsoleSignature, Digest, Timestamp};
use rustls::SignatureScheme;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ResolvesClientCert, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};
use webpki::{EndEntityCert, KeyUsage};

/// What a device shows and whom it trusts, exchanged when it renews: connections made from then on use the new.
#[derive(Debug)]
pub struct DeviceCredentials {
    zone: Zone,
    held: RwLock<Held>,
}

#[derive(Debug, Clone)]
struct Held {
    certified: Arc<CertifiedKey>,
    key: Arc<DeviceKey>,
    authorities: Arc<[AuthorityCertificate]>,
}

/// What a device was given cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A certificate of the authority.
    #[error("a certificate of the authority cannot be used: it {0}")]
    Authority(&'static str),
    /// There is no certificate of the authority.
    #[error("there is no certificate of the authority")]
    NoAuthority,
    /// The device's own certificate or key.
    #[error("the device's certificate and key cannot be used")]
    Own(#[from] rustls::Error),
    /// The device's key cannot be kept.
    #[error("the device's key is of another kind than pairing makes")]
    Key,
}

impl CredentialsError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "device_credentials"
    }
}

impl Held {
    fn new(
        certificate: &CertificateDer<'_>,
        key: &DeviceKey,
        authorities: &[CertificateDer<'_>],
    ) -> Result<Self, CredentialsError> {
        let chain = vec![certificate.clone().into_owned()];
        let certified = CertifiedKey::from_der(chain, key.for_tls(), &provider())?;
        let authorities = authorities.iter().map(AuthorityCertificate::read);
        let authorities: Arc<[_]> = authorities.collect::<Result<_, _>>().map_err(CredentialsError::Authority)?;
        if authorities.is_empty() {
            return Err(CredentialsError::NoAuthority);
        }
        let own = DeviceKey::from_secret(&key.to_secret()).map_err(|_| CredentialsError::Key)?;
        Ok(Self { certified: Arc::new(certified), key: Arc::new(own), authorities })
    }
}

impl DeviceCredentials {
    /// What pairing or a renewal gave.
    ///
    /// # Errors
    /// The certificate does not fit the key, or an authority is none.
    pub fn new(
        zone: Zone,
        certificate: &CertificateDer<'_>,
        key: &DeviceKey,
        authorities: &[CertificateDer<'_>],
    ) -> Result<Arc<Self>, CredentialsError> {
        let held = RwLock::new(Held::new(certificate, key, authorities)?);
        Ok(Arc::new(Self { zone, held }))
    }

    /// What a renewal gave: for every connection that is made from now on.
    ///
    /// # Errors
    /// As for [`DeviceCredentials::new`]; what was there before is then still in use.
    pub fn replace(
        &self,
        certificate: &CertificateDer<'_>,
        key: &DeviceKey,
        authorities: &[CertificateDer<'_>],
    ) -> Result<(), CredentialsError> {
        let held = Held::new(certificate, key, authorities)?;
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(())
    }

    /// Signs what a person decides on this device, with its key.
    ///
    /// # Errors
    /// The key is of another kind than pairing makes.
    pub fn sign(&self, digest: &Digest) -> Result<(ConsoleKey, ConsoleSignature), SignatureError> {
        self.held().key.sign(digest)
    }

    /// The daemon's zone: the server name that a connection asks for.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    fn held(&self) -> Held {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The configuration of a paired device's connections. Connect to any address of the daemon and ask for
/// `credentials.zone().server_name()`. What fails is told by [`ConnectionFault::of`].
///
/// # Errors
/// The TLS library refuses, which would be a bug.
pub fn client_config(
    credentials: &Arc<DeviceCredentials>,
    clock: Arc<dyn Clock>,
    alpn: &[&[u8]],
) -> Result<ClientConfig, rustls::Error> {
    let verifier = Arc::new(DaemonVerifier { credentials: Arc::clone(credentials), clock: Arc::clone(&clock) });
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(TlsClock(clock)))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::clone(credentials) as Arc<dyn ResolvesClientCert>);
    config.resumption = Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

impl ResolvesClientCert for DeviceCredentials {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.held().certified)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Accepts the server's certificate of the one daemon that the device was paired with.
#[derive(Debug)]
struct DaemonVerifier {
    credentials: Arc<DeviceCredentials>,
    clock: Arc<dyn Clock>,
}

impl ServerCertVerifier for DaemonVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        also_sent: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let held = self.credentials.held();
        let presented = also_sent.first().map(|authority| Digest::of(authority));
        // Whatever address was connected to, the daemon answers with its zone.
        verify_server(leaf, &held.authorities, &self.credentials.zone, self.clock.now(), presented)
            .map_err(ConnectionFault::into_tls)?;
        Ok(ServerCertVerified::assertion())
    }

    handshake_signatures!();
}

/// Checks a server's certificate against the authorities that are known.
pub(crate) fn verify_server(
    leaf: &CertificateDer<'_>,
    authorities: &[AuthorityCertificate],
    zone: &Zone,
    now: Timestamp,
    presented: Option<Digest>,
) -> Result<(), ConnectionFault> {
    let malformed = || ConnectionFault::foreign(&CertificateRefusal::Malformed);
    let entity = EndEntityCert::try_from(leaf).map_err(|_| malformed())?;
    let valid: Vec<_> = authorities.iter().filter(|a| a.not_before <= now && now < a.not_after).collect();
    if valid.is_empty() {
        let from = authorities.iter().map(|a| a.not_before).min().unwrap_or(now);
        let until = authorities.iter().map(|a| a.not_after).max().unwrap_or(now);
        return Err(ConnectionFault::WrongClock { now, from, until });
    }
    let anchors: Vec<_> = valid.iter().map(|authority| authority.anchor.clone()).collect();
    if let Err(error) = verify::verify_path(&entity, &anchors, now, KeyUsage::server_auth()) {
        return Err(match verify::refusal(&error, now) {
            CertificateRefusal::Expired { .. } | CertificateRefusal::NotYetValid { .. } => {
                let (from, until) = validity(leaf).ok_or_else(malformed)?;
                ConnectionFault::WrongClock { now, from, until }
            }
            CertificateRefusal::ForeignAuthority | CertificateRefusal::Signature => {
                let known = authorities.iter().map(|authority| authority.sha256).collect();
                ConnectionFault::AuthorityChanged { known, presented }
            }
            refusal => ConnectionFault::foreign(&refusal),
        });
    }
    entity
        .verify_is_valid_for_subject_name(&zone.server_name())
        .map_err(|_| ConnectionFault::foreign(&CertificateRefusal::Name))
}

fn validity(leaf: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(leaf).ok()?;
    let validity = certificate.validity();
    Some((crate::authority::timestamp(validity.not_before), crate::authority::timestamp(validity.not_after)))
}
