//! What a certificate of ours must be, beyond a path to a trusted authority.
//!
//! Path validation alone accepts more than a private authority should. So a device's certificate must besides: be a
//! leaf and no authority; be for clients and nothing else; have a key of an accepted kind; name exactly one device of
//! this daemon; come straight from a generation of our authority that is valid and not retired. That it is one that we
//! issued and have not revoked, the registry says.

use crate::authority::Generation;
use crate::device_key::PublicKey;
use crate::names::Zone;
use crate::refusal::CertificateRefusal;
use crate::registry::{Presented, Serial};
use palyra_protocol::{DeviceId, Digest, Principal, Timestamp};
use rustls::DistinguishedName;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The algorithms by which certificates and handshakes may be signed.
pub(crate) static ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] =
    &[webpki::ring::ECDSA_P256_SHA256, webpki::ring::ECDSA_P384_SHA384];

/// A device's certificate that passed every check but the registry's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceCertificate {
    pub(crate) presented: Presented,
    pub(crate) device: DeviceId,
    pub(crate) principal: Principal,
    pub(crate) key: Digest,
    pub(crate) not_after: Timestamp,
}

pub(crate) fn unix_time(at: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_millis(at.unix_ms()))
}

fn timestamp(at: UnixTime) -> Timestamp {
    Timestamp::from_unix_ms(at.as_secs().saturating_mul(1000))
}

/// Checks a device's certificate against the generations that are trusted now.
///
/// # Errors
/// Why it is refused.
pub(crate) fn device(
    leaf: &CertificateDer<'_>,
    zone: &Zone,
    generations: &[Generation],
    now: Timestamp,
) -> Result<DeviceCertificate, CertificateRefusal> {
    let entity = EndEntityCert::try_from(leaf).map_err(|_| CertificateRefusal::Malformed)?;
    let path = |wanted: &dyn Fn(&Generation) -> bool| {
        let anchors: Vec<_> = generations.iter().filter(|g| wanted(g)).map(|g| g.anchor.clone()).collect();
        verify_path(&entity, &anchors, now, KeyUsage::client_auth())
    };
    let certificate = parse(leaf)?;
    // Said first: of a stranger's certificate nothing else matters.
    let issuer = certificate.issuer().as_raw();
    let names_us = |g: &Generation| DistinguishedName::in_sequence(&g.anchor.subject).as_ref() == issuer;
    if !generations.iter().any(names_us) {
        let own = certificate.subject() == certificate.issuer();
        return Err(if own { CertificateRefusal::SelfSigned } else { CertificateRefusal::ForeignAuthority });
    }
    path(&|generation| generation.is_trusted(now)).map_err(|error| match refusal(&error, now) {
        CertificateRefusal::ForeignAuthority | CertificateRefusal::Signature
            if path(&|generation| !generation.is_trusted(now)).is_ok() =>
        {
            CertificateRefusal::RetiredAuthority
        }
        refusal => refusal,
    })?;
    read_device(leaf, &certificate, zone)
}

/// Checks a certificate that a device was given: what it is, without a registry.
///
/// # Errors
/// Why it is none for a device of this daemon.
pub(crate) fn own_device(
    leaf: &CertificateDer<'_>,
    zone: &Zone,
    anchors: &[TrustAnchor<'_>],
    now: Timestamp,
) -> Result<DeviceCertificate, CertificateRefusal> {
    let entity = EndEntityCert::try_from(leaf).map_err(|_| CertificateRefusal::Malformed)?;
    verify_path(&entity, anchors, now, KeyUsage::client_auth()).map_err(|error| refusal(&error, now))?;
    read_device(leaf, &parse(leaf)?, zone)
}

fn parse<'a>(leaf: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateRefusal> {
    let (rest, certificate) = x509_parser::parse_x509_certificate(leaf).map_err(|_| CertificateRefusal::Malformed)?;
    if rest.is_empty() { Ok(certificate) } else { Err(CertificateRefusal::Malformed) }
}

/// Checks what path validation does not, and reads who it is.
fn read_device(
    leaf: &CertificateDer<'_>,
    certificate: &X509Certificate<'_>,
    zone: &Zone,
) -> Result<DeviceCertificate, CertificateRefusal> {
    let malformed = |_| CertificateRefusal::Malformed;
    let signs = certificate.key_usage().map_err(malformed)?.is_some_and(|usage| usage.value.key_cert_sign());
    if certificate.is_ca() || signs {
        return Err(CertificateRefusal::Authority);
    }
    let purpose = certificate.extended_key_usage().map_err(malformed)?.ok_or(CertificateRefusal::Purpose)?.value;
    if !purpose.client_auth || purpose.any || purpose.server_auth || !purpose.other.is_empty() {
        return Err(CertificateRefusal::Purpose);
    }
    let key = PublicKey::read(certificate.public_key().raw).map_err(|_| CertificateRefusal::Key)?;
    let names = certificate.subject_alternative_name().map_err(malformed)?.ok_or(CertificateRefusal::Name)?;
    let [GeneralName::URI(uri)] = names.value.general_names[..] else { return Err(CertificateRefusal::Name) };
    let (device, principal) = zone.read_device_uri(uri).ok_or(CertificateRefusal::Name)?;
    let serial = Serial::read(certificate.raw_serial()).map_err(|_| CertificateRefusal::NotIssued)?;
    Ok(DeviceCertificate {
        presented: Presented { serial, sha256: Digest::of(leaf) },
        device,
        principal,
        key: key.digest(),
        not_after: crate::authority::timestamp(certificate.validity().not_after),
    })
}

/// A path straight from the leaf to one of the anchors. What else was sent along is not looked at.
pub(crate) fn verify_path(
    entity: &EndEntityCert<'_>,
    anchors: &[TrustAnchor<'_>],
    now: Timestamp,
    usage: KeyUsage,
) -> Result<(), webpki::Error> {
    entity.verify_for_usage(ALGORITHMS, anchors, &[], unix_time(now), usage, None, None).map(drop)
}

/// What path validation found, in our words.
pub(crate) fn refusal(error: &webpki::Error, now: Timestamp) -> CertificateRefusal {
    use webpki::Error;
    match error {
        Error::CertExpired { not_after, .. } => CertificateRefusal::Expired { now, not_after: timestamp(*not_after) },
        Error::CertNotValidYet { not_before, .. } => {
            CertificateRefusal::NotYetValid { now, not_before: timestamp(*not_before) }
        }
        Error::CaUsedAsEndEntity => CertificateRefusal::Authority,
        Error::RequiredEkuNotFoundContext(_) => CertificateRefusal::Purpose,
        Error::UnknownIssuer => CertificateRefusal::ForeignAuthority,
        Error::NameConstraintViolation => CertificateRefusal::Name,
        Error::InvalidSignatureForPublicKey
        | Error::UnsupportedSignatureAlgorithmContext(_)
        | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => CertificateRefusal::Signature,
        _ => CertificateRefusal::Malformed,
    }
}
