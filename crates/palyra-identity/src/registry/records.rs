//! What the registry knows of a device.

use crate::names::DeviceName;
use palyra_protocol::{DeviceId, Digest, Principal, Timestamp, WorkspaceRole};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A certificate's serial number: 128 bits, random but for the first two, which keep its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial([u8; Self::BYTES]);

/// A text or byte string that is no serial number of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a serial number is 32 hexadecimal digits, the first of them from 4 to 7")]
pub struct SerialError;

impl Serial {
    const BYTES: usize = 16;

    /// A serial number from random bytes. The first bits are set so that every one has the same length in DER.
    pub(crate) fn from_random(mut bytes: [u8; Self::BYTES]) -> Self {
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Self(bytes)
    }

    /// Reads the bytes that stand in a certificate.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, SerialError> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| SerialError)?;
        if bytes[0] & 0xc0 == 0x40 { Ok(Self(bytes)) } else { Err(SerialError) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serial({self})")
    }
}

impl FromStr for Serial {
    type Err = SerialError;
    fn from_str(text: &str) -> Result<Self, SerialError> {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(SerialError);
        }
        let mut bytes = [0; Self::BYTES];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| SerialError)?;
        Self::read(&bytes)
    }
}

impl TryFrom<String> for Serial {
    type Error = SerialError;
    fn try_from(text: String) -> Result<Self, SerialError> {
        text.parse()
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> Self {
        serial.to_string()
    }
}

/// What sort of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A program that was paired and renews its certificate by itself.
    Program,
    /// A browser on a machine with a paired program; its certificate is not renewed.
    Browser,
}

impl DeviceKind {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Browser => "browser",
        }
    }

    /// How long its certificates live.
    #[must_use]
    pub fn certificate_life(self) -> Duration {
        match self {
            Self::Program => DEVICE_LIFE,
            Self::Browser => BROWSER_LIFE,
        }
    }
}

/// How long a program's certificate lives.
pub const DEVICE_LIFE: Duration = Duration::from_secs(24 * 3600);
/// When before its end a certificate is to be renewed: after a third of its life.
pub const RENEW_BEFORE: Duration = Duration::from_secs(16 * 3600);
/// How long a browser's certificate lives: nothing in a browser renews it.
pub const BROWSER_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the certificate before a renewal or rotation still holds: a device that loses the new one can ask again.
pub const SUPERSEDED_LIFE: Duration = Duration::from_secs(3600);
/// The least time between two certificates of one device.
pub const LEAST_BETWEEN_RENEWALS: Duration = Duration::from_secs(30);
/// How many certificates of one device are remembered, the newest last.
pub(crate) const MAX_CERTIFICATES: usize = 8;

/// A certificate that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateRecord {
    /// Its serial number.
    pub serial: Serial,
    /// SHA-256 of the whole certificate: another with the same serial number is not this one.
    pub sha256: Digest,
    /// SHA-256 of its public key.
    pub key_sha256: Digest,
    /// The generation of the authority that signed it.
    pub authority: u32,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
    /// From when on a newer one stands in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_at: Option<Timestamp>,
}

impl CertificateRecord {
    /// Until when it lets its bearer in.
    #[must_use]
    pub fn holds_until(&self) -> Timestamp {
        self.superseded_at.map_or(self.not_after, |at| at.min(self.not_after))
    }
}

/// That a device was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Principal,
    /// Why.
    pub reason: String,
}

impl Revocation {
    /// The longest reason, in characters.
    pub const MAX_REASON: usize = 200;
}

/// A device as the registry keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRecord {
    /// Its id.
    pub device_id: DeviceId,
    /// What people call it.
    pub name: DeviceName,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// For whom it acts.
    pub principal: Principal,
    /// The role it is limited to.
    pub role: WorkspaceRole,
    /// Since when it is known.
    pub created_at: Timestamp,
    /// Who let it in.
    pub by: Principal,
    /// Who made the code that it was paired with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<Principal>,
    /// The device that it belongs to: the program beside a browser. When that one is revoked, so is this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
    /// When somebody last asked for a new certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// That it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// Its certificates, the newest last.
    pub certificates: Vec<CertificateRecord>,
}

impl DeviceRecord {
    /// The newest certificate.
    #[must_use]
    pub fn newest(&self) -> Option<&CertificateRecord> {
        self.certificates.last()
    }

    /// Where the device stands.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> DeviceState {
        if self.revoked.is_some() {
            DeviceState::Revoked
        } else if self.certificates.iter().any(|c| now < c.holds_until()) {
            DeviceState::Active
        } else {
            DeviceState::Lapsed
        }
    }

    /// Adds a certificate. Those before it hold until `until` at most; the oldest are forgotten.
    pub(crate) fn add_certificate(&mut self, certificate: CertificateRecord, until: Timestamp) {
        self.supersede(until);
        self.certificates.push(certificate);
        let too_many = self.certificates.len().saturating_sub(MAX_CERTIFICATES);
        self.certificates.drain(..too_many);
    }

    /// Lets every certificate hold until `until` at most.
    pub(crate) fn supersede(&mut self, until: Timestamp) {
        for certificate in &mut self.certificates {
            certificate.superseded_at = Some(certificate.superseded_at.map_or(until, |at| at.min(until)));
        }
    }
}

/// Where a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// It is let in.
    Active,
    /// Its certificates are over: it has to be paired again.
    Lapsed,
    /// It was revoked.
    Revoked,
}

impl DeviceState {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Lapsed => "lapsed",
            Self::Revoked => "revoked",
        }
    }
}

/// Something about a device that is worth a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceWarning {
    /// It was paired and has not come since.
    NeverSeen,
    /// It has not come for a month.
    LongUnseen,
    /// Its certificate is over.
    Lapsed,
    /// Its certificate ends within hours and was not renewed.
    RenewalOverdue,
    /// A generation of the authority that is about to be retired signed its newest certificate.
    AuthorityRetiring,
    /// It may do everything that an owner may.
    OwnerRole,
}

/// A device as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// What the registry keeps.
    #[serde(flatten)]
    pub device: DeviceRecord,
    /// Where it stands.
    pub state: DeviceState,
    /// When it last came, as far as is known.
    pub last_seen: Option<Timestamp>,
    /// How old its newest certificate is, in seconds.
    pub certificate_age_seconds: Option<u64>,
    /// What is worth a look.
    pub warnings: Vec<DeviceWarning>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_have_one_length_and_one_spelling() {
        for byte in [0, 0xff, 0x3f, 0x80] {
            let serial = Serial::from_random([byte; 16]);
            assert_eq!(serial.to_string().parse(), Ok(serial));
            assert_eq!(Serial::read(serial.as_bytes()), Ok(serial));
        }
        assert!(Serial::read(&[0x40; 15]).is_err() && Serial::read(&[0; 16]).is_err());
        assert!("4".repeat(32).parse::<Serial>().is_ok());
        for bad in ["", "4A", &"80".repeat(16), &"4A".repeat(16)] {
            assert!(bad.parse::<Serial>().is_err(), "{bad}");
        }
    }
}
