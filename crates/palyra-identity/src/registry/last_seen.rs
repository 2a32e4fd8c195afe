//! When devices last came: kept in memory, written now and then, and never worth refusing anything over.
//!
//! No right depends on it, so it has a file of its own beside the registry: a request never causes a write, and the
//! registry changes only when somebody changes it.

use super::state::State;
use crate::private_file;
use palyra_protocol::{DeviceId, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;

/// The file's name in the state directory.
pub const LAST_SEEN_FILE: &str = "identity_last_seen.json";
/// More than two hundred thousand entries take.
const MAX_BYTES: u64 = 32 << 20;

/// Takes over what an earlier process wrote. What cannot be read is forgotten.
pub(crate) fn restore(path: &Path, state: &State) {
    let bytes = match private_file::read(path, MAX_BYTES) {
        Ok(Some((bytes, _))) => bytes,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, "when devices last came cannot be read"),
    };
    match serde_json::from_slice::<BTreeMap<DeviceId, Timestamp>>(&bytes) {
        Ok(seen) => seen.iter().for_each(|(id, at)| state.remember_seen(id, *at)),
        Err(error) => tracing::warn!(%error, "when devices last came is not known any more"),
    }
}

/// Writes down what is known.
pub(crate) fn save(path: &Path, state: &State) {
    let seen: BTreeMap<&DeviceId, Timestamp> =
        state.devices().filter_map(|device| Some((&device.device_id, state.last_seen(&device.device_id)?))).collect();
    let written =
        serde_json::to_vec(&seen).map_err(std::io::Error::other).and_then(|bytes| private_file::replace(path, &bytes));
    if let Err(error) = written {
        tracing::warn!(%error, "when devices last came could not be written down");
    }
}
