//! The daemon's side: the certificate that its servers show, and the check of those that devices bring.

use super::{TlsClock, handshake_signatures, provider};
use crate::authority::{Generation, ServerCredentials};
use crate::error::IdentityError;
use crate::identity::Identity;
use palyra_protocol::{Digest, Timestamp};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, ServerConfig};
use std::sync::{Arc, PoisonError, RwLock};

/// What the pairing listener and the device agree to speak.
pub const PAIRING_ALPN: &[u8] = b"palyra-pairing/1";
/// Under which name handshakes are counted whose caller the verifier does not know.
const HANDSHAKE: &str = "tls handshake";

/// The certificate that servers show, exchanged while they serve.
#[derive(Debug, Default)]
pub struct ServerCertificates(RwLock<Option<Arc<ShownCertificate>>>);

/// A certificate that servers show.
#[derive(Debug)]
pub(crate) struct ShownCertificate {
    /// For handshakes that ask for a name.
    named: Arc<CertifiedKey>,
    /// For the others.
    certified: Arc<CertifiedKey>,
    /// SHA-256 of the authority's certificate that signed it.
    pub(crate) authority: Digest,
    /// SHA-256 of its public key.
    key: Digest,
    pub(crate) not_after: Timestamp,
}

impl ServerCertificates {
    /// Shows other certificates from the next handshake on.
    pub(crate) fn put(
        &self,
        made: ServerCredentials,
        signer: &Generation,
        not_after: Timestamp,
    ) -> Result<(), IdentityError> {
        let ServerCredentials { named, all, key } = made;
        let key = PrivateKeyDer::from(key);
        let certified = |leaf: CertificateDer<'static>, key: PrivateKeyDer<'static>| {
            CertifiedKey::from_der(vec![leaf, signer.certificate.clone()], key, &provider())
        };
        let (named, certified) = (Arc::new(certified(named, key.clone_key())?), certified(all, key)?);
        let public = certified.key.public_key().map(|key| Digest::of(&key));
        let key =
            public.ok_or_else(|| IdentityError::Certification { what: "the key has no public half".to_owned() })?;
        let shown =
            ShownCertificate { named, certified: Arc::new(certified), authority: signer.sha256, key, not_after };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(shown));
        Ok(())
    }

    /// The certificate that is shown now.
    pub(crate) fn current(&self) -> Option<Arc<ShownCertificate>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this is the server's own key.
    pub(crate) fn has_key(&self, key: &Digest) -> bool {
        self.current().is_some_and(|shown| shown.key == *key)
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.current()?;
        Some(Arc::clone(if hello.server_name().is_some() { &shown.named } else { &shown.certified }))
    }
}

/// One certificate for as long as a listener is open.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// What the pairing listener needs: its configuration, and the key that devices will see.
#[derive(Debug, Clone)]
pub struct PairingServer {
    /// The listener's configuration.
    pub config: Arc<ServerConfig>,
    /// SHA-256 of the server's public key, which both sides bind the pairing to.
    pub server_key: Digest,
}

impl Identity {
    /// The configuration of a listener for paired devices. A new certificate of the server and every change of the
    /// registry take effect without another configuration.
    ///
    /// # Errors
    /// The TLS library refuses, which would be a bug.
    pub fn server_config(self: &Arc<Self>, alpn: &[&[u8]]) -> Result<ServerConfig, IdentityError> {
        let verifier = DeviceVerifier { hints: self.authority_subjects(), identity: Arc::clone(self) };
        let builder = ServerConfig::builder_with_details(provider(), Arc::new(TlsClock(Arc::clone(self.clock()))));
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::clone(self.server()) as Arc<dyn ResolvesServerCert>);
        never_resume(&mut config);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }

    /// The configuration of the pairing listener, with the certificate that is shown now. To be asked for whenever the
    /// listener is opened.
    ///
    /// # Errors
    /// There is no certificate to show.
    pub fn pairing_server(&self) -> Result<PairingServer, IdentityError> {
        let shown = self.server().current().ok_or(IdentityError::AuthorityNotValid)?;
        let builder = ServerConfig::builder_with_details(provider(), Arc::new(TlsClock(Arc::clone(self.clock()))));
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(FixedCertificate(Arc::clone(&shown.certified))));
        never_resume(&mut config);
        config.alpn_protocols = vec![PAIRING_ALPN.to_vec()];
        Ok(PairingServer { config: Arc::new(config), server_key: shown.key })
    }

    /// What a server tells devices about whose certificates it takes. Every generation has the same subject.
    fn authority_subjects(&self) -> Vec<DistinguishedName> {
        let state = self.registry().look();
        let newest = state.generations.last();
        newest.map(|generation| DistinguishedName::in_sequence(&generation.anchor.subject)).into_iter().collect()
    }
}

fn never_resume(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
}

/// Lets in whoever brings a certificate that we issued to a device that is not revoked.
#[derive(Debug)]
struct DeviceVerifier {
    identity: Arc<Identity>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for DeviceVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _also_sent: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.identity.verify(leaf) {
            Ok(_) => Ok(ClientCertVerified::assertion()),
            Err(refusal) => {
                self.identity.count_refusal(HANDSHAKE, refusal.code());
                Err(refusal.for_tls().into())
            }
        }
    }

    handshake_signatures!();
}
