//! The daemon's side put together: its authority, its devices, its certificates.

mod authorities;
mod devices;
mod measure;
mod tending;

pub use authorities::{AuthorityView, MAX_OVERLAP};
pub use devices::Issued;
pub(crate) use devices::{NewDevice, check_principal};

use crate::authority::{self, Generation};
use crate::error::IdentityError;
use crate::journal::{IdentityEvent, IdentityJournal};
use crate::key_vault::{KeyName, KeyVault};
use crate::names::{Host, MAX_HOST_CHARACTERS, MAX_HOSTS, Zone};
use crate::refusal::CertificateRefusal;
use crate::registry::{Presented, Registry, RootDocument, SCHEMA};
use crate::standing::Standing;
use crate::tally::Tally;
use crate::tls::ServerCertificates;
use crate::verify;
use palyra_protocol::{Clock, DeviceId, Digest, Principal, Timestamp};
use rustls::pki_types::CertificateDer;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the daemon's identity is made of.
#[derive(Debug)]
pub struct IdentitySetup<'a> {
    /// Where the registry is.
    pub state_dir: &'a Path,
    /// The hosts that a new authority is made for, besides the zone and this machine.
    pub hosts: Vec<Host>,
    /// Where the authority's key rests.
    pub vault: Arc<dyn KeyVault>,
    /// Where changes are recorded.
    pub journal: Arc<dyn IdentityJournal>,
    /// The time. A clock that never falls behind the newest record revives nothing that is over.
    pub clock: Arc<dyn Clock>,
}

/// The daemon's identity: its authority and its devices.
///
/// Functions that change something write files and wait for the journal, so they block; those that only look do not.
#[derive(Debug)]
pub struct Identity {
    registry: Registry,
    vault: Arc<dyn KeyVault>,
    journal: Arc<dyn IdentityJournal>,
    clock: Arc<dyn Clock>,
    zone: Zone,
    server: Arc<ServerCertificates>,
    tally: Tally,
    /// Retired generations whose keys this process has removed from the vault.
    forgotten: Mutex<BTreeSet<u32>>,
}

/// A device at the other end of a connection, as its certificate names it.
///
/// Only [`Identity::connected`] makes one. What the device may do is asked for every request, with [`Identity::check`].
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectedDevice {
    presented: Presented,
    device_id: DeviceId,
    principal: Principal,
    not_after: Timestamp,
}

impl ConnectedDevice {
    /// The device, from its certificate.
    #[must_use]
    pub fn device_id(&self) -> &DeviceId {
        &self.device_id
    }

    /// For whom it acts, from its certificate.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// SHA-256 of its certificate.
    #[must_use]
    pub fn certificate(&self) -> Digest {
        self.presented.sha256
    }

    /// When its certificate ends.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
}

impl Identity {
    /// Opens the daemon's identity, and makes one where there is none. Blocks.
    ///
    /// # Errors
    /// The registry is not accepted, the vault is locked, or the host fails.
    pub fn open(setup: IdentitySetup<'_>) -> Result<Arc<Self>, IdentityError> {
        let IdentitySetup { state_dir, hosts, vault, journal, clock } = setup;
        let registry = Registry::open(state_dir, Arc::clone(&journal), || found(&hosts, vault.as_ref(), clock.now()))?;
        let zone = registry.look().root.zone.clone();
        let server = Arc::default();
        let (tally, forgotten) = (Tally::default(), Mutex::default());
        let identity = Self { registry, vault, journal, clock, zone, server, tally, forgotten };
        identity.renew_server_certificate()?;
        Ok(Arc::new(identity))
    }

    /// The daemon's zone: what paired devices ask its servers for.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn server(&self) -> &Arc<ServerCertificates> {
        &self.server
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The device behind a connection whose handshake is over: `chain` is what the TLS library says that the peer
    /// presented.
    ///
    /// # Errors
    /// The certificate does not let its bearer in.
    pub fn connected(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<ConnectedDevice, CertificateRefusal> {
        let leaf = chain.and_then(<[_]>::first).ok_or(CertificateRefusal::Missing)?;
        let (device, _standing) = self.verify(leaf)?;
        Ok(device)
    }

    /// Whether a device may come in, and as whom, at this moment. For every request anew: what was revoked since the
    /// connection was made is revoked for whatever it does next.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, device: &ConnectedDevice) -> Result<Standing, CertificateRefusal> {
        self.registry.look().standing(&device.presented, self.clock.now())
    }

    /// Whether a device would come in that is not connected: for what it began and what goes on without it. With the
    /// digest of its newest certificate, and until when that holds.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_absent(&self, device: &DeviceId) -> Result<(Standing, Digest, Timestamp), CertificateRefusal> {
        let state = self.registry.look();
        let (standing, certificate) = state.standing_of(device, self.clock.now())?;
        Ok((standing, certificate.sha256, certificate.holds_until()))
    }

    /// The whole check of a certificate: what it is, then how it stands.
    pub(crate) fn verify(&self, leaf: &CertificateDer<'_>) -> Result<(ConnectedDevice, Standing), CertificateRefusal> {
        let now = self.clock.now();
        let state = self.registry.look();
        let found = verify::device(leaf, &self.zone, &state.generations, now)?;
        let standing = state.standing(&found.presented, now)?;
        // The registry and the certificate agree, or the certificate is not the one that was issued.
        if standing.device_id() != &found.device || standing.principal() != &found.principal {
            return Err(CertificateRefusal::NotIssued);
        }
        let verify::DeviceCertificate { presented, device: device_id, principal, not_after, .. } = found;
        Ok((ConnectedDevice { presented, device_id, principal, not_after }, standing))
    }

    /// Counts a refusal and tells the journal of the first of its kind.
    ///
    /// The verifier counts certificates that a handshake refuses; doors count what they refuse themselves. `source`
    /// says where the caller comes from, as exactly as the door knows.
    pub fn count_refusal(&self, source: &str, code: &'static str) {
        if let Some(event) = self.tally.count(source, code, self.clock.now()) {
            self.journal.note(event);
        }
    }

    pub(crate) fn note(&self, event: IdentityEvent) {
        self.journal.note(event);
    }
}

/// The root of a new registry, with a new authority whose key is in the vault.
fn found(hosts: &[Host], vault: &dyn KeyVault, now: Timestamp) -> Result<RootDocument, IdentityError> {
    check_hosts(hosts)?;
    let zone = Zone::mint()?;
    let (record, key) = authority::make(&zone, hosts, 1, now)?;
    vault.store(&KeyName::authority(1), &key)?;
    Ok(RootDocument { schema: SCHEMA, revision: 1, zone, authorities: vec![record], shards: BTreeMap::new() })
}

fn check_hosts(hosts: &[Host]) -> Result<(), IdentityError> {
    let characters: usize = hosts.iter().map(|host| host.to_string().len()).sum();
    if hosts.len() > MAX_HOSTS || characters > MAX_HOST_CHARACTERS {
        return Err(IdentityError::TooMany { what: "hosts", most: MAX_HOSTS });
    }
    Ok(())
}

/// The generation that signs new certificates of devices.
fn newest(generations: &[Generation], now: Timestamp) -> Result<&Generation, IdentityError> {
    let newest = generations.last().filter(|generation| generation.is_trusted(now));
    newest.ok_or(IdentityError::AuthorityNotValid)
}
