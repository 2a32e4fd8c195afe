//! What can go wrong on the daemon's side, by whose fault.

use crate::device_key::DeviceKeyError;
use crate::entropy::NoEntropy;
use crate::journal::JournalFailure;
use crate::key_vault::KeyVaultError;
use crate::names::NameError;
use crate::refusal::CertificateRefusal;
use crate::signing_request::SigningRequestRefusal;
use palyra_protocol::{DeviceId, Digest, Principal, Problem};
use std::path::PathBuf;
use std::time::Duration;

/// Why something about devices could not be done.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    // The caller's fault.
    /// There is no such device.
    #[error("there is no device `{device}`")]
    UnknownDevice {
        /// What was asked for.
        device: String,
    },
    /// The device is revoked.
    #[error("the device `{device}` is revoked")]
    Revoked {
        /// The device.
        device: DeviceId,
    },
    /// The device is still in use.
    #[error("the device `{device}` is not revoked")]
    NotRevoked {
        /// The device.
        device: DeviceId,
    },
    /// Another device has this name.
    #[error("another device is called `{name}`")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A principal that no device acts for.
    #[error("no device acts for `{principal}`; a device acts for a person or for itself")]
    Principal {
        /// The principal.
        principal: Principal,
    },
    /// A reason that cannot be kept.
    #[error("a reason has at most {most} visible characters")]
    Reason {
        /// How many.
        most: usize,
    },
    /// A duration outside of its limits.
    #[error("{what} is between {least:?} and {most:?}")]
    Duration {
        /// What it is.
        what: &'static str,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// There are as many as there may be.
    #[error("there are {most} {what} already, which is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        most: usize,
    },

    // The device's fault.
    /// The certificate request is refused.
    #[error(transparent)]
    SigningRequest(#[from] SigningRequestRefusal),
    /// The key was used before.
    #[error("the key in the certificate request was used before")]
    KeyRepeated,
    /// The device renews too often.
    #[error("the device got a certificate less than {least:?} ago")]
    RenewedTooSoon {
        /// The shortest time between two.
        least: Duration,
    },
    /// The certificate that the device came with does not stand any more.
    #[error(transparent)]
    Certificate(#[from] CertificateRefusal),

    // The host's fault.
    /// A file cannot be read or written.
    #[error("`{}` {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The device registry is not the one that the daemon wrote last, or none at all.
    #[error("the device registry `{}` is not accepted: {why}", path.display())]
    RegistryRefused {
        /// The file.
        path: PathBuf,
        /// SHA-256 of what was found.
        found: Option<Digest>,
        /// SHA-256 of what the journal knows.
        expected: Option<Digest>,
        /// Why.
        why: String,
    },
    /// The vault has no key for the authority.
    #[error("the vault has no key for generation {generation} of the certificate authority")]
    AuthorityKeyMissing {
        /// The generation.
        generation: u32,
    },
    /// No generation of the authority is valid at this time.
    #[error("the certificate authority is not valid at this time")]
    AuthorityNotValid,
    /// The vault failed.
    #[error(transparent)]
    Vault(#[from] KeyVaultError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
    /// The machine gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// A key cannot be made or used.
    #[error(transparent)]
    Key(#[from] DeviceKeyError),
    /// A certificate cannot be made.
    #[error("a certificate cannot be made: {what}")]
    Certification {
        /// What failed.
        what: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

impl IdentityError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownDevice { .. } => "device_unknown",
            Self::Revoked { .. } => "device_revoked",
            Self::NotRevoked { .. } => "device_not_revoked",
            Self::NameTaken { .. } => "device_name_taken",
            Self::Name(error) => error.code(),
            Self::Principal { .. } => "device_principal",
            Self::Reason { .. } => "device_reason",
            Self::Duration { .. } => "duration_out_of_range",
            Self::TooMany { .. } => "too_many",
            Self::SigningRequest(refusal) => refusal.code(),
            Self::KeyRepeated => "key_repeated",
            Self::RenewedTooSoon { .. } => "renewed_too_soon",
            Self::Certificate(refusal) => refusal.code(),
            Self::Io { .. } => "identity_io",
            Self::RegistryRefused { .. } => "device_registry_refused",
            Self::AuthorityKeyMissing { .. } => "authority_key_missing",
            Self::AuthorityNotValid => "authority_not_valid",
            Self::Vault(error) => error.code(),
            Self::Journal(_) => "identity_journal",
            Self::Entropy(_) => "no_entropy",
            Self::Key(error) => error.code(),
            Self::Certification { .. } => "certification_failed",
            Self::Tls(_) => "tls_setup_failed",
        }
    }

    /// What to do next, where that can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::UnknownDevice { .. } => {
                "list the devices with `palyra devices list`; a revoked one is named by its id"
            }
            Self::Revoked { .. } => "a revoked device is paired again as a new one: `palyra pairing code`",
            Self::NotRevoked { .. } => "revoke it first: `palyra devices revoke`",
            Self::NameTaken { .. } => "choose another name, or rename the other device: `palyra devices rename`",
            Self::KeyRepeated => "make a new key; every certificate has a key of its own",
            Self::Certificate(refusal) => return refusal.hint(),
            Self::RegistryRefused { .. } => {
                "put the file back as it was; or pair every device again after `palyra down` and `palyrad devices reset`"
            }
            Self::AuthorityKeyMissing { .. } => {
                "restore the vault; or pair every device again after `palyra down` and `palyrad devices reset`"
            }
            Self::AuthorityNotValid => "check the clock of this machine",
            Self::Vault(KeyVaultError::Locked) => "unlock the vault: `palyra vault unlock`",
            Self::Vault(KeyVaultError::TooOpen { .. }) => {
                "take the rights of others away with `chmod 600`, and make a new key if another user may have read it"
            }
            _ => return None,
        })
    }

    /// Code, message and hint, as every door shows them.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self.hint() {
            Some(hint) => Problem::new(self.code(), self.to_string(), hint),
            None => Problem::plain(self.code(), self.to_string()),
        }
    }
}

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certification { what: error.to_string() }
    }
}
