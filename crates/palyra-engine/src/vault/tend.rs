//! Tending the vault itself: unlocking, key slots, another key, another backend, copies of all of it.
//!
//! Only people whom policy lets `vault.manage` come here. Each step is recorded before it is taken and again when it is
//! done.

use super::manage::SlotRequest;
use super::store::Absent;
use super::{BackendKind, ImportConflict, SecretValue, VaultError};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_protocol::{Problem, VaultChangeKind};
use palyra_vault::{ExportReport, ImportReport, MigrationReport, NewSlot, PassphraseCost, RekeyReport, SlotInfo};
use std::fs::File;

impl Engine {
    /// Opens the vault with a passphrase, until the daemon ends.
    ///
    /// # Errors
    /// The peer may not, or the passphrase opens no slot.
    pub async fn vault_unlock(&self, peer: &VerifiedPeer, passphrase: SecretValue) -> Result<(), EngineError> {
        self.manage_vault(peer, "a person unlocks the vault").await?;
        let opened = self.in_vault(move |store| store.open_with(Absent::Leave, Some(passphrase))).await?;
        opened.map(drop).ok_or_else(no_vault)
    }

    /// Adds a key slot.
    ///
    /// # Errors
    /// The peer may not, or the slot cannot be made.
    pub async fn vault_add_slot(
        &self,
        peer: &VerifiedPeer,
        label: String,
        slot: SlotRequest,
    ) -> Result<SlotInfo, EngineError> {
        self.manage_vault(peer, "a person adds a key slot").await?;
        let info = self
            .in_vault(move |store| {
                let slot = match slot {
                    SlotRequest::KeyFile(path) => NewSlot::KeyFile(path),
                    SlotRequest::Passphrase(passphrase) => NewSlot::Passphrase(passphrase, PassphraseCost::default()),
                    SlotRequest::Keyring => NewSlot::Keyring,
                    SlotRequest::Command(name) => {
                        let command = store.settings().commands.iter().find(|command| command.name() == name);
                        NewSlot::Command(command.cloned().ok_or(VaultError::SlotUnavailable {
                            slot: 0,
                            kind: palyra_vault::SlotKind::Command,
                            reason: format!("`[vault.commands]` of the configuration has no `{name}`"),
                        })?)
                    }
                };
                store.existing()?.add_slot(&label, slot)
            })
            .await?;
        let what = VaultChangeKind::SlotAdded { slot: info.slot, opens_by: info.kind.to_string() };
        self.note_change(peer.effective().clone(), what, None).await?;
        Ok(info)
    }

    /// Removes a key slot.
    ///
    /// # Errors
    /// The peer may not, there is none, or it is the last one.
    pub async fn vault_remove_slot(&self, peer: &VerifiedPeer, slot: u32) -> Result<SlotInfo, EngineError> {
        self.manage_vault(peer, "a person removes a key slot").await?;
        let info = self.in_vault(move |store| store.existing()?.remove_slot(slot)).await?;
        self.note_change(peer.effective().clone(), VaultChangeKind::SlotRemoved { slot }, None).await?;
        Ok(info)
    }

    /// Gives the vault another key-encryption key.
    ///
    /// # Errors
    /// The peer may not, or a slot's secret is not at hand.
    pub async fn vault_rekey(
        &self,
        peer: &VerifiedPeer,
        passphrases: Vec<SecretValue>,
    ) -> Result<RekeyReport, EngineError> {
        self.manage_vault(peer, "a person replaces the key-encryption key").await?;
        let report = self
            .in_vault(move |store| {
                let vault = store.existing()?;
                vault.rekey(&store.sources(passphrases)?)
            })
            .await?;
        let what =
            VaultChangeKind::Rekeyed { rewrapped: report.rewrapped as u64, damaged: report.damaged.len() as u64 };
        self.note_change(peer.effective().clone(), what, None).await?;
        Ok(report)
    }

    /// Moves all secrets to another backend.
    ///
    /// # Errors
    /// The peer may not, or the other backend cannot be used; the old one then still counts.
    pub async fn vault_migrate(&self, peer: &VerifiedPeer, to: BackendKind) -> Result<MigrationReport, EngineError> {
        self.manage_vault(peer, "a person moves the secrets to another backend").await?;
        let report = self.in_vault(move |store| store.existing()?.migrate(to)).await?;
        let what = VaultChangeKind::Migrated { to: to.as_str().to_owned() };
        self.note_change(peer.effective().clone(), what, None).await?;
        Ok(report)
    }

    /// Writes all secrets and bindings to a file, sealed by a passphrase.
    ///
    /// # Errors
    /// The peer may not, or it cannot be written.
    pub async fn vault_export(
        &self,
        peer: &VerifiedPeer,
        mut out: File,
        passphrase: SecretValue,
    ) -> Result<(File, ExportReport), EngineError> {
        self.manage_vault(peer, "a person exports all secrets").await?;
        let (out, report) = self
            .in_vault(move |store| {
                let report = store.existing()?.export(&mut out, &passphrase, PassphraseCost::default())?;
                Ok((out, report))
            })
            .await?;
        let what = VaultChangeKind::Exported { secrets: report.secrets as u64 };
        self.note_change(peer.effective().clone(), what, None).await?;
        Ok((out, report))
    }

    /// Adds the secrets and bindings of an exported file.
    ///
    /// # Errors
    /// The peer may not, the passphrase is wrong, or the file was changed.
    pub async fn vault_import(
        &self,
        peer: &VerifiedPeer,
        mut file: File,
        passphrase: SecretValue,
        conflict: ImportConflict,
    ) -> Result<ImportReport, EngineError> {
        self.manage_vault(peer, "a person imports secrets").await?;
        let by = peer.effective().clone();
        let (made, report) = self
            .in_vault(move |store| {
                let opened = store.open(Absent::Make)?.ok_or(VaultError::Internal { what: "no vault was made" })?;
                Ok((opened.made, opened.vault.import(&mut file, &passphrase, conflict)?))
            })
            .await?;
        self.note_made(&by, made).await?;
        let what = VaultChangeKind::Imported { added: report.added as u64, replaced: report.replaced as u64 };
        self.note_change(by, what, None).await?;
        Ok(report)
    }
}

fn no_vault() -> EngineError {
    EngineError::new(
        ErrorKind::Conflict,
        Problem::new("vault_missing", "there is no vault yet", "the first `palyra vault put` makes it"),
    )
}
