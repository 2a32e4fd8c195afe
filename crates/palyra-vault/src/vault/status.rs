//! What a vault is, for its operator.

use super::Vault;
use crate::backend::BackendKind;
use crate::header::MigrationStage;
use crate::slots::{SlotInfo, SlotRecord};
use palyra_protocol::{Timestamp, VaultId};
use serde::Serialize;
use std::path::PathBuf;

/// What a vault is at this moment.
#[derive(Debug, Clone, Serialize)]
pub struct VaultStatus {
    /// Its id.
    pub vault: VaultId,
    /// Where it lies.
    pub directory: PathBuf,
    /// When it was made.
    pub created_at: Timestamp,
    /// How often its header was changed.
    pub revision: u64,
    /// Where its secrets are.
    pub backend: BackendKind,
    /// Its key slots. What each protects from is said by [`crate::SlotKind::protects_from`] and its counterpart.
    pub slots: Vec<SlotInfo>,
    /// The slot that this process opened it by.
    pub opened_by: u32,
    /// How many bindings it has.
    pub bindings: usize,
    /// What was begun and must be finished.
    pub pending: Vec<Pending>,
}

/// Something that was begun and must be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    /// Blobs are still encrypted under the KEK before this one: `resume_rekey`.
    Rekey,
    /// Blobs are being copied to another backend: `migrate` to the same one goes on.
    MigrationTo(BackendKind),
    /// Copies are left in the backend before this one: `resume_migration`.
    CleaningOf(BackendKind),
}

impl Vault {
    /// What the vault is at this moment.
    #[must_use]
    pub fn status(&self) -> VaultStatus {
        let state = self.state();
        let header = &state.header;
        let rekey = header.retired.is_some().then_some(Pending::Rekey);
        let migration = header.migration.map(|migration| match migration.stage {
            MigrationStage::Copying => Pending::MigrationTo(migration.other),
            MigrationStage::Cleaning => Pending::CleaningOf(migration.other),
        });
        VaultStatus {
            vault: header.vault.clone(),
            directory: self.directory.clone(),
            created_at: header.created_at,
            revision: header.revision,
            backend: header.backend,
            slots: header.slots.iter().map(SlotRecord::info).collect(),
            opened_by: self.opened_by,
            bindings: header.bindings.len(),
            pending: rekey.into_iter().chain(migration).collect(),
        }
    }
}
