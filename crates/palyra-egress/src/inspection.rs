//! The authority that speaks for bound hosts inside one sandbox.
//!
//! It is made for one run, from keys that are never written anywhere. Its certificate is limited to the bound hosts
//! (RFC 5280, name constraints): whoever got hold of it could speak for nothing else, and to nobody but the processes
//! of that run, who alone are told to trust it.

use super::host::Host;
use palyra_protocol::{Clock as _, SystemClock};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long its certificates hold: a run is over long before.
const LIFE: Duration = Duration::from_secs(2 * 24 * 3600);
/// How far they begin before now, for clocks that are slow.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made for `{host}`: {reason}")]
pub struct InspectionError {
    host: String,
    reason: String,
}

/// Speaks for the bound hosts.
pub struct InspectionAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Vec<u8>,
    configs: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl fmt::Debug for InspectionAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InspectionAuthority").finish_non_exhaustive()
    }
}

fn failed(host: &str) -> impl Fn(&dyn fmt::Display) -> InspectionError + '_ {
    move |reason| InspectionError { host: host.to_owned(), reason: reason.to_string() }
}

fn dated(mut params: CertificateParams) -> CertificateParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_millis(SystemClock.now().unix_ms());
    params.not_before = now - BACKDATED;
    params.not_after = now + LIFE;
    params
}

impl InspectionAuthority {
    /// Makes one for these hosts and no others.
    ///
    /// # Errors
    /// A host is none, or the machine gives no randomness.
    pub fn for_hosts<'h>(hosts: impl IntoIterator<Item = &'h str>) -> Result<Self, InspectionError> {
        let mut permitted = Vec::new();
        let (mut names, mut addresses) = (false, false);
        for text in hosts {
            match Host::parse(text).map_err(|e| failed(text)(&e))? {
                Host::Name(name) => {
                    names = true;
                    permitted.push(GeneralSubtree::DnsName(name));
                }
                Host::Ip(address) => {
                    addresses = true;
                    permitted.push(GeneralSubtree::IpAddress(only(address)));
                }
            }
        }
        // Constraints of one kind say nothing about names of another.
        let mut excluded = Vec::new();
        if !names {
            excluded.push(GeneralSubtree::DnsName(String::new()));
        }
        if !addresses {
            excluded.push(GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([0; 4], 0)));
            excluded.push(GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix([0; 16], 0)));
        }
        let mut params = dated(CertificateParams::default());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Palyra credentials of one run");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded });
        let key = KeyPair::generate().map_err(|e| failed("the authority")(&e))?;
        let certificate = params.self_signed(&key).map_err(|e| failed("the authority")(&e))?;
        let (pem, der) = (certificate.pem(), certificate.der().to_vec());
        Ok(Self { issuer: Issuer::new(params, key), pem, der, configs: Mutex::default() })
    }

    /// Its certificate, for those who are to trust it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The same in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// What a server that speaks for this host shows. It speaks HTTP/1.1 and nothing else.
    pub(super) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, InspectionError> {
        let name = host.to_string();
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(&name) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(host, &name)?);
        configs.insert(name, Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, host: &Host, name: &str) -> Result<ServerConfig, InspectionError> {
        let failed = failed(name);
        let mut params = dated(CertificateParams::default());
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into().map_err(|e: rcgen::Error| failed(&e))?),
            Host::Ip(address) => SanType::IpAddress(*address),
        }];
        let key = KeyPair::generate().map_err(|e| failed(&e))?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(|e| failed(&e))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| failed(&e))?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .map_err(|e| failed(&e))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The subnet of one address.
fn only(address: IpAddr) -> CidrSubnet {
    match address {
        IpAddr::V4(address) => CidrSubnet::from_v4_prefix(address.octets(), 32),
        IpAddr::V6(address) => CidrSubnet::from_v6_prefix(address.octets(), 128),
    }
}
