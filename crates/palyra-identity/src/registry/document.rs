//! The registry's documents, read strictly and checked as a whole.
//!
//! `identity_registry.json` is the root: the daemon's zone, its authority, and the digest of every shard. A shard holds
//! the devices whose ids hash to its number. A change writes one shard of 256 and the root, so its cost hardly grows
//! with the number of devices, and the root's digest still covers every byte. A document is accepted whole or not at
//! all.

use super::records::{CertificateRecord, DeviceKind, DeviceRecord, MAX_CERTIFICATES, Revocation};
use crate::authority::AuthorityRecord;
use crate::names::{MAX_HOSTS, Zone};
use palyra_protocol::{DeviceId, Digest, DigestBuilder, PrincipalKind, display};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The form that this version reads and writes.
pub(crate) const SCHEMA: u32 = 1;
/// The largest root.
pub(crate) const MAX_ROOT_BYTES: u64 = 1 << 20;
/// The largest shard.
pub(crate) const MAX_SHARD_BYTES: u64 = 32 << 20;
/// The most devices, revoked ones counted.
pub(crate) const MAX_DEVICES: usize = 200_000;
/// The most generations of the authority that are remembered.
pub(crate) const MAX_GENERATIONS: usize = 8;

/// The number of a shard, written with two digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ShardId(u8);

impl ShardId {
    /// The shard that a device belongs to.
    pub(crate) fn of(device: &DeviceId) -> Self {
        let digest = DigestBuilder::new("palyra.device.shard.v1").field(device.as_str().as_bytes()).finish();
        Self(digest.as_bytes()[0])
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

impl FromStr for ShardId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let shard = u8::from_str_radix(text, 16).map(Self).ok();
        shard.filter(|shard| shard.to_string() == text).ok_or_else(|| "a shard is two hexadecimal digits".to_owned())
    }
}

impl TryFrom<String> for ShardId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ShardId> for String {
    fn from(shard: ShardId) -> Self {
        shard.to_string()
    }
}

/// The root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RootDocument {
    pub(crate) schema: u32,
    pub(crate) revision: u64,
    pub(crate) zone: Zone,
    pub(crate) authorities: Vec<AuthorityRecord>,
    pub(crate) shards: BTreeMap<ShardId, Digest>,
}

/// A shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardDocument<D = DeviceRecord> {
    pub(crate) schema: u32,
    pub(crate) shard: ShardId,
    /// By id.
    pub(crate) devices: Vec<D>,
}

fn malformed(error: &serde_json::Error) -> String {
    format!("it cannot be read: {error}")
}

/// Asked first, so that another version is called that and not a malformed one.
fn check_schema(bytes: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let Version { schema } = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    if schema == SCHEMA { Ok(()) } else { Err(format!("it has schema {schema}; this version reads schema {SCHEMA}")) }
}

impl RootDocument {
    /// Reads the root's bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        check_schema(bytes)?;
        let root: Self = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
        root.check()?;
        Ok(root)
    }

    /// The root's bytes: indented, because people read it.
    ///
    /// # Errors
    /// It has no JSON form, which would be a bug.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(many) = self.authorities.iter().find(|a| a.hosts.len() > MAX_HOSTS) {
            return Err(format!("it names {} hosts; at most {MAX_HOSTS} are kept", many.hosts.len()));
        }
        if self.authorities.is_empty() || self.authorities.len() > MAX_GENERATIONS {
            return Err(format!("it has no generation of the authority, or more than {MAX_GENERATIONS}"));
        }
        if !self.authorities.is_sorted_by(|a, b| a.generation < b.generation) {
            return Err("the authority's generations are not in order".to_owned());
        }
        if self.authorities.last().is_none_or(|newest| newest.retires_at.is_some()) {
            return Err("the newest generation of the authority is retired".to_owned());
        }
        Ok(())
    }
}

impl ShardDocument {
    /// Reads a shard's bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn parse(bytes: &[u8], shard: ShardId) -> Result<Self, String> {
        check_schema(bytes)?;
        let document: Self = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
        if document.shard != shard || document.devices.iter().any(|d| ShardId::of(&d.device_id) != shard) {
            return Err("it belongs to another place".to_owned());
        }
        if !document.devices.is_sorted_by(|a, b| a.device_id < b.device_id) {
            return Err("its devices are not in order".to_owned());
        }
        document.devices.iter().try_for_each(check_device)?;
        Ok(document)
    }
}

/// The bytes of a shard with these devices, which are in order.
///
/// # Errors
/// It has no JSON form, which would be a bug.
pub(crate) fn shard_bytes(shard: ShardId, devices: Vec<&DeviceRecord>) -> Result<Vec<u8>, String> {
    let document = ShardDocument { schema: SCHEMA, shard, devices };
    let mut bytes = serde_json::to_vec(&document).map_err(|e| e.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Checks what a device's types do not.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn check_device(device: &DeviceRecord) -> Result<(), String> {
    let id = &device.device_id;
    if !matches!(device.principal.kind(), PrincipalKind::User | PrincipalKind::Device) {
        return Err(format!("`{id}` would act for `{}`", device.principal));
    }
    if device.certificates.is_empty() || device.certificates.len() > MAX_CERTIFICATES {
        return Err(format!("`{id}` has no certificate, or more than {MAX_CERTIFICATES}"));
    }
    if (device.kind == DeviceKind::Browser) != device.parent.is_some() {
        return Err(format!("`{id}` belongs to a device and is no browser, or the other way round"));
    }
    if device.revoked.as_ref().is_some_and(|revoked| !is_reason(&revoked.reason)) {
        return Err(format!("`{id}` is revoked for a reason that cannot be shown"));
    }
    let life = device.kind.certificate_life();
    let too_long = |c: &&CertificateRecord| c.not_after > c.issued_at.plus(life);
    if device.certificates.iter().find(too_long).is_some() {
        return Err(format!("a certificate of `{id}` would hold too long"));
    }
    Ok(())
}

/// Whether a text can be kept and shown as the reason of a revocation.
pub(crate) fn is_reason(text: &str) -> bool {
    text.chars().count() <= Revocation::MAX_REASON && !text.chars().any(display::deceives)
}
