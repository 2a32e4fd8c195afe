//! Blobs as files: `blobs/<2 digits>/<62 digits>` in the vault's directory.
//!
//! One file for each secret, in 256 directories that are made with the vault: reading and writing cost the same however
//! many secrets there are, and a write is one durable replacement of one file.

use super::{BackendKind, BlobBackend, BlobId};
use crate::crash::point;
use crate::durable::{self, Sync};
use crate::envelope::MAX_BLOB;
use crate::error::VaultError;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Encrypted files.
#[derive(Debug)]
pub struct FileBackend {
    blobs: PathBuf,
    temporary: PathBuf,
}

/// The directory for files that are being written.
pub(crate) const TEMPORARY: &str = "tmp";

impl FileBackend {
    /// Opens the files of a vault's directory, and makes the directories that are missing.
    ///
    /// # Errors
    /// The host's.
    pub fn open(directory: &Path) -> Result<Self, VaultError> {
        let this = Self { blobs: directory.join("blobs"), temporary: directory.join(TEMPORARY) };
        durable::make_directory(&this.temporary)?;
        if !this.shard(0xff).is_dir() {
            for shard in 0..=0xff {
                durable::make_directory(&this.shard(shard))?;
            }
            durable::sync_directory(&this.blobs)?;
            durable::sync_directory(directory)?;
        }
        Ok(this)
    }

    fn shard(&self, shard: u8) -> PathBuf {
        self.blobs.join(hex::encode([shard]))
    }

    fn path(&self, id: BlobId) -> PathBuf {
        let id = id.to_string();
        let (shard, name) = id.split_at(2);
        let mut path = PathBuf::with_capacity(self.blobs.as_os_str().len() + id.len() + 2);
        path.push(&self.blobs);
        path.push(shard);
        path.push(name);
        path
    }
}

impl BlobBackend for FileBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Files
    }

    fn limit(&self) -> usize {
        MAX_BLOB
    }

    fn read(&self, id: BlobId) -> Result<Option<Vec<u8>>, VaultError> {
        durable::read(&self.path(id), MAX_BLOB)
    }

    fn read_beginning(&self, id: BlobId, length: usize) -> Result<Option<Vec<u8>>, VaultError> {
        durable::read_beginning(&self.path(id), length)
    }

    fn write(&self, id: BlobId, bytes: &[u8]) -> Result<(), VaultError> {
        durable::replace(&self.temporary, &self.path(id), bytes)
    }

    fn write_all(&self, blobs: &[(BlobId, Vec<u8>)]) -> Result<(), VaultError> {
        let mut prepared = Vec::with_capacity(blobs.len());
        if let [(id, bytes)] = blobs {
            return self.write(*id, bytes);
        }
        if blobs.is_empty() {
            return Ok(());
        }
        for (id, bytes) in blobs {
            prepared.push((self.path(*id), durable::prepare(&self.temporary, bytes, SYNC)?));
        }
        sync_all(&self.temporary)?;
        point("files.batch-synced");
        let mut directories = BTreeSet::new();
        for (path, prepared) in prepared {
            prepared.put_in_place(&path)?;
            directories.extend(path.parent().map(Path::to_owned));
        }
        if cfg!(target_os = "linux") && directories.len() > FEW_DIRECTORIES {
            return sync_all(&self.blobs);
        }
        directories.iter().try_for_each(|directory| durable::sync_directory(directory))
    }

    fn remove(&self, id: BlobId) -> Result<bool, VaultError> {
        durable::remove(&self.path(id))
    }

    fn list(&self) -> Result<Vec<BlobId>, VaultError> {
        let mut ids = Vec::new();
        for shard in 0..=0xff {
            let path = self.shard(shard);
            let failed = |source| VaultError::io(&path, "cannot be listed", source);
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let id = name.to_str().and_then(|name| BlobId::from_hex(&format!("{}{name}", hex::encode([shard]))));
                ids.extend(id);
            }
        }
        Ok(ids)
    }
}

/// Up to so many directories are made durable one after the other.
const FEW_DIRECTORIES: usize = 4;

/// On Linux one call makes a whole batch durable; elsewhere each file is by itself.
#[cfg(target_os = "linux")]
const SYNC: Sync = Sync::ByCaller;
#[cfg(not(target_os = "linux"))]
const SYNC: Sync = Sync::Now;

fn sync_all(directory: &Path) -> Result<(), VaultError> {
    let failed = |source| VaultError::io(directory, "cannot be made durable", source);
    let directory = File::open(directory).map_err(failed);
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(directory?).map_err(|error| failed(error.into()))?;
    #[cfg(not(target_os = "linux"))]
    drop(directory);
    Ok(())
}
