//! The certificate authority of one daemon.
//!
//! It signs certificates of this daemon and its devices and can sign no others: its own certificate is constrained to
//! the daemon's zone, to the hosts it was made for and to TLS, so that a stolen key impersonates no other site even
//! where somebody trusted the authority in a browser. The key rests in the vault and is in memory only while it signs.
//!
//! An authority has generations. A new one signs every certificate of a device from its first moment on. The one before
//! stays trusted until it retires, and signs the server's certificate until then: a device learns of a new generation
//! when it renews, and until it has done so it knows only the old one. Cross-signing was the alternative; it would need
//! an authority that may sign authorities.

use crate::device_key::PublicKey;
use crate::entropy;
use crate::error::IdentityError;
use crate::key_vault::{KeyName, KeyVault};
use crate::names::{Host, Zone};
use crate::registry::Serial;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_protocol::{DeviceId, Digest, Principal, Secret, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, TrustAnchor};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a generation lives.
pub(crate) const AUTHORITY_LIFE: Duration = Duration::from_secs(5 * 365 * 24 * 3600);
/// When before its end a generation is followed by the next.
pub(crate) const SUCCEED_BEFORE: Duration = Duration::from_secs(180 * 24 * 3600);
/// How long the server's certificate lives.
pub(crate) const SERVER_LIFE: Duration = Duration::from_secs(3 * 24 * 3600);
/// When before its end it is followed by the next: after a third of its life.
pub(crate) const SERVER_RENEW_BEFORE: Duration = Duration::from_secs(2 * 24 * 3600);
/// How far a certificate begins before it was issued, so that a clock that is a little slow does not refuse it.
const BACKDATED: Duration = Duration::from_secs(5 * 60);
/// The latest second that X.509 can write.
const LAST_SECOND: u64 = 253_402_300_799;

/// A generation of the authority as the registry keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthorityRecord {
    /// Counted from 1.
    pub(crate) generation: u32,
    /// Its certificate: DER in base64.
    pub(crate) certificate: String,
    /// The hosts that it was made for, besides the zone and this machine.
    pub(crate) hosts: Vec<Host>,
    /// Since when.
    pub(crate) created_at: Timestamp,
    /// From when on it is not trusted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retires_at: Option<Timestamp>,
}

/// A generation, read and ready to verify with.
#[derive(Debug, Clone)]
pub(crate) struct Generation {
    pub(crate) record: AuthorityRecord,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) anchor: TrustAnchor<'static>,
    /// SHA-256 of the certificate: what devices pin.
    pub(crate) sha256: Digest,
    pub(crate) key_sha256: Digest,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Generation {
    /// Reads a generation that the registry kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(record: AuthorityRecord) -> Result<Self, String> {
        let wrong = |what: &str| format!("generation {} of the authority {what}", record.generation);
        let der = STANDARD.decode(&record.certificate).map_err(|_| wrong("is not written in base64"))?;
        let read = AuthorityCertificate::read(&CertificateDer::from(der)).map_err(wrong)?;
        let AuthorityCertificate { der: certificate, anchor, sha256, key_sha256, not_before, not_after } = read;
        Ok(Self { record, certificate, anchor, sha256, key_sha256, not_before, not_after })
    }

    /// Whether certificates that it signed are good at this time.
    pub(crate) fn is_trusted(&self, now: Timestamp) -> bool {
        self.is_valid(now) && self.record.retires_at.is_none_or(|at| now < at)
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// What signs in its name, with the key from the vault.
    ///
    /// # Errors
    /// The vault is locked, fails or has no key.
    pub(crate) fn issuer(&self, vault: &dyn KeyVault) -> Result<Issuer<'static, KeyPair>, IdentityError> {
        let generation = self.record.generation;
        let missing = IdentityError::AuthorityKeyMissing { generation };
        let key = vault.load(&KeyName::authority(generation))?.ok_or(missing)?;
        let der = PrivatePkcs8KeyDer::from(key.expose());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ECDSA_P256_SHA256)?;
        // A key that is not this generation's would sign what nobody accepts.
        if Digest::of(&rcgen::PublicKeyData::subject_public_key_info(&key)) != self.key_sha256 {
            return Err(IdentityError::AuthorityKeyMissing { generation });
        }
        Ok(Issuer::from_ca_cert_der(&self.certificate, key)?)
    }
}

/// An authority's certificate, on the daemon's side or on a device.
#[derive(Debug, Clone)]
pub(crate) struct AuthorityCertificate {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) anchor: TrustAnchor<'static>,
    pub(crate) sha256: Digest,
    pub(crate) key_sha256: Digest,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl AuthorityCertificate {
    /// # Errors
    /// It is no authority's certificate.
    pub(crate) fn read(der: &CertificateDer<'_>) -> Result<Self, &'static str> {
        let parsed = x509_parser::parse_x509_certificate(der);
        let (rest, certificate) = parsed.map_err(|_| "has no certificate that can be read")?;
        let constraints = certificate.name_constraints().ok().flatten();
        if !rest.is_empty() || !certificate.is_ca() || constraints.is_none() {
            return Err("has a certificate that is no constrained authority's");
        }
        let key = PublicKey::read(certificate.public_key().raw).map_err(|_| "has a key that is not accepted")?;
        let der = der.clone().into_owned();
        let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|_| "cannot be trusted")?.to_owned();
        Ok(Self {
            sha256: Digest::of(&der),
            key_sha256: key.digest(),
            not_before: timestamp(certificate.validity().not_before),
            not_after: timestamp(certificate.validity().not_after),
            anchor,
            der,
        })
    }
}

/// A time that stands in a certificate; the epoch where it stands before that.
pub(crate) fn timestamp(time: x509_parser::time::ASN1Time) -> Timestamp {
    Timestamp::from_unix_ms(u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1000))
}

/// What a new certificate begins with: its serial number, and from when to when it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) serial: Serial,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Term {
    /// A certificate from now on, within the life of the generation that signs it.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub(crate) fn new(now: Timestamp, life: Duration, signer: Option<&Generation>) -> Result<Self, IdentityError> {
        let from = Timestamp::from_unix_ms(now.unix_ms().saturating_sub(whole_ms(BACKDATED)));
        let last = signer.map_or(Timestamp::from_unix_ms(LAST_SECOND * 1000), |signer| signer.not_after);
        let until = now.plus(life).min(last);
        // Certificates know seconds.
        let whole = |at: Timestamp| Timestamp::from_unix_ms(at.unix_ms() / 1000 * 1000);
        Ok(Self { serial: Serial::from_random(entropy::random()?), from: whole(from), until: whole(until) })
    }

    fn params(self) -> CertificateParams {
        // Adding the largest of these does not leave what the type can hold.
        let at = |at: Timestamp| {
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs((at.unix_ms() / 1000).min(LAST_SECOND))
        };
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(self.serial.as_bytes()));
        params.not_before = at(self.from);
        params.not_after = at(self.until);
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name = DistinguishedName::new();
        params
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Makes a generation: its record, and the key that belongs into the vault.
///
/// # Errors
/// The machine gives no randomness.
pub(crate) fn make(
    zone: &Zone,
    hosts: &[Host],
    generation: u32,
    now: Timestamp,
) -> Result<(AuthorityRecord, Secret), IdentityError> {
    // Begins a day early: devices whose clocks are slow can still pair.
    let earlier = Timestamp::from_unix_ms(now.unix_ms().saturating_sub(whole_ms(DAY)));
    let mut params = Term { from: earlier, ..Term::new(now, AUTHORITY_LIFE, None)? }.params();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.name_constraints = Some(constraints(zone, hosts));
    params.distinguished_name = authority_name(zone);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let record = AuthorityRecord {
        generation,
        certificate: STANDARD.encode(certificate.der()),
        hosts: hosts.to_vec(),
        created_at: now,
        retires_at: None,
    };
    Ok((record, Secret::new(key.serialized_der().to_vec())))
}

/// The subject of every generation: the same for all, so that what a server asks devices for need not change.
fn authority_name(zone: &Zone) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Palyra");
    name.push(DnType::CommonName, format!("{zone} authority"));
    name
}

/// The zone, the hosts and this machine. Naming one address as permitted refuses all others; so does one name.
fn constraints(zone: &Zone, hosts: &[Host]) -> NameConstraints {
    let subtree = |host: &Host| match host {
        Host::Name(name) => GeneralSubtree::DnsName(name.clone()),
        Host::Address(address) => {
            let whole = if address.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, whole))
        }
    };
    let mut permitted_subtrees = vec![GeneralSubtree::DnsName(zone.as_str().to_owned())];
    permitted_subtrees.extend(Host::loopback().iter().chain(hosts).map(subtree));
    NameConstraints { permitted_subtrees, excluded_subtrees: vec![] }
}

/// Signs a device's certificate.
///
/// # Errors
/// The authority cannot sign.
pub(crate) fn certify_device(
    issuer: &Issuer<'_, KeyPair>,
    zone: &Zone,
    (device, principal): (&DeviceId, &Principal),
    key: &PublicKey,
    term: Term,
) -> Result<CertificateDer<'static>, IdentityError> {
    let mut params = term.params();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.distinguished_name.push(DnType::CommonName, device.as_str());
    params.subject_alt_names = vec![SanType::URI(zone.device_uri(device, principal).try_into()?)];
    Ok(params.signed_by(key.info(), issuer)?.der().clone())
}

/// A server's key and its certificates.
pub(crate) struct ServerCredentials {
    /// For clients that ask for a name: it has no addresses. BoringSSL, which gRPC's clients use, refuses every
    /// certificate with an address from an authority that is constrained to addresses.
    pub(crate) named: CertificateDer<'static>,
    /// For the others, with all names and addresses.
    pub(crate) all: CertificateDer<'static>,
    pub(crate) key: PrivatePkcs8KeyDer<'static>,
}

/// Signs the certificates of the daemon's own TLS servers, with a key made for them.
///
/// # Errors
/// The authority cannot sign.
pub(crate) fn certify_server(
    issuer: &Issuer<'_, KeyPair>,
    zone: &Zone,
    hosts: &[Host],
    [first, second]: [Term; 2],
) -> Result<ServerCredentials, IdentityError> {
    let key = KeyPair::generate()?;
    let hosts: Vec<_> = Host::loopback().into_iter().chain(hosts.iter().cloned()).collect();
    let names: Vec<_> = hosts.iter().filter(|host| matches!(host, Host::Name(_))).cloned().collect();
    let named = server_certificate((issuer, &key), zone, &names, first)?;
    let all = server_certificate((issuer, &key), zone, &hosts, second)?;
    Ok(ServerCredentials { named, all, key: PrivatePkcs8KeyDer::from(key.serialized_der().to_vec()) })
}

fn server_certificate(
    (issuer, key): (&Issuer<'_, KeyPair>, &KeyPair),
    zone: &Zone,
    hosts: &[Host],
    term: Term,
) -> Result<CertificateDer<'static>, IdentityError> {
    let mut params = term.params();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(DnType::CommonName, zone.as_str());
    params.subject_alt_names = vec![SanType::DnsName(zone.as_str().try_into()?)];
    for host in hosts {
        params.subject_alt_names.push(match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(*address),
        });
    }
    Ok(params.signed_by(key, issuer)?.der().clone())
}
