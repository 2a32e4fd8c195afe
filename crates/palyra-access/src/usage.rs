//! When tokens were last used: kept in memory, written now and then, and never worth refusing anything over.
//!
//! No right depends on it, so it has a file of its own beside the registry: a request never causes a write, and the
//! registry's file only changes when the registry is edited.

use crate::state::State;
use palyra_protocol::{Timestamp, TokenId};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The file's name in the state directory.
pub(crate) const FILE: &str = "access_usage.json";
/// More than a hundred thousand entries take.
const MAX_BYTES: u64 = 16 << 20;

/// Takes over what an earlier process wrote. What cannot be read is forgotten.
pub(crate) fn restore(path: &Path, state: &State) {
    let mut text = String::new();
    let read = OpenOptions::new().read(true).open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => match serde_json::from_str::<BTreeMap<TokenId, Timestamp>>(&text) {
            Ok(uses) => uses.iter().for_each(|(id, at)| state.remember_use(id, *at)),
            Err(error) => tracing::warn!(%error, "when tokens were last used is not known any more"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "when tokens were last used cannot be read"),
    }
}

/// Writes down what is known.
pub(crate) fn save(path: &Path, state: &State) {
    let uses: BTreeMap<&TokenId, Timestamp> = state.last_uses().collect();
    let write = || -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&uses)?;
        let beside = path.with_extension("json.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "when tokens were last used could not be written down");
    }
}
