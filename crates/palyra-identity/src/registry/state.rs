//! The registry in memory: what every handshake and every request looks at.
//!
//! A look takes two hash tables, however many devices there are and however many were revoked. A change replaces the
//! entries of one device and nothing else.

use super::document::{RootDocument, ShardId};
use super::records::{CertificateRecord, DeviceRecord, DeviceState, DeviceView, DeviceWarning, RENEW_BEFORE, Serial};
use crate::authority::Generation;
use crate::refusal::CertificateRefusal;
use crate::standing::Standing;
use palyra_protocol::{DeviceId, Digest, Timestamp, WorkspaceRole};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// After this long without a visit a device is worth a look.
const LONG_UNSEEN: Duration = Duration::from_secs(30 * 24 * 3600);
/// From here on a certificate that was not renewed is worth a look.
const RENEWAL_OVERDUE: Duration = Duration::from_secs(8 * 3600);

/// The registry in memory.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) root: RootDocument,
    /// The root's file, byte for byte.
    pub(crate) bytes: Vec<u8>,
    /// SHA-256 of it.
    pub(crate) digest: Digest,
    /// The authority's generations, the oldest first.
    pub(crate) generations: Vec<Generation>,
    devices: HashMap<DeviceId, Device>,
    shards: HashMap<ShardId, BTreeSet<DeviceId>>,
    serials: HashMap<Serial, Issued>,
    keys: HashMap<Digest, DeviceId>,
    names: HashMap<String, DeviceId>,
    children: HashMap<DeviceId, BTreeSet<DeviceId>>,
    /// Whether a device came since this was last written down.
    came: AtomicBool,
}

#[derive(Debug)]
struct Device {
    record: DeviceRecord,
    /// When it last came, in milliseconds; 0 for never.
    seen: AtomicU64,
}

/// What is asked about a serial number.
#[derive(Debug)]
struct Issued {
    device: DeviceId,
    sha256: Digest,
}

/// A certificate as the registry is asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Presented {
    pub(crate) serial: Serial,
    pub(crate) sha256: Digest,
}

impl State {
    /// A registry without devices.
    ///
    /// # Errors
    /// What is wrong with the authority.
    pub(crate) fn new(root: RootDocument, bytes: Vec<u8>) -> Result<Self, String> {
        let generations = read_generations(&root)?;
        Ok(Self {
            root,
            digest: Digest::of(&bytes),
            bytes,
            generations,
            devices: HashMap::new(),
            shards: HashMap::new(),
            serials: HashMap::new(),
            keys: HashMap::new(),
            names: HashMap::new(),
            children: HashMap::new(),
            came: AtomicBool::new(false),
        })
    }

    /// Puts another root in force.
    ///
    /// # Errors
    /// What is wrong with it; the one before is then still in force.
    pub(crate) fn set_root(&mut self, root: RootDocument, bytes: Vec<u8>, digest: Digest) -> Result<(), String> {
        if root.authorities != self.root.authorities {
            self.generations = read_generations(&root)?;
        }
        (self.root, self.bytes, self.digest) = (root, bytes, digest);
        Ok(())
    }

    /// Whether a device can be put here: no other has its name, a key or a serial number of it.
    ///
    /// # Errors
    /// What it shares with another.
    pub(crate) fn check_unique(&self, record: &DeviceRecord) -> Result<(), String> {
        let id = &record.device_id;
        let other = |found: Option<&DeviceId>| found.is_some_and(|found| found != id);
        if record.revoked.is_none() && other(self.names.get(&record.name.folded())) {
            return Err(format!("two devices are called `{}`", record.name));
        }
        for certificate in &record.certificates {
            let serial = self.serials.get(&certificate.serial).map(|issued| &issued.device);
            if other(serial) || other(self.keys.get(&certificate.key_sha256)) {
                return Err(format!("`{id}` has a certificate or key of another device"));
            }
        }
        Ok(())
    }

    /// Puts a device in, or in its own place.
    pub(crate) fn put(&mut self, record: DeviceRecord) {
        let id = record.device_id.clone();
        let seen = self.remove(&id).map_or(0, |device| device.seen.into_inner());
        self.shards.entry(ShardId::of(&id)).or_default().insert(id.clone());
        if record.revoked.is_none() {
            self.names.insert(record.name.folded(), id.clone());
        }
        for certificate in &record.certificates {
            let issued = Issued { device: id.clone(), sha256: certificate.sha256 };
            self.serials.insert(certificate.serial, issued);
            self.keys.insert(certificate.key_sha256, id.clone());
        }
        if let Some(parent) = &record.parent {
            self.children.entry(parent.clone()).or_default().insert(id.clone());
        }
        self.devices.insert(id, Device { record, seen: AtomicU64::new(seen) });
    }

    /// Takes a device out.
    pub(crate) fn drop_device(&mut self, id: &DeviceId) {
        drop(self.remove(id));
    }

    fn remove(&mut self, id: &DeviceId) -> Option<Device> {
        let device = self.devices.remove(id)?;
        if let Some(shard) = self.shards.get_mut(&ShardId::of(id)) {
            shard.remove(id);
        }
        let name = device.record.name.folded();
        if self.names.get(&name) == Some(id) {
            self.names.remove(&name);
        }
        for certificate in &device.record.certificates {
            self.serials.remove(&certificate.serial);
            self.keys.remove(&certificate.key_sha256);
        }
        if let Some(siblings) = device.record.parent.as_ref().and_then(|parent| self.children.get_mut(parent)) {
            siblings.remove(id);
        }
        Some(device)
    }

    pub(crate) fn device(&self, id: &DeviceId) -> Option<&DeviceRecord> {
        self.devices.get(id).map(|device| &device.record)
    }

    /// The device with this id or name. Revoked devices have no name to themselves.
    pub(crate) fn find(&self, text: &str) -> Option<&DeviceRecord> {
        let by_id = text.parse().ok().and_then(|id: DeviceId| self.device(&id));
        by_id.or_else(|| self.names.get(&text.to_lowercase()).and_then(|id| self.device(id)))
    }

    pub(crate) fn count(&self) -> usize {
        self.devices.len()
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceRecord> {
        self.devices.values().map(|device| &device.record)
    }

    /// The devices of a shard, by id.
    pub(crate) fn shard(&self, shard: ShardId) -> impl Iterator<Item = &DeviceRecord> {
        self.shards.get(&shard).into_iter().flatten().filter_map(|id| self.device(id))
    }

    /// The devices that belong to one.
    pub(crate) fn children(&self, parent: &DeviceId) -> impl Iterator<Item = &DeviceRecord> {
        self.children.get(parent).into_iter().flatten().filter_map(|id| self.device(id))
    }

    pub(crate) fn has_name(&self, folded: &str) -> bool {
        self.names.contains_key(folded)
    }

    /// Whether a key belongs to a device, also a revoked one, or to the authority.
    pub(crate) fn has_key(&self, key: &Digest) -> bool {
        self.keys.contains_key(key) || self.generations.iter().any(|generation| generation.key_sha256 == *key)
    }

    /// INVARIANT (revoked_on_next_request): how a certificate stands now. Asked at every handshake and for every
    /// request.
    ///
    /// # Errors
    /// Why it does not let its bearer in.
    pub(crate) fn standing(&self, presented: &Presented, now: Timestamp) -> Result<Standing, CertificateRefusal> {
        let (device, certificate) = self.let_in(presented, now)?;
        device.seen.fetch_max(now.unix_ms(), Ordering::Relaxed);
        self.came.store(true, Ordering::Relaxed);
        Ok(Standing::new(&device.record, now.until(certificate.holds_until()) < RENEW_BEFORE))
    }

    /// How a device stands that is not connected, by its newest certificate. It does not count as a visit.
    ///
    /// # Errors
    /// Why the certificate would not let it in.
    pub(crate) fn standing_of(
        &self,
        id: &DeviceId,
        now: Timestamp,
    ) -> Result<(Standing, &CertificateRecord), CertificateRefusal> {
        let newest = self.device(id).and_then(DeviceRecord::newest).ok_or(CertificateRefusal::NotIssued)?;
        let presented = Presented { serial: newest.serial, sha256: newest.sha256 };
        let (device, certificate) = self.let_in(&presented, now)?;
        Ok((Standing::new(&device.record, false), certificate))
    }

    fn let_in(
        &self,
        presented: &Presented,
        now: Timestamp,
    ) -> Result<(&Device, &CertificateRecord), CertificateRefusal> {
        let issued = self.serials.get(&presented.serial).filter(|issued| issued.sha256 == presented.sha256);
        let device = issued.and_then(|issued| self.devices.get(&issued.device)).ok_or(CertificateRefusal::NotIssued)?;
        let certificate = device.record.certificates.iter().find(|c| c.serial == presented.serial);
        let certificate = certificate.ok_or(CertificateRefusal::NotIssued)?;
        if device.record.revoked.is_some() {
            return Err(CertificateRefusal::Revoked);
        }
        if now >= certificate.not_after {
            return Err(CertificateRefusal::Expired { now, not_after: certificate.not_after });
        }
        if now >= certificate.holds_until() {
            return Err(CertificateRefusal::Superseded);
        }
        let trusted = |generation: &Generation| {
            generation.record.generation == certificate.authority && generation.is_trusted(now)
        };
        if !self.generations.iter().any(trusted) {
            return Err(CertificateRefusal::RetiredAuthority);
        }
        Ok((device, certificate))
    }

    /// Remembers when a device last came.
    pub(crate) fn remember_seen(&self, id: &DeviceId, at: Timestamp) {
        if let Some(device) = self.devices.get(id) {
            device.seen.fetch_max(at.unix_ms(), Ordering::Relaxed);
        }
    }

    /// Whether a device came since this was last asked.
    pub(crate) fn take_came(&self) -> bool {
        self.came.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn last_seen(&self, id: &DeviceId) -> Option<Timestamp> {
        let seen = self.devices.get(id).map_or(0, |device| device.seen.load(Ordering::Relaxed));
        (seen > 0).then(|| Timestamp::from_unix_ms(seen))
    }

    /// A device as it is shown.
    pub(crate) fn view(&self, record: &DeviceRecord, now: Timestamp) -> DeviceView {
        let last_seen = self.last_seen(&record.device_id);
        DeviceView {
            state: record.state(now),
            last_seen,
            certificate_age_seconds: record.newest().map(|c| c.issued_at.until(now).as_secs()),
            warnings: self.warnings(record, last_seen, now),
            device: record.clone(),
        }
    }

    fn warnings(&self, record: &DeviceRecord, last_seen: Option<Timestamp>, now: Timestamp) -> Vec<DeviceWarning> {
        let state = record.state(now);
        if state == DeviceState::Revoked {
            return vec![];
        }
        let retiring = |generation: u32| {
            let signer = self.generations.iter().find(|g| g.record.generation == generation);
            signer.is_none_or(|signer| signer.record.retires_at.is_some())
        };
        let left = record.newest().map_or(Duration::ZERO, |newest| now.until(newest.holds_until()));
        [
            (last_seen.is_none(), DeviceWarning::NeverSeen),
            (last_seen.is_some_and(|at| at.until(now) > LONG_UNSEEN), DeviceWarning::LongUnseen),
            (state == DeviceState::Lapsed, DeviceWarning::Lapsed),
            (state == DeviceState::Active && left < RENEWAL_OVERDUE, DeviceWarning::RenewalOverdue),
            (record.newest().is_some_and(|newest| retiring(newest.authority)), DeviceWarning::AuthorityRetiring),
            (record.role == WorkspaceRole::Owner, DeviceWarning::OwnerRole),
        ]
        .into_iter()
        .filter_map(|(applies, warning)| applies.then_some(warning))
        .collect()
    }
}

pub(super) fn read_generations(root: &RootDocument) -> Result<Vec<Generation>, String> {
    root.authorities.iter().map(|record| Generation::read(record.clone())).collect()
}
