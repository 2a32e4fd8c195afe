//! The device registry: who was paired, with which certificates, and who was revoked.
//!
//! The registry is what the journal says it is (`registry/files.rs`). Changes are made one at a time; looks never wait
//! for one that is being written.

mod document;
mod files;
mod last_seen;
mod records;
mod state;

pub use files::{REGISTRY_FILE, SHARDS_DIRECTORY};
pub use last_seen::LAST_SEEN_FILE;
pub use records::{
    BROWSER_LIFE, CertificateRecord, DEVICE_LIFE, DeviceKind, DeviceRecord, DeviceState, DeviceView, DeviceWarning,
    LEAST_BETWEEN_RENEWALS, RENEW_BEFORE, Revocation, SUPERSEDED_LIFE, Serial,
};

pub(crate) use document::{MAX_DEVICES, MAX_GENERATIONS, RootDocument, SCHEMA, is_reason};
pub(crate) use state::{Presented, State};

use crate::error::IdentityError;
use crate::journal::{IdentityEvent, IdentityJournal, RecordedRegistry, RegistryChange};
use document::{ShardDocument, ShardId, check_device, shard_bytes};
use files::RegistryFiles;
use palyra_protocol::{DeviceId, Digest, Principal};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The registry.
#[derive(Debug)]
pub(crate) struct Registry {
    files: RegistryFiles,
    last_seen: PathBuf,
    journal: Arc<dyn IdentityJournal>,
    state: RwLock<State>,
    /// One change at a time.
    writing: Mutex<()>,
}

/// What becomes of a device.
#[derive(Debug)]
pub(crate) enum Edit {
    Put(Box<DeviceRecord>),
    Remove(DeviceId),
}

impl Edit {
    fn device(&self) -> &DeviceId {
        match self {
            Self::Put(record) => &record.device_id,
            Self::Remove(id) => id,
        }
    }
}

/// A change of the registry.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) by: Principal,
    /// What is changed, as the journal has it.
    pub(crate) what: Value,
    pub(crate) edits: Vec<Edit>,
    /// The root, where it changes in more than its shards.
    pub(crate) root: Option<RootDocument>,
}

impl Change {
    /// A change of devices alone.
    pub(crate) fn of(by: &Principal, what: Value, edits: Vec<Edit>) -> Self {
        Self { by: by.clone(), what, edits, root: None }
    }
}

impl Registry {
    /// Opens the registry of a state directory. Without one, `found` makes the root of a new one.
    ///
    /// # Errors
    /// The registry cannot be used; if it is not accepted, the journal is told.
    pub(crate) fn open(
        state_dir: &Path,
        journal: Arc<dyn IdentityJournal>,
        found: impl FnOnce() -> Result<RootDocument, IdentityError>,
    ) -> Result<Self, IdentityError> {
        let files = RegistryFiles::new(state_dir);
        let stored = stored(&files, journal.as_ref());
        if let Err(IdentityError::RegistryRefused { found, expected, why, .. }) = &stored {
            journal.note(IdentityEvent::RegistryRefused { found: *found, expected: *expected, why: why.clone() });
        }
        let state = match stored? {
            Some(state) => state,
            None => begin(&files, journal.as_ref(), found()?)?,
        };
        let last_seen = state_dir.join(LAST_SEEN_FILE);
        last_seen::restore(&last_seen, &state);
        Ok(Self { files, last_seen, journal, state: RwLock::new(state), writing: Mutex::default() })
    }

    /// The registry as it stands.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the registry: `plan` looks at it and says what to change. Nobody else changes it in between.
    ///
    /// # Errors
    /// What `plan` says, or the change cannot be recorded. The registry is then as it was.
    pub(crate) fn change<T>(
        &self,
        plan: impl FnOnce(&State) -> Result<(Change, T), IdentityError>,
    ) -> Result<T, IdentityError> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (change, made) = plan(&self.look())?;
        let written = Written::of(&self.look(), &self.files, change)?;
        self.commit(written)?;
        Ok(made)
    }

    /// The four steps; see `files.rs`. After the second the change counts, whatever becomes of the others.
    fn commit(&self, written: Written) -> Result<(), IdentityError> {
        let Written { by, what, edits, root, bytes, shards, replaced } = written;
        let (before, after, revision) = (self.look().digest, Digest::of(&bytes), root.revision);
        let new = || shards.iter().map(|(shard, digest, _)| (*shard, *digest));
        let prepared = self.files.prepare(&shards, &bytes).map_err(io(&self.files, "cannot be written"));
        let change = RegistryChange { by, change: what, revision, before: Some(before), after };
        let recorded = prepared.and_then(|()| Ok(self.journal.record(&change)?));
        if let Err(error) = recorded {
            self.files.abandon(new()).map_err(io(&self.files, "cannot be removed"))?;
            return Err(error);
        }
        self.look_before_replacing(revision);
        let replaced = self.files.replace().and_then(|()| self.files.discard(replaced.into_iter()));
        if let Err(error) = replaced {
            // It counts already; the next change, or the next start, puts the file in place.
            tracing::error!(error = &error as &dyn std::error::Error, "the device registry's files lag behind");
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for edit in edits {
            match edit {
                Edit::Put(record) => state.put(*record),
                Edit::Remove(id) => state.drop_device(&id),
            }
        }
        state.set_root(root, bytes, after).map_err(|what| IdentityError::Certification { what })
    }

    /// Whoever wrote the file while the daemon ran has changed nobody's rights; but it is not overwritten in silence.
    /// It is kept aside, and the journal says so. The change itself counts already, so nothing here can fail it.
    fn look_before_replacing(&self, revision: u64) {
        let state = self.look();
        match self.files.set_aside_unless(&state.bytes, revision) {
            Ok(None) => {}
            Ok(Some(odd)) => {
                let kept = odd.aside.map_or_else(String::new, |path| format!("; it is kept as `{}`", path.display()));
                let why = format!("while the daemon ran, another program wrote or removed it{kept}");
                tracing::warn!("the device registry was not as it was left: {why}");
                let (found, expected) = (odd.found, Some(state.digest));
                self.journal.note(IdentityEvent::RegistryRefused { found, expected, why });
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "a device registry that is not ours was not kept");
            }
        }
    }

    /// Writes down when devices last came, if one came since.
    pub(crate) fn save_last_seen(&self) {
        let state = self.look();
        if state.take_came() {
            last_seen::save(&self.last_seen, &state);
        }
    }
}

/// A change, checked and in bytes.
struct Written {
    by: Principal,
    what: Value,
    edits: Vec<Edit>,
    root: RootDocument,
    bytes: Vec<u8>,
    shards: Vec<(ShardId, Digest, Vec<u8>)>,
    /// The shards that no root names any more.
    replaced: Vec<(ShardId, Digest)>,
}

impl Written {
    fn of(state: &State, files: &RegistryFiles, change: Change) -> Result<Self, IdentityError> {
        let Change { by, what, edits, root } = change;
        let refuse = |why: String| refused(files, None, Some(state.digest), why);
        let mut root = root.unwrap_or_else(|| state.root.clone());
        root.revision += 1;
        for edit in &edits {
            if let Edit::Put(record) = edit {
                check_device(record).and_then(|()| state.check_unique(record)).map_err(refuse)?;
            }
        }
        let (mut shards, mut replaced) = (Vec::new(), Vec::new());
        for shard in edits.iter().map(|edit| ShardId::of(edit.device())).collect::<BTreeSet<_>>() {
            let earlier = root.shards.remove(&shard);
            let mut devices: BTreeMap<&DeviceId, &DeviceRecord> =
                state.shard(shard).map(|record| (&record.device_id, record)).collect();
            for edit in edits.iter().filter(|edit| ShardId::of(edit.device()) == shard) {
                match edit {
                    Edit::Put(record) => devices.insert(&record.device_id, record),
                    Edit::Remove(id) => devices.remove(id),
                };
            }
            if !devices.is_empty() {
                let bytes = shard_bytes(shard, devices.into_values().collect()).map_err(refuse)?;
                let digest = Digest::of(&bytes);
                root.shards.insert(shard, digest);
                shards.push((shard, digest, bytes));
            }
            let named = root.shards.get(&shard).copied();
            replaced.extend(earlier.filter(|earlier| Some(*earlier) != named).map(|earlier| (shard, earlier)));
        }
        root.check().map_err(refuse)?;
        if root.authorities != state.root.authorities {
            state::read_generations(&root).map_err(refuse)?;
        }
        let bytes = root.bytes().map_err(refuse)?;
        Ok(Self { by, what, edits, root, bytes, shards, replaced })
    }
}

fn io(files: &RegistryFiles, what: &'static str) -> impl FnOnce(std::io::Error) -> IdentityError {
    let path = files.root().to_owned();
    move |source| IdentityError::Io { path, what, source }
}

fn refused(files: &RegistryFiles, found: Option<Digest>, expected: Option<Digest>, why: String) -> IdentityError {
    IdentityError::RegistryRefused { path: files.root().to_owned(), found, expected, why }
}

/// The registry as it is stored, if it is the one that the journal knows.
fn stored(files: &RegistryFiles, journal: &dyn IdentityJournal) -> Result<Option<State>, IdentityError> {
    let expected = journal.newest()?;
    let read = || files.read_root().map_err(io(files, "cannot be read"));
    let mut bytes = read()?;
    let Some(RecordedRegistry { revision, digest }) = expected else {
        let found = bytes.as_deref().map(Digest::of);
        let why = || "nothing in the journal says that the daemon wrote it".to_owned();
        return if bytes.is_none() { Ok(None) } else { Err(refused(files, found, None, why())) };
    };
    let fits = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(Digest::of) == Some(digest);
    if !fits(&bytes) && files.finish(digest).map_err(io(files, "cannot be replaced"))? {
        tracing::warn!(revision, "a change of the device registry that was cut off is now complete");
        bytes = read()?;
    }
    if files.make_private().map_err(io(files, "cannot be made private"))? {
        tracing::warn!("others could read the device registry; it is private again");
    }
    let found = bytes.as_deref().map(Digest::of);
    let refuse = |why: String| refused(files, found, Some(digest), why);
    let Some(bytes) = bytes else { return Err(refuse(format!("it is missing; revision {revision} is the last one"))) };
    if found != Some(digest) {
        return Err(refuse(format!("it is not revision {revision}, which the daemon wrote last")));
    }
    let root = RootDocument::parse(&bytes).map_err(refuse)?;
    let state = load(files, root, bytes).map_err(refuse)?;
    files.sweep(&state.root.shards).map_err(io(files, "cannot be tidied up"))?;
    Ok(Some(state))
}

/// Reads the shards of a root that was accepted.
fn load(files: &RegistryFiles, root: RootDocument, bytes: Vec<u8>) -> Result<State, String> {
    let shards = root.shards.clone();
    let mut state = State::new(root, bytes)?;
    for (shard, digest) in shards {
        let wrong = |what: &str| format!("the shard `{shard}` {what}");
        let bytes = files.read_shard(shard, digest).map_err(|e| wrong(&format!("cannot be read: {e}")))?;
        let bytes = bytes.ok_or_else(|| wrong("is missing"))?;
        if Digest::of(&bytes) != digest {
            return Err(wrong("is not the one that the root names"));
        }
        for record in ShardDocument::parse(&bytes, shard).map_err(|what| wrong(&what))?.devices {
            state.check_unique(&record)?;
            state.put(record);
        }
    }
    if state.count() > MAX_DEVICES {
        return Err(format!("it has {} devices; at most {MAX_DEVICES} are kept", state.count()));
    }
    Ok(state)
}

/// Writes the first root.
fn begin(files: &RegistryFiles, journal: &dyn IdentityJournal, root: RootDocument) -> Result<State, IdentityError> {
    let refuse = |why: String| refused(files, None, None, why);
    let bytes = root.bytes().map_err(refuse)?;
    let state = State::new(root, bytes).map_err(refuse)?;
    files.prepare(&[], &state.bytes).map_err(io(files, "cannot be written"))?;
    let change = RegistryChange {
        by: Principal::daemon(),
        change: serde_json::json!({ "change": "authority_made", "zone": state.root.zone.as_str() }),
        revision: state.root.revision,
        before: None,
        after: state.digest,
    };
    if let Err(error) = journal.record(&change) {
        files.abandon(std::iter::empty()).map_err(io(files, "cannot be removed"))?;
        return Err(error.into());
    }
    files.replace().map_err(io(files, "cannot be replaced"))?;
    Ok(state)
}
