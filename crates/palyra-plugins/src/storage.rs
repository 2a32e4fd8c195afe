//! The private storage of a skill: a directory with a quota.
//!
//! Each key is a file whose name is the key in hexadecimal digits, so that no key is a path. A value is written beside
//! its place, made durable and then renamed, so that `kill -9` leaves the old value or the new one. The quota counts
//! keys and values and something for each entry; what is there is counted once, when the directory is opened, and kept
//! in step from then on. Open a directory once and share it among the calls of its skill: two of these would each count
//! for themselves.

use crate::doors::StorageFault;

/// The longest key.
pub(crate) const MOST_KEY_BYTES: usize = 100;

/// Whether a text can be a key.
pub(crate) fn check_key(key: &str) -> Result<(), StorageFault> {
    let fits = (1..=MOST_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(StorageFault::InvalidKey) }
}

#[cfg(unix)]
pub use directory::StorageDirectory;

#[cfg(unix)]
mod directory {
    use super::check_key;
    use crate::doors::{StorageDoor, StorageFault};
    use crate::error::PluginError;
    use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, mkdirat, openat, renameat, unlinkat};
    use rustix::io::Errno;
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// What an entry costs beside key and value.
    const ENTRY_COST: u64 = 64;
    /// The most entries that a directory may hold.
    const MOST_ENTRIES: usize = 100_000;
    /// Where a value is prepared. No key has this name, since digits are hexadecimal.
    const PREPARED: &str = "prepared";

    /// A directory of one skill.
    #[derive(Debug)]
    pub struct StorageDirectory {
        directory: OwnedFd,
        contents: Mutex<Contents>,
    }

    /// What is there.
    #[derive(Debug, Default)]
    struct Contents {
        /// The size of each value, by key.
        sizes: BTreeMap<String, u64>,
        /// What all of it costs.
        used: u64,
    }

    impl Contents {
        fn cost_of(&self, key: &str) -> u64 {
            self.sizes.get(key).map_or(0, |size| cost(key, *size))
        }

        fn put(&mut self, key: &str, size: u64) {
            self.used = self.used.saturating_sub(self.cost_of(key)).saturating_add(cost(key, size));
            self.sizes.insert(key.to_owned(), size);
        }

        fn remove(&mut self, key: &str) -> bool {
            self.used = self.used.saturating_sub(self.cost_of(key));
            self.sizes.remove(key).is_some()
        }
    }

    impl StorageDirectory {
        /// Opens a directory, which is created if it is not there, and counts what is in it.
        ///
        /// # Errors
        /// When it is a link, or cannot be read.
        pub fn open(path: &Path) -> Result<Self, PluginError> {
            let action = "open the storage of a skill";
            match mkdirat(rustix::fs::CWD, path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(PluginError::Io { action, source: error.into() }),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = openat(rustix::fs::CWD, path, flags, Mode::empty());
            let directory = opened.map_err(|error| PluginError::Io { action, source: error.into() })?;
            // What was prepared when a daemon was killed is nobody's.
            match unlinkat(&directory, PREPARED, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(PluginError::Io { action, source: error.into() }),
            }
            let contents = count(&directory).map_err(|error| PluginError::Io { action, source: error.into() })?;
            Ok(Self { directory, contents: Mutex::new(contents) })
        }

        /// How much of a quota is used.
        #[must_use]
        pub fn used(&self) -> u64 {
            self.contents().used
        }

        fn contents(&self) -> MutexGuard<'_, Contents> {
            self.contents.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn replace(&self, key: &str, value: &[u8]) -> std::io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&self.directory, PREPARED, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(value)?;
            file.sync_all()?;
            renameat(&self.directory, PREPARED, &self.directory, hex::encode(key))?;
            Ok(fsync(&self.directory)?)
        }
    }

    /// Counts what is there.
    fn count(directory: &OwnedFd) -> Result<Contents, Errno> {
        let mut contents = Contents::default();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let Some(key) = entry.file_name().to_str().ok().and_then(key_of) else { continue };
            let status = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            contents.put(&key, u64::try_from(status.st_size).unwrap_or(u64::MAX));
        }
        Ok(contents)
    }

    fn key_of(name: &str) -> Option<String> {
        let key = String::from_utf8(hex::decode(name).ok()?).ok()?;
        check_key(&key).is_ok().then_some(key)
    }

    fn cost(key: &str, size: u64) -> u64 {
        size.saturating_add(key.len() as u64).saturating_add(ENTRY_COST)
    }

    fn unavailable(error: impl std::fmt::Display) -> StorageFault {
        StorageFault::Unavailable(error.to_string())
    }

    impl StorageDoor for StorageDirectory {
        fn read(&self, key: &str) -> Result<Option<Vec<u8>>, StorageFault> {
            check_key(key)?;
            let contents = self.contents();
            let Some(size) = contents.sizes.get(key) else { return Ok(None) };
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&self.directory, hex::encode(key), flags, Mode::empty()).map_err(unavailable)?;
            let mut value = Vec::new();
            // Never more than was counted, whatever happened to the file.
            File::from(file).take(*size).read_to_end(&mut value).map_err(unavailable)?;
            Ok(Some(value))
        }

        fn write(&self, key: &str, value: &[u8], quota: u64) -> Result<(), StorageFault> {
            check_key(key)?;
            let mut contents = self.contents();
            let before = contents.cost_of(key);
            let after = contents.used.saturating_sub(before).saturating_add(cost(key, value.len() as u64));
            if after > quota || (before == 0 && contents.sizes.len() >= MOST_ENTRIES) {
                return Err(StorageFault::QuotaExceeded(quota));
            }
            self.replace(key, value).map_err(unavailable)?;
            contents.put(key, value.len() as u64);
            Ok(())
        }

        fn delete(&self, key: &str) -> Result<bool, StorageFault> {
            check_key(key)?;
            let mut contents = self.contents();
            if !contents.remove(key) {
                return Ok(false);
            }
            unlinkat(&self.directory, hex::encode(key), AtFlags::empty()).map_err(unavailable)?;
            fsync(&self.directory).map_err(unavailable)?;
            Ok(true)
        }

        fn keys(&self, prefix: &str) -> Result<Vec<String>, StorageFault> {
            let contents = self.contents();
            let from = contents.sizes.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
            Ok(from.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).cloned().collect())
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::doors::StorageDoor as _;

    #[test]
    fn values_outlive_the_directory_that_was_opened() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let storage = StorageDirectory::open(&path).unwrap();
        storage.write("a/../b", b"one", 1000).unwrap();
        storage.write("a/../b", b"two", 1000).unwrap();
        storage.write("ab", b"", 1000).unwrap();
        drop(storage);
        std::fs::write(path.join("prepared"), b"half").unwrap();
        let storage = StorageDirectory::open(&path).unwrap();
        assert_eq!(storage.read("a/../b").unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(storage.keys("a").unwrap(), ["a/../b", "ab"]);
        assert_eq!(storage.keys("ab").unwrap(), ["ab"]);
        assert_eq!(storage.delete("ab"), Ok(true));
        assert_eq!((storage.delete("ab"), storage.read("ab")), (Ok(false), Ok(None)));
        assert!(!path.join("prepared").exists());
    }

    #[test]
    fn the_quota_counts_everything() {
        let place = tempfile::tempdir().unwrap();
        let storage = StorageDirectory::open(place.path()).unwrap();
        let full = StorageFault::QuotaExceeded(1000);
        assert_eq!(storage.write("k", &[0; 1000], 1000), Err(full.clone()));
        storage.write("k", &[0; 900], 1000).unwrap();
        storage.write("k", &[1; 935], 1000).unwrap();
        assert_eq!((storage.used(), storage.write("l", b"", 1000)), (1000, Err(full)));
        assert_eq!(storage.read("k").unwrap().map(|value| value.len()), Some(935));
        for bad in ["", "a\n", "\u{0}", &"x".repeat(101)] {
            assert_eq!(storage.write(bad, b"", 1000), Err(StorageFault::InvalidKey), "{bad:?}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_storage_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(StorageDirectory::open(&link).is_err());
    }
}
