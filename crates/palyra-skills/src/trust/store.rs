//! The trust store's file, replaced so that a crash at any instant leaves one that is whole.
//!
//! A change takes four steps: the new document is written beside the file and made durable; a ledger, which is the
//! journal, records its digest, which is the moment the change counts; the file is replaced; the directory is made
//! durable. Opening compares with the digest that was recorded last. The file fits: all is well. The copy beside it
//! fits: a crash came after the record, and the replacement is finished. Neither fits: somebody else wrote the file, or
//! put an old one back, and the store is refused. An older store is as bad as a forged one: it may trust a key that was
//! revoked.

use super::change::{ChangeError, TrustChange};
use super::document::{DocumentFlaw, MAX_TRUST_BYTES, TrustDocument};
use crate::files::{read_regular, sync_directory, write_durably};
use palyra_protocol::{Digest, Timestamp};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How the name of a prepared document ends.
const PREPARED: &str = ".new";

/// What the ledger keeps of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRecord {
    /// The number of the change.
    pub revision: u64,
    /// SHA-256 of the new document.
    pub digest: Digest,
    /// What changes, for people.
    pub changes: Vec<String>,
}

/// Where digests are recorded: the journal.
pub trait TrustLedger {
    /// The digest that was recorded last; nothing if none ever was.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn last(&self) -> std::io::Result<Option<Digest>>;

    /// Records a change. When this returns, the record is durable.
    ///
    /// # Errors
    /// It could not be recorded; then the change does not count.
    fn record(&mut self, record: &TrustRecord) -> std::io::Result<()>;
}

/// Why the store cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk failed.
    #[error("the trust store `{}` cannot be {what}: {source}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The ledger failed, so nothing changed.
    #[error("the change of the trust store could not be recorded: {source}")]
    Ledger {
        /// Why.
        source: std::io::Error,
    },
    /// The file is not the one that was recorded.
    #[error("the trust store `{}` is not the one that was recorded last: it was edited, or an older one was put back", path.display())]
    Tampered {
        /// The file.
        path: PathBuf,
        /// Its digest; nothing if there is no file.
        found: Option<Digest>,
        /// What was recorded; nothing if nothing ever was.
        recorded: Option<Digest>,
    },
    /// The file is no trust store.
    #[error(transparent)]
    Flaw(#[from] DocumentFlaw),
    /// The change is refused.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The store was changed since the change was prepared.
    #[error("the trust store was changed meanwhile")]
    Stale,
}

impl StoreError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disk { .. } => "trust_store_disk",
            Self::Ledger { .. } => "trust_store_ledger",
            Self::Tampered { .. } => "trust_store_tampered",
            Self::Flaw(e) => e.code(),
            Self::Change(e) => e.code(),
            Self::Stale => "trust_store_stale",
        }
    }
}

/// A change that is durable beside the file and counts as soon as its record does.
#[must_use = "record its digest, then commit it; or abandon it"]
#[derive(Debug)]
pub struct PreparedTrust {
    base: u64,
    document: TrustDocument,
    record: TrustRecord,
}

impl PreparedTrust {
    /// What the ledger must record before the change is committed.
    #[must_use]
    pub fn record(&self) -> &TrustRecord {
        &self.record
    }
}

/// The trust store: a document and the file that holds it.
#[derive(Debug)]
pub struct SkillTrustStore {
    path: PathBuf,
    document: TrustDocument,
}

impl SkillTrustStore {
    /// Opens the store, holding the file to the digest that was recorded last, and finishes a change that a crash has
    /// cut off.
    ///
    /// # Errors
    /// The file is not the one that was recorded, or cannot be read.
    pub fn open(path: impl Into<PathBuf>, recorded: Option<Digest>) -> Result<Self, StoreError> {
        let path = path.into();
        let read = |path: &Path| {
            let failed = |source| StoreError::Disk { path: path.to_owned(), what: "read", source };
            read_regular(path, MAX_TRUST_BYTES).map_err(failed)
        };
        let file = read(&path)?;
        let found = file.as_deref().map(Digest::of);
        let bytes = match (file, recorded) {
            (None, None) => return Ok(Self { path, document: TrustDocument::empty() }),
            (Some(bytes), Some(recorded)) if found == Some(recorded) => bytes,
            (_, Some(recorded)) => match read(&beside(&path, &recorded))?.filter(|b| Digest::of(b) == recorded) {
                Some(bytes) => {
                    replace(&path, &recorded)?;
                    bytes
                }
                None => return Err(StoreError::Tampered { path, found, recorded: Some(recorded) }),
            },
            (Some(_), None) => return Err(StoreError::Tampered { path, found, recorded: None }),
        };
        let document = TrustDocument::parse(&bytes)?;
        remove_prepared(&path);
        Ok(Self { path, document })
    }

    /// Opens the store with the digest that a ledger recorded last.
    ///
    /// # Errors
    /// As for [`SkillTrustStore::open`], or the ledger cannot be read.
    pub fn open_with(path: impl Into<PathBuf>, ledger: &impl TrustLedger) -> Result<Self, StoreError> {
        Self::open(path, ledger.last().map_err(|source| StoreError::Ledger { source })?)
    }

    /// What the store knows.
    #[must_use]
    pub fn document(&self) -> &TrustDocument {
        &self.document
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Step one: the changed document, durable beside the file. Nothing counts yet.
    ///
    /// # Errors
    /// A change is refused, or the disk fails.
    pub fn prepare(&self, changes: &[TrustChange], now: Timestamp) -> Result<PreparedTrust, StoreError> {
        let document = self.document.changed(changes, now)?;
        let bytes = document.bytes()?;
        let digest = Digest::of(&bytes);
        write_durably(&beside(&self.path, &digest), &bytes).map_err(|source| self.unwritable(source))?;
        let changes = changes.iter().map(ToString::to_string).collect();
        let record = TrustRecord { revision: document.revision, digest, changes };
        Ok(PreparedTrust { base: self.document.revision, document, record })
    }

    /// Steps three and four, after the record: the prepared document takes the file's place.
    ///
    /// # Errors
    /// The store was changed meanwhile, or the disk fails. A recorded change is then finished by the next opening.
    pub fn commit(&mut self, prepared: PreparedTrust) -> Result<(), StoreError> {
        if prepared.base != self.document.revision {
            return Err(StoreError::Stale);
        }
        // Memory follows the record, not the rename: the change counts already.
        self.document = prepared.document;
        replace(&self.path, &prepared.record.digest)?;
        remove_prepared(&self.path);
        Ok(())
    }

    /// Takes step one back, where the change was not recorded.
    ///
    /// # Errors
    /// The disk fails.
    pub fn abandon(&self, prepared: PreparedTrust) -> Result<(), StoreError> {
        match std::fs::remove_file(beside(&self.path, &prepared.record.digest)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.unwritable(error)),
            _ => Ok(()),
        }
    }

    /// All steps at once, for a ledger that is not asynchronous.
    ///
    /// # Errors
    /// A change is refused, could not be recorded, or the disk fails.
    pub fn change(
        &mut self,
        changes: &[TrustChange],
        now: Timestamp,
        ledger: &mut impl TrustLedger,
    ) -> Result<(), StoreError> {
        let prepared = self.prepare(changes, now)?;
        match ledger.record(prepared.record()) {
            Ok(()) => self.commit(prepared),
            Err(source) => {
                self.abandon(prepared)?;
                Err(StoreError::Ledger { source })
            }
        }
    }

    fn unwritable(&self, source: std::io::Error) -> StoreError {
        StoreError::Disk { path: self.path.clone(), what: "written", source }
    }
}

/// Where a document is prepared: each under a name of its own, so that two that are prepared at once do not meet.
fn beside(path: &Path, digest: &Digest) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{}{PREPARED}", digest.short()));
    name.into()
}

fn replace(path: &Path, digest: &Digest) -> Result<(), StoreError> {
    let renamed = std::fs::rename(beside(path, digest), path);
    renamed.and_then(|()| path.parent().map_or(Ok(()), sync_directory)).map_err(|source| StoreError::Disk {
        path: path.to_owned(),
        what: "written",
        source,
    })
}

/// Removes what was prepared and never came to count. It is only untidy, so failing to is no failure.
fn remove_prepared(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
    let prefix = format!("{name}.");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let ours = found.to_str().and_then(|found| found.strip_prefix(&prefix));
        if ours.and_then(|rest| rest.strip_suffix(PREPARED)).is_some_and(|short| short.len() == 12) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}
