//! TLS configurations: TLS 1.3 alone, with the key exchange and cipher suites of the library and two kinds of
//! signatures.
//!
//! Sessions are not resumed. A resumed session would skip the check of the certificate, and a device that renewed or
//! was revoked meanwhile would come in as what it was.

mod client;
mod fault;
mod pairing_client;
mod server;

pub(crate) use client::verify_server;
pub use client::{CredentialsError, DeviceCredentials, client_config};
pub use fault::ConnectionFault;
pub use pairing_client::pairing_client_config;
pub(crate) use pairing_client::presented_server;
pub use server::{PAIRING_ALPN, PairingServer, ServerCertificates};

use crate::verify;
use palyra_protocol::Clock;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{SignatureScheme, SupportedCipherSuite};
use std::sync::Arc;

/// The signatures that handshakes may have, each with its one curve and hash.
static SCHEMES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: verify::ALGORITHMS,
    mapping: &[
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki::ring::ECDSA_P256_SHA256]),
        (SignatureScheme::ECDSA_NISTP384_SHA384, &[webpki::ring::ECDSA_P384_SHA384]),
    ],
};

/// The cryptography of every connection.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| matches!(suite, SupportedCipherSuite::Tls13(_)));
    provider.signature_verification_algorithms = SCHEMES;
    Arc::new(provider)
}

/// The daemon's or device's own clock, as the TLS library asks it.
#[derive(Debug)]
struct TlsClock(Arc<dyn Clock>);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(verify::unix_time(self.0.now()))
    }
}

/// The parts of a verifier that are the same for both sides: how a handshake's signature is checked.
macro_rules! handshake_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Err(rustls::PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, certificate, signature, &crate::tls::SCHEMES)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            crate::tls::SCHEMES.supported_schemes()
        }
    };
}
pub(crate) use handshake_signatures;
