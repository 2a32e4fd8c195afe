//! Why a device's certificate is refused, at the handshake or at a request.

use palyra_protocol::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use std::time::Duration;

/// Why a certificate does not let its bearer in. Every kind has a name of its own: the journal has it, and the device
/// is told as much as TLS can say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRefusal {
    /// It cannot be read.
    #[error("the certificate cannot be read")]
    Malformed,
    /// It is not there.
    #[error("there is no certificate")]
    Missing,
    /// It is signed by itself.
    #[error("the certificate is signed by itself")]
    SelfSigned,
    /// It comes from another authority.
    #[error("the certificate comes from another authority")]
    ForeignAuthority,
    /// It comes from a generation of our authority that was retired.
    #[error("the certificate comes from a retired generation of the authority")]
    RetiredAuthority,
    /// Its signature does not fit.
    #[error("the certificate's signature does not fit")]
    Signature,
    /// It is over.
    #[error("the certificate ended at {not_after}, and it is {now}")]
    Expired {
        /// When it is.
        now: Timestamp,
        /// When it ended.
        not_after: Timestamp,
    },
    /// It has not begun.
    #[error("the certificate begins at {not_before}, and it is {now}")]
    NotYetValid {
        /// When it is.
        now: Timestamp,
        /// When it begins.
        not_before: Timestamp,
    },
    /// It is for something else than a client.
    #[error("the certificate is not for a device")]
    Purpose,
    /// It is an authority's.
    #[error("the certificate is an authority's and not a device's")]
    Authority,
    /// Its key is not of an accepted kind.
    #[error("the certificate's key is neither ECDSA P-256 nor ECDSA P-384")]
    Key,
    /// It does not name a device of this daemon.
    #[error("the certificate does not name a device of this daemon")]
    Name,
    /// It is not in the registry: nobody here issued it, or the device was removed.
    #[error("the certificate is not one that this daemon issued to a device it knows")]
    NotIssued,
    /// A newer one took its place.
    #[error("the certificate was replaced by a newer one")]
    Superseded,
    /// The device is revoked.
    #[error("the device is revoked")]
    Revoked,
}

impl CertificateRefusal {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed => "certificate_malformed",
            Self::Missing => "certificate_missing",
            Self::SelfSigned => "certificate_self_signed",
            Self::ForeignAuthority => "certificate_foreign",
            Self::RetiredAuthority => "certificate_authority_retired",
            Self::Signature => "certificate_signature",
            Self::Expired { .. } => "certificate_expired",
            Self::NotYetValid { .. } => "certificate_not_yet_valid",
            Self::Purpose => "certificate_purpose",
            Self::Authority => "certificate_is_authority",
            Self::Key => "certificate_key",
            Self::Name => "certificate_name",
            Self::NotIssued => "certificate_not_issued",
            Self::Superseded => "certificate_superseded",
            Self::Revoked => "device_revoked",
        }
    }

    /// What to do next, where that can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Expired { .. } => "pair the device again, or check the clocks of both machines",
            Self::NotYetValid { .. } => "check the clocks of both machines",
            Self::RetiredAuthority | Self::NotIssued | Self::Superseded | Self::Revoked => {
                "pair the device again: `palyra pairing code`, then `palyra pair HOST` on the device"
            }
            Self::SelfSigned | Self::ForeignAuthority => "use the certificate that pairing with this daemon gave",
            _ => return None,
        })
    }

    /// What TLS can say of it: the alert that the device gets.
    pub(crate) fn for_tls(&self) -> CertificateError {
        let unix = |at: &Timestamp| UnixTime::since_unix_epoch(Duration::from_millis(at.unix_ms()));
        match self {
            Self::Malformed | Self::Missing => CertificateError::BadEncoding,
            Self::SelfSigned | Self::ForeignAuthority | Self::RetiredAuthority => CertificateError::UnknownIssuer,
            Self::Signature => CertificateError::BadSignature,
            Self::Expired { now, not_after } => {
                CertificateError::ExpiredContext { time: unix(now), not_after: unix(not_after) }
            }
            Self::NotYetValid { now, not_before } => {
                CertificateError::NotValidYetContext { time: unix(now), not_before: unix(not_before) }
            }
            Self::Purpose | Self::Authority | Self::Key => CertificateError::InvalidPurpose,
            Self::Name | Self::NotIssued | Self::Superseded => CertificateError::ApplicationVerificationFailure,
            Self::Revoked => CertificateError::Revoked,
        }
    }
}
