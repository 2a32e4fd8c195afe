//! Rekeying: another key-encryption key (KEK).
//!
//! 1. The header is replaced: the slots open to the new KEK, and the old one is kept in it, encrypted under the new.
//! 2. Every blob is replaced by one whose data keys are wrapped under the new KEK. Values are not touched.
//! 3. When no blob is left under the old KEK, the header is replaced again, without it.
//!
//! Every state in between can be read, and new values are written under the new KEK at once. A crash is made good by
//! going on with step 2. A damaged blob cannot be wrapped anew: then the old KEK stays until the blob was restored or
//! deleted.

use super::{Keys, State, Vault};
use crate::backend::BlobId;
use crate::crash::point;
use crate::envelope::{Head, Kek, KekId};
use crate::error::VaultError;
use crate::header::RetiredKek;
use crate::slots::{self, KeySources, SlotContext};
use crate::vault::versions::DamagedBlob;
use std::sync::Arc;

/// How many blobs are replaced at once.
const BATCH: usize = 256;

/// What a rekey did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RekeyReport {
    /// How many blobs were wrapped anew.
    pub rewrapped: usize,
    /// Blobs that could not be read. Where there are any, the old KEK is kept.
    pub damaged: Vec<DamagedBlob>,
}

impl RekeyReport {
    /// Whether the old KEK is gone.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.damaged.is_empty()
    }
}

impl Vault {
    /// Gives the vault another KEK. The secret of every slot must be at hand, because each has to open to the new one;
    /// a slot whose secret is lost is removed first. A rekey that was interrupted is finished before another begins.
    ///
    /// # Errors
    /// A slot's secret is not at hand, an earlier rekey cannot be finished, or something cannot be written. Whatever
    /// was done until then stays readable.
    pub fn rekey(&self, sources: &KeySources) -> Result<RekeyReport, VaultError> {
        let _writing = self.writing();
        if self.state().header.retired.is_some() && !self.rewrap()?.is_complete() {
            return Err(VaultError::Unfinished { what: "rekey" });
        }
        let state = self.state();
        let mut header = state.header.clone();
        let context = SlotContext { vault: &header.vault, backends: &*self.surroundings.backends };
        let kek = Kek::generate(&header.vault)?;
        header.slots = slots::relock(context, &header.slots, KekId(header.kek), &kek, sources)?;
        header.kek = kek.id.0;
        header.retired = Some(RetiredKek::new(&header.vault, &kek, &state.keys.present)?);
        self.replace_header(header, Keys { present: kek, retired: Some(state.keys.present.clone()) })?;
        point("rekey.begun");
        self.rewrap()
    }

    /// Goes on with a rekey that was interrupted; does nothing if there was none.
    ///
    /// # Errors
    /// Something cannot be read or written.
    pub fn resume_rekey(&self) -> Result<RekeyReport, VaultError> {
        let _writing = self.writing();
        self.rewrap()
    }

    /// Steps 2 and 3. The caller holds the writer's lock.
    fn rewrap(&self) -> Result<RekeyReport, VaultError> {
        let mut report = RekeyReport { rewrapped: 0, damaged: Vec::new() };
        let state = self.state();
        if state.keys.retired.is_none() {
            return Ok(report);
        }
        for ids in state.backend.list()?.chunks(BATCH) {
            let mut batch = Vec::new();
            for id in ids {
                match self.head(&state, *id)? {
                    None => {}
                    Some(Err(damaged)) => report.damaged.push(damaged),
                    Some(Ok(head)) if head.kek == state.keys.present.id => {}
                    Some(Ok(head)) => match rewrapped(&state, *id, head)? {
                        Ok(blob) => batch.push((*id, blob)),
                        Err(damaged) => report.damaged.push(damaged),
                    },
                }
            }
            state.backend.write_all(&batch)?;
            report.rewrapped += batch.len();
            point("rekey.batch");
        }
        if report.is_complete() {
            let mut header = state.header.clone();
            header.retired = None;
            self.replace_header(header, Keys { present: state.keys.present.clone(), retired: None })?;
            point("rekey.done");
        }
        Ok(report)
    }
}

/// The blob under the present KEK.
fn rewrapped(state: &Arc<State>, id: BlobId, head: Head) -> Result<Result<Vec<u8>, DamagedBlob>, VaultError> {
    let reference = head.reference;
    let missing = || VaultError::NotFound { reference: reference.clone() };
    let bytes = state.backend.read(id)?.ok_or_else(missing)?;
    let written = state.envelope(&reference, &bytes).and_then(|(envelope, kek)| {
        let parts = envelope.parts(kek, &state.keys.present, |_| true)?;
        state.sealed(&reference, &parts)
    });
    match written {
        Ok(blob) => Ok(Ok(blob)),
        Err(VaultError::Damaged { reason, .. }) => Ok(Err(DamagedBlob { blob: id, alleged: Some(reference), reason })),
        Err(error) => Err(error),
    }
}
