//! The state directory: mode 0700, one daemon at a time, and the key that signs.

use palyra_protocol::{DaemonKey, PublicKey, Secret};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path that a UNIX socket can have.
const MAX_SOCKET_PATH: usize = 107;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Something about a file or directory failed.
    #[error("`{}` {what}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The directory is somebody else's.
    #[error("`{}` belongs to user {owner}, not to the daemon's user {daemon}; choose another with `--state-dir`", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who the daemon is.
        daemon: u32,
    },
    /// Another daemon is there.
    #[error("another daemon already serves `{}`; stop it with `palyra down`, or choose another `--state-dir`", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The path is too long for a socket.
    #[error("`{}` is too long for a UNIX socket ({MAX_SOCKET_PATH} bytes); choose a shorter `--state-dir`", path.display())]
    SocketPath {
        /// The socket.
        path: PathBuf,
    },
    /// The key that signed until now is gone.
    #[error("`{}` is missing, and the journal was signed for with {known}; put it back from a backup, or go on with a new key: `palyrad key accept`", path.display())]
    KeyMissing {
        /// The file.
        path: PathBuf,
        /// The key that the journal knows.
        known: PublicKey,
    },
    /// Another key lies there.
    #[error("`{}` is another key ({found}) than the journal knows ({known}); put that back from a backup, or accept this one: `palyrad key accept`", path.display())]
    OtherKey {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: PublicKey,
        /// What the journal knows.
        known: PublicKey,
    },
    /// There is a key, and nothing of what it signed for.
    #[error("the journal is missing or empty, though a key that signed for one is there; put `{}` back from a backup, or give up all grants, keys, budgets and history: `palyrad journal begin`", path.display())]
    JournalLost {
        /// The journal.
        path: PathBuf,
    },
    /// There is a journal already.
    #[error("`{}` is a journal; another is begun only where one was lost", path.display())]
    JournalThere {
        /// The journal.
        path: PathBuf,
    },
    /// The key file is not a key.
    #[error("`{}` is not a signing key; restore it from a backup: without it earlier attestations still verify, but new ones would carry another key", path.display())]
    Key {
        /// The file.
        path: PathBuf,
    },
}

/// The state directory, held by this process alone.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// The lock file, and the directory itself: deleting the file does not let a second daemon in.
    _locks: [File; 2],
}

impl StateDir {
    /// Makes the directory if there is none, and takes it for this process.
    ///
    /// # Errors
    /// It cannot be made, is not ours, or another daemon holds it.
    pub fn take(path: &Path) -> Result<Self, StateError> {
        let path = prepare(path)?;
        if path.join("palyra.sock").as_os_str().len() > MAX_SOCKET_PATH {
            return Err(StateError::SocketPath { path: path.join("palyra.sock") });
        }
        let lock_path = path.join("palyrad.lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(io(&lock_path, "cannot be opened"))?;
        // A record lock belongs to this process alone: a child that is just being made does not hold it after our
        // death.
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(StateError::Locked { path }),
            Err(e) => return Err(io(&lock_path, "cannot be locked")(e.into())),
        }
        let directory = lock_directory(&path)?;
        Ok(Self { path, _locks: [lock, directory] })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal's file.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        journal(&self.path)
    }

    /// A socket of this name, with what an earlier daemon left there removed.
    ///
    /// # Errors
    /// What is there cannot be removed.
    pub fn fresh_socket(&self, name: &str) -> Result<PathBuf, StateError> {
        let socket = self.path.join(name);
        match std::fs::remove_file(&socket) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io(&socket, "cannot be replaced")(e)),
            _ => Ok(socket),
        }
    }

    /// The key that signs, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn key(&self) -> Result<Option<DaemonKey>, StateError> {
        let path = key_file(&self.path);
        path.exists().then(|| read_key(&path)).transpose()
    }

    /// A key that was written but not put in place: one that is there already, or a new one. It signs once it is
    /// recorded.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn prepare_key(&self) -> Result<DaemonKey, StateError> {
        let path = prepared_key_file(&self.path);
        // A crash may have left half of one; nothing was signed with it.
        if let Ok(key) = read_key(&path) {
            return Ok(key);
        }
        let key = DaemonKey::generate().map_err(|e| io(&path, "cannot be made")(std::io::Error::other(e)))?;
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            file.write_all(key.seed().expose())?;
            file.sync_all()?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(io(&path, "cannot be written"))?;
        Ok(key)
    }

    /// Puts a prepared key in place, if there is one: the journal has it by now.
    ///
    /// # Errors
    /// It cannot be put there.
    pub fn put_key_in_place(&self) -> Result<(), StateError> {
        let (prepared, path) = (prepared_key_file(&self.path), key_file(&self.path));
        if path.exists() || !prepared.exists() {
            return Ok(());
        }
        let put = || -> std::io::Result<()> {
            std::fs::rename(&prepared, &path)?;
            File::open(&self.path)?.sync_all()
        };
        put().map_err(io(&path, "cannot be written"))
    }
}

/// Locks the directory itself. The descriptor is closed in children, but one that is just being made holds the lock for
/// a moment after this process has died: so it is waited for, and only a daemon that is there keeps it.
fn lock_directory(path: &Path) -> Result<File, StateError> {
    let directory = File::open(path).map_err(io(path, "cannot be opened"))?;
    for _ in 0..50 {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => return Err(io(path, "cannot be locked")(e.into())),
        }
    }
    Err(StateError::Locked { path: path.to_owned() })
}

/// Where a key is until it is recorded.
#[must_use]
pub fn prepared_key_file(state_dir: &Path) -> PathBuf {
    state_dir.join("signing.key.new")
}

/// Reads the daemon's key, without taking the state.
///
/// # Errors
/// It cannot be read.
pub fn read_key(path: &Path) -> Result<DaemonKey, StateError> {
    let mut seed = Vec::with_capacity(33);
    let read = File::open(path).and_then(|file| file.take(33).read_to_end(&mut seed));
    read.map_err(io(path, "cannot be read"))?;
    DaemonKey::from_seed(&Secret::new(seed)).map_err(|_| StateError::Key { path: path.to_owned() })
}

/// Where the key is.
#[must_use]
pub fn key_file(state_dir: &Path) -> PathBuf {
    state_dir.join("signing.key")
}

/// Where the journal is.
#[must_use]
pub fn journal(state_dir: &Path) -> PathBuf {
    state_dir.join("journal.db")
}

fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { path, what, source }
}

fn prepare(path: &Path) -> Result<PathBuf, StateError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path, "cannot be made"))?;
    let path = path.canonicalize().map_err(io(path, "cannot be found"))?;
    let metadata = std::fs::metadata(&path).map_err(io(&path, "cannot be looked at"))?;
    let daemon = rustix::process::geteuid().as_raw();
    if metadata.uid() != daemon {
        return Err(StateError::Foreign { path, owner: metadata.uid(), daemon });
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(io(&path, "cannot be made private"))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_looks_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let state = StateDir::take(&path).unwrap();
        assert_eq!(std::fs::metadata(state.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_key_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::take(dir.path()).unwrap();
        let key = state.prepare_key().unwrap().public();
        assert_eq!(state.prepare_key().unwrap().public(), key);
        state.put_key_in_place().unwrap();
        assert_eq!(state.key().unwrap().unwrap().public(), key);
        let file = key_file(state.path());
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        std::fs::write(&file, b"short").unwrap();
        assert!(matches!(state.key(), Err(StateError::Key { .. })));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = StateDir::take(&dir.path().join("x".repeat(120))).unwrap_err();
        assert!(matches!(refused, StateError::SocketPath { .. }), "{refused}");
    }
}
