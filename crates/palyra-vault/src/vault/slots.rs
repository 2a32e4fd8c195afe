//! Key slots of an opened vault: list, add, remove.

use super::Vault;
use crate::error::VaultError;
use crate::slots::{self, MAX_LABEL, MAX_SLOTS, NewSlot, SlotContext, SlotInfo, SlotRecord, SlotStamp};
use palyra_protocol::display::deceives;

impl Vault {
    /// The key slots, in the order they were made.
    #[must_use]
    pub fn slots(&self) -> Vec<SlotInfo> {
        self.state().header.slots.iter().map(SlotRecord::info).collect()
    }

    /// Adds a key slot that opens to the same KEK.
    ///
    /// # Errors
    /// There are too many, or the slot's secret cannot be made or kept.
    pub fn add_slot(&self, label: &str, new: NewSlot) -> Result<SlotInfo, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let mut header = state.header.clone();
        if header.slots.len() >= MAX_SLOTS {
            return Err(VaultError::TooManySlots { limit: MAX_SLOTS });
        }
        let context = SlotContext { vault: &header.vault, backends: &*self.surroundings.backends };
        let created_at = self.surroundings.clock.now();
        let stamp = SlotStamp { slot: header.next_slot, label: checked_label(label.to_owned())?, created_at };
        let record = SlotRecord::make(context, &state.keys.present, new, stamp)?;
        let info = record.info();
        header.next_slot = header.next_slot.saturating_add(1);
        header.slots.push(record);
        self.replace_header(header, state.keys.clone())?;
        Ok(info)
    }

    /// Removes a key slot. Whoever kept a copy of the header and the slot's secret can still open that copy: `rekey`
    /// ends that.
    ///
    /// # Errors
    /// There is no such slot, or it is the last one.
    pub fn remove_slot(&self, slot: u32) -> Result<SlotInfo, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let mut header = state.header.clone();
        let at = header.slots.iter().position(|record| record.slot == slot).ok_or(VaultError::NoSuchSlot { slot })?;
        if header.slots.len() == 1 {
            return Err(VaultError::LastSlot);
        }
        let removed = header.slots.remove(at);
        self.replace_header(header, state.keys.clone())?;
        // The slot is gone whether or not the keyring can be reached to clean up; its item opens nothing any more.
        let context = SlotContext { vault: &state.header.vault, backends: &*self.surroundings.backends };
        drop(slots::forget(context, &removed));
        Ok(removed.info())
    }
}

pub(super) fn checked_label(label: String) -> Result<String, VaultError> {
    let fits = label.chars().count() <= MAX_LABEL && !label.chars().any(deceives);
    if fits { Ok(label) } else { Err(VaultError::Label { limit: MAX_LABEL }) }
}
