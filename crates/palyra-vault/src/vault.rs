//! The vault: secrets by reference, encrypted, in versions.
//!
//! A `Vault` is an opened vault: this process holds its lock, and a key slot was opened. Reading takes no lock and may
//! happen on any thread at any time; changes are made one after the other. All work is blocking: asynchronous callers
//! move it to a thread for that.

mod bindings;
mod migrate;
mod rekey;
mod slots;
mod status;
mod versions;

pub use migrate::MigrationReport;
pub use rekey::RekeyReport;
pub use status::{Pending, VaultStatus};
pub use versions::{
    DamagedBlob, Listing, OpenedSecret, PutOptions, PutReceipt, Replaces, SecretMetadata, VersionMetadata,
};

use crate::backend::{self, BackendChoice, Backends, BlobBackend, SystemBackends, TEMPORARY};
use crate::binding::Bindings;
use crate::durable;
use crate::envelope::{Kek, KekId};
use crate::error::VaultError;
use crate::header::{self, FORMAT, Header, SealedHeader};
use crate::lock::DirectoryLock;
use crate::slots::{self as key_slots, KeySources, NewSlot, SlotContext, SlotRecord, SlotStamp};
use palyra_protocol::{Clock, SystemClock, VaultId};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// What a vault needs from the world: time, and access to backends.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where backends and the keyring come from.
    pub backends: Arc<dyn Backends>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), backends: Arc::new(SystemBackends::default()) }
    }
}

/// An opened vault.
pub struct Vault {
    directory: PathBuf,
    _lock: DirectoryLock,
    pub(crate) surroundings: Surroundings,
    opened_by: u32,
    /// Taken by every change, for as long as it takes.
    writer: Mutex<()>,
    state: RwLock<Arc<State>>,
}

/// What the vault is at one moment. Replaced whole, after the header on disk was.
pub(crate) struct State {
    pub(crate) header: Header,
    pub(crate) keys: Keys,
    pub(crate) backend: Arc<dyn BlobBackend>,
    pub(crate) bindings: Arc<Bindings>,
}

/// The KEKs that blobs may be encrypted under.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) present: Kek,
    pub(crate) retired: Option<Kek>,
}

impl Keys {
    pub(crate) fn find(&self, id: KekId) -> Option<&Kek> {
        std::iter::once(&self.present).chain(&self.retired).find(|kek| kek.id == id)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Vault {
    /// Makes a vault in a directory that holds none, with at least one key slot.
    ///
    /// # Errors
    /// There is a vault already, another process is at it, or a slot or the backend cannot be used.
    pub fn create(
        directory: &Path,
        choice: BackendChoice,
        slots: Vec<(String, NewSlot)>,
        surroundings: Surroundings,
    ) -> Result<Self, VaultError> {
        durable::make_directory(directory)?;
        let lock = DirectoryLock::take(directory)?;
        if header::exists(directory)? {
            return Err(VaultError::Exists { path: directory.to_owned() });
        }
        prepare_temporary(directory)?;
        let vault = VaultId::mint();
        let kek = Kek::generate(&vault)?;
        let backend = backend::choose(choice, &*surroundings.backends, &vault, directory)?;
        let context = SlotContext { vault: &vault, backends: &*surroundings.backends };
        let records = new_slots(context, &kek, slots, &*surroundings.clock)?;
        let opened_by = records.first().map(|slot| slot.slot).ok_or(VaultError::LastSlot)?;
        let header = Header {
            format: FORMAT.to_owned(),
            created_at: surroundings.clock.now(),
            revision: 1,
            backend: backend.kind(),
            migration: None,
            kek: kek.id.0,
            retired: None,
            next_slot: records.iter().map(|slot| slot.slot + 1).max().unwrap_or(0),
            slots: records,
            bindings: Vec::new(),
            vault,
        };
        header.write(&kek, directory)?;
        let keys = Keys { present: kek, retired: None };
        Ok(Self::assemble(directory, lock, surroundings, opened_by, State::new(header, keys, backend)))
    }

    /// Opens a vault by one of its key slots.
    ///
    /// # Errors
    /// There is none, another process has it open, no slot opens, or it is damaged.
    pub fn open(directory: &Path, sources: &KeySources, surroundings: Surroundings) -> Result<Self, VaultError> {
        if !header::exists(directory)? {
            return Err(VaultError::NoVault { path: directory.to_owned() });
        }
        let lock = DirectoryLock::take(directory)?;
        prepare_temporary(directory)?;
        let missing = || VaultError::NoVault { path: directory.to_owned() };
        let sealed = SealedHeader::read(directory)?.ok_or_else(missing)?;
        let (opened_by, kek) = {
            let header = sealed.unverified();
            let context = SlotContext { vault: &header.vault, backends: &*surroundings.backends };
            let (slot, key) = key_slots::unlock(context, &header.slots, KekId(header.kek), sources)?;
            (slot, Kek::new(&header.vault, KekId(header.kek), key)?)
        };
        let header = sealed.verify(&kek)?;
        let retired = header.retired.as_ref().map(|retired| retired.open(&header.vault, &kek)).transpose()?;
        let backend = surroundings.backends.open(header.backend, &header.vault, directory)?;
        let keys = Keys { present: kek, retired };
        Ok(Self::assemble(directory, lock, surroundings, opened_by, State::new(header, keys, backend)))
    }

    fn assemble(
        directory: &Path,
        lock: DirectoryLock,
        surroundings: Surroundings,
        opened_by: u32,
        state: State,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            _lock: lock,
            surroundings,
            opened_by,
            writer: Mutex::new(()),
            state: RwLock::new(Arc::new(state)),
        }
    }

    /// The vault's id.
    #[must_use]
    pub fn id(&self) -> VaultId {
        self.state().header.vault.clone()
    }

    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other change is being made.
    pub(crate) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a changed header and then lives by it. The caller holds the writer's lock.
    pub(crate) fn replace_header(&self, mut header: Header, keys: Keys) -> Result<(), VaultError> {
        header.revision += 1;
        header.write(&keys.present, &self.directory)?;
        let backend = Arc::clone(&self.state().backend);
        self.replace_state(State::new(header, keys, backend));
        Ok(())
    }

    pub(crate) fn replace_state(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }
}

impl State {
    fn new(header: Header, keys: Keys, backend: Arc<dyn BlobBackend>) -> Self {
        let bindings = Arc::new(Bindings::new(header.bindings.clone()));
        Self { header, keys, backend, bindings }
    }
}

/// Makes the directory for temporary files, and removes what a crash has left in it.
fn prepare_temporary(directory: &Path) -> Result<(), VaultError> {
    let temporary = directory.join(TEMPORARY);
    durable::make_directory(&temporary)?;
    let failed = |source| VaultError::io(&temporary, "cannot be listed", source);
    for entry in std::fs::read_dir(&temporary).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        std::fs::remove_file(&path).map_err(|source| VaultError::io(&path, "cannot be removed", source))?;
    }
    Ok(())
}

fn new_slots(
    context: SlotContext<'_>,
    kek: &Kek,
    slots: Vec<(String, NewSlot)>,
    clock: &dyn Clock,
) -> Result<Vec<SlotRecord>, VaultError> {
    let mut records = Vec::with_capacity(slots.len());
    for (slot, (label, new)) in (0..).zip(slots) {
        let stamp = SlotStamp { slot, label: slots::checked_label(label)?, created_at: clock.now() };
        records.push(SlotRecord::make(context, kek, new, stamp)?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests;
