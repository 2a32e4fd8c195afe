//! Records of skill calls, kept for replay: one file for each call, the oldest given up when they take too much room.
//!
//! A record holds what the code heard from outside. One of a call that read a secret may hold parts of it, and is not
//! kept.

use palyra_plugins::CallRecord;
use palyra_protocol::{CallId, Digest};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The largest record that is read back.
const MOST_RECORD_BYTES: u64 = 64 << 20;

/// The records.
#[derive(Debug)]
pub(super) struct RecordStore {
    directory: PathBuf,
    most_bytes: u64,
    /// The size of each, by the call's id, which grows with time; counted when the first is kept.
    sizes: Mutex<Option<BTreeMap<String, u64>>>,
}

impl RecordStore {
    pub(super) fn new(directory: PathBuf, most_bytes: u64) -> Self {
        Self { directory, most_bytes, sizes: Mutex::default() }
    }

    fn file(&self, call: &str) -> PathBuf {
        self.directory.join(format!("{call}.json"))
    }

    /// Keeps a record, if it can be replayed; gives its digest. A record that cannot be written is given up: the call's
    /// outcome does not depend on it. Blocks.
    pub(super) fn keep(&self, call: &CallId, record: &CallRecord) -> Option<Digest> {
        if !record.complete || record.may_hold_secrets() {
            return None;
        }
        let text = record.to_json().ok()?;
        let kept = self.write(call.as_str(), text.as_bytes());
        if let Err(error) = &kept {
            tracing::warn!(%error, %call, "a call of a skill cannot be replayed: its record was not kept");
        }
        kept.ok().map(|()| Digest::of(text.as_bytes()))
    }

    fn write(&self, call: &str, bytes: &[u8]) -> std::io::Result<()> {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = match &mut *sizes {
            Some(sizes) => sizes,
            none => none.insert(counted(&self.directory)?),
        };
        let mut total: u64 = sizes.values().sum::<u64>() + bytes.len() as u64;
        while total > self.most_bytes
            && let Some((oldest, size)) = sizes.pop_first()
        {
            total -= size;
            match std::fs::remove_file(self.file(&oldest)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if total > self.most_bytes {
            return Err(std::io::Error::other("it is larger than all records together may be"));
        }
        let prepared = self.directory.join("prepared");
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&prepared)?;
        std::io::Write::write_all(&mut file, bytes)?;
        std::fs::rename(&prepared, self.file(call))?;
        sizes.insert(call.to_owned(), bytes.len() as u64);
        Ok(())
    }

    /// The record of a call, as it was written; none where none is kept. Blocks.
    pub(super) fn read(&self, call: &CallId) -> std::io::Result<Option<Vec<u8>>> {
        let path = self.file(call.as_str());
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() > MOST_RECORD_BYTES => Err(std::io::Error::other("the record is too large")),
            Ok(_) => std::fs::read(&path).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn counted(directory: &Path) -> std::io::Result<BTreeMap<String, u64>> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut sizes = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(call) = name.to_str().and_then(|name| name.strip_suffix(".json")) {
            sizes.insert(call.to_owned(), entry.metadata()?.len());
        }
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let store = RecordStore::new(dir.path().join("records"), 10);
        store.write("call_1", b"aaaa").unwrap();
        store.write("call_2", b"bbbb").unwrap();
        // Another daemon on the same directory counts what is there.
        let store = RecordStore::new(dir.path().join("records"), 10);
        store.write("call_3", b"cccc").unwrap();
        let mut left: Vec<_> = counted(&dir.path().join("records")).unwrap().into_keys().collect();
        left.sort();
        assert_eq!(left, ["call_2", "call_3"]);
        assert!(store.write("call_4", b"more than there is room for").is_err());
    }
}
