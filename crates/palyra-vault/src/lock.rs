//! One process at a time: the vault's lock.
//!
//! The lock is held for as long as the vault is open. On UNIX it is a record lock: it belongs to this process alone, so
//! a child that is just being started does not hold it after this process was killed. Record locks do not exclude two
//! owners in one process, so a list in memory does.

use crate::error::VaultError;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The directories that this process has locked.
static HELD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory that this value's owner alone may change.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    path: PathBuf,
    file: Option<File>,
}

impl DirectoryLock {
    /// Takes the lock of an existing directory, or says that somebody else has it.
    pub(crate) fn take(directory: &Path) -> Result<Self, VaultError> {
        let path = directory.canonicalize().map_err(|source| VaultError::io(directory, "cannot be found", source))?;
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&path) {
            return Err(VaultError::Locked { path });
        }
        let lock = path.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&lock).map_err(|source| VaultError::io(&lock, "cannot be opened", source))?;
        match try_lock(&file) {
            Ok(true) => {
                held.push(path.clone());
                Ok(Self { path, file: Some(file) })
            }
            Ok(false) => Err(VaultError::Locked { path }),
            Err(source) => Err(VaultError::io(&lock, "cannot be locked", source)),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing any descriptor of the file gives a record lock up: nobody may take it anew before this one is closed.
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.file.take());
        held.retain(|path| *path != self.path);
    }
}

#[cfg(unix)]
fn try_lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    use rustix::io::Errno;
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(unix))]
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}
