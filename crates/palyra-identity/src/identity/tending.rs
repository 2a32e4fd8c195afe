//! What has to be done now and then, whoever comes: certificates that end, devices that never came, counts to write
//! down.

use super::Identity;
use super::authorities::MAX_OVERLAP;
use crate::error::IdentityError;
use crate::registry::{Change, DeviceRecord, Edit, State};
use palyra_protocol::{DeviceId, Principal, Timestamp};
use serde_json::json;

/// How many devices that never came are removed at a time.
const MAX_REMOVED: usize = 64;

impl Identity {
    /// Does what is due. To be called about once a minute; blocks.
    ///
    /// The server's certificate is renewed, the authority is followed by its next generation, keys of retired ones
    /// leave the vault, devices that were paired and never came are removed, and what is counted in memory is written
    /// down.
    ///
    /// # Errors
    /// The first thing that failed; the rest was done.
    pub fn tend(&self) -> Result<(), IdentityError> {
        let done = [
            if self.succession_due() {
                self.rotate_authority(&Principal::daemon(), MAX_OVERLAP, None).map(drop)
            } else {
                Ok(())
            },
            if self.server_certificate_due() { self.renew_server_certificate() } else { Ok(()) },
            self.forget_retired_keys(),
            self.remove_uncollected(),
        ];
        self.tally.drain().into_iter().for_each(|event| self.note(event));
        self.registry().save_last_seen();
        done.into_iter().collect()
    }

    /// Removes devices whose pairing ended on the daemon's side alone: the certificate was issued, nobody ever came
    /// with it, and it is over.
    fn remove_uncollected(&self) -> Result<(), IdentityError> {
        let now = self.now();
        if uncollected(&self.registry().look(), now).is_empty() {
            return Ok(());
        }
        self.registry().change(|state| {
            let gone = uncollected(state, now);
            let what = json!({ "change": "devices_never_collected", "devices": gone });
            let edits = gone.into_iter().map(Edit::Remove).collect();
            Ok((Change::of(&Principal::daemon(), what, edits), ()))
        })
    }
}

fn uncollected(state: &State, now: Timestamp) -> Vec<DeviceId> {
    let never_came = |record: &&DeviceRecord| {
        let [only] = &record.certificates[..] else { return false };
        record.revoked.is_none() && only.not_after <= now && state.last_seen(&record.device_id).is_none()
    };
    state.devices().filter(never_came).take(MAX_REMOVED).map(|record| record.device_id.clone()).collect()
}
