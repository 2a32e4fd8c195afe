//! Moving all blobs to another backend.
//!
//! 1. The header says where the copies go; the old backend still counts.
//! 2. Every blob is copied and read back.
//! 3. The header is replaced: the new backend counts, the old one is to be cleaned.
//! 4. The blobs of the old backend are removed, then the header says that nothing is left.
//!
//! At no moment is a secret in neither. A crash in step 2 leaves the old backend in charge, one in step 4 the new one;
//! running the same command again goes on.

use super::{State, Vault};
use crate::backend::{BackendKind, BlobBackend, BlobId, probe};
use crate::crash::point;
use crate::error::VaultError;
use crate::header::{Migration, MigrationStage};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many blobs are copied at once.
const BATCH: usize = 256;

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationReport {
    /// How many blobs were copied.
    pub copied: usize,
    /// How many blobs were removed from the old backend.
    pub removed: usize,
}

impl Vault {
    /// Moves all blobs to another backend. Nothing can be put while it runs; everything can be read.
    ///
    /// # Errors
    /// The other backend cannot be used or cannot keep a blob of that size, or the copies are not what was written. The
    /// old backend then still counts.
    pub fn migrate(&self, to: BackendKind) -> Result<MigrationReport, VaultError> {
        let _writing = self.writing();
        let cleaned = self.clean()?;
        let state = self.state();
        if state.header.backend == to {
            return self.abandon_unless(to).map(|()| MigrationReport { copied: 0, removed: cleaned });
        }
        let target = self.surroundings.backends.open(to, &state.header.vault, &self.directory)?;
        probe(&*target)?;
        self.abandon_unless(to)?;
        self.set_migration(Some(Migration { stage: MigrationStage::Copying, other: to }))?;
        point("migrate.begun");
        let copied = copy(&*state.backend, &*target)?;
        self.switch(target)?;
        point("migrate.switched");
        let removed = cleaned + self.clean()?;
        Ok(MigrationReport { copied, removed })
    }

    /// Removes what an interrupted migration has left in the backend before this one; does nothing if there is nothing.
    ///
    /// # Errors
    /// That backend cannot be used.
    pub fn resume_migration(&self) -> Result<MigrationReport, VaultError> {
        let _writing = self.writing();
        Ok(MigrationReport { copied: 0, removed: self.clean()? })
    }

    /// Gives up a move to another backend that was interrupted while it copied: the copies are removed.
    fn abandon_unless(&self, to: BackendKind) -> Result<(), VaultError> {
        let state = self.state();
        let other = match state.header.migration {
            Some(Migration { stage: MigrationStage::Copying, other }) if other != to => other,
            _ => return Ok(()),
        };
        let copies = self.surroundings.backends.open(other, &state.header.vault, &self.directory)?;
        remove_all(&*copies)?;
        self.set_migration(None)
    }

    fn set_migration(&self, migration: Option<Migration>) -> Result<(), VaultError> {
        let state = self.state();
        let mut header = state.header.clone();
        header.migration = migration;
        self.replace_header(header, state.keys.clone())
    }

    /// Step 3: the other backend counts from now on.
    fn switch(&self, target: Arc<dyn BlobBackend>) -> Result<(), VaultError> {
        let state = self.state();
        let mut header = state.header.clone();
        header.migration = Some(Migration { stage: MigrationStage::Cleaning, other: header.backend });
        header.backend = target.kind();
        header.revision += 1;
        header.write(&state.keys.present, &self.directory)?;
        self.replace_state(State::new(header, state.keys.clone(), target));
        Ok(())
    }

    /// Step 4. The caller holds the writer's lock.
    fn clean(&self) -> Result<usize, VaultError> {
        let state = self.state();
        let Some(Migration { stage: MigrationStage::Cleaning, other }) = state.header.migration else { return Ok(0) };
        let old = self.surroundings.backends.open(other, &state.header.vault, &self.directory)?;
        let removed = remove_all(&*old)?;
        self.set_migration(None)?;
        Ok(removed)
    }
}

/// Step 2: the target has exactly what the source has.
fn copy(source: &dyn BlobBackend, target: &dyn BlobBackend) -> Result<usize, VaultError> {
    let ids = source.list()?;
    for ids in ids.chunks(BATCH) {
        let mut batch: Vec<(BlobId, Vec<u8>)> = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(bytes) = source.read(*id)? {
                let limit = target.limit();
                if bytes.len() > limit {
                    return Err(VaultError::BackendLimit { backend: target.kind(), bytes: bytes.len(), limit });
                }
                batch.push((*id, bytes));
            }
        }
        target.write_all(&batch)?;
        point("migrate.batch");
        for (id, bytes) in &batch {
            if target.read(*id)?.as_ref() != Some(bytes) {
                return Err(VaultError::damaged(&target.kind().to_string(), "it did not give back what was written"));
            }
        }
    }
    // A move that was interrupted earlier may have copied what was deleted since.
    let wanted: BTreeSet<BlobId> = ids.iter().copied().collect();
    for id in target.list()?.into_iter().filter(|id| !wanted.contains(id)) {
        target.remove(id)?;
    }
    Ok(ids.len())
}

fn remove_all(backend: &dyn BlobBackend) -> Result<usize, VaultError> {
    let ids = backend.list()?;
    for id in &ids {
        backend.remove(*id)?;
        point("migrate.removed");
    }
    Ok(ids.len())
}
