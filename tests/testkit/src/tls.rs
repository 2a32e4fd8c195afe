//! A certificate that a test's server shows, and that its client has to trust.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// A self-signed certificate and its key.
#[derive(Debug)]
pub struct TlsIdentity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl TlsIdentity {
    /// A new one for these names.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).expect("names");
        Self { certificate: params.self_signed(&key).expect("a certificate"), key }
    }

    /// The certificate.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// The certificate as text.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A server that shows it.
    #[must_use]
    pub fn server(&self) -> Arc<rustls::ServerConfig> {
        let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![self.der().clone()], key)
            .expect("a key that fits");
        Arc::new(config)
    }
}
