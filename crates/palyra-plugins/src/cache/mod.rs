//! Compiled code on the disk, trusted only after it has been authenticated.
//!
//! A user who can write machine code where the daemon maps it has become the daemon. So every file carries an
//! authentication code under a key that only the daemon has, over the code and over what it was compiled from and for.
//! A file is opened once, without following a link; owner, mode and link count are looked at; all of it is
//! authenticated through that descriptor; the same descriptor is mapped, and what is known about the file must not have
//! changed in between. Anything else is a miss: the file is removed and the component compiled again. A file is written
//! beside its place, made durable and renamed, so a daemon that is killed leaves nothing that is ever read.
//!
//! The directory belongs to the daemon alone. Whoever could change a file there while it is mapped could read the key
//! too.

mod mapping;
mod seal;

pub(crate) use mapping::load_fresh;
pub(crate) use seal::{Key, Seal, SealError, TRAILER_BYTES};

use crate::error::PluginError;
use palyra_protocol::{Digest, DigestBuilder};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat, fstat, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use wasmtime::Engine;
use wasmtime::component::Component;

/// How files begin that are being written.
const PREPARED: &str = "prepared-";
const PIECE: usize = 1 << 20;

/// A directory of compiled components.
pub(crate) struct CodeCache {
    directory: OwnedFd,
    key: Key,
}

/// What compiled code is of and for: a component, and a configuration of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(Digest);

impl Entry {
    pub(crate) fn new(component: Digest, engine: Digest) -> Self {
        let digest = DigestBuilder::new("palyra.plugins.code_entry.v1");
        Self(digest.field(component.as_bytes()).field(engine.as_bytes()).finish())
    }

    fn file_name(self) -> String {
        format!("{}.code", self.0)
    }
}

impl fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeCache").finish_non_exhaustive()
    }
}

impl CodeCache {
    /// Opens the directory, which is created if it is not there, and removes what a killed daemon left behind.
    pub(crate) fn open(path: &Path, key: Key) -> Result<Self, PluginError> {
        let failed =
            |error: Errno| PluginError::Io { action: "open the cache of compiled skills", source: error.into() };
        match mkdirat(rustix::fs::CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(failed)?;
        let status = fstat(&directory).map_err(failed)?;
        if !is_ours(&status) || mode(&status) & 0o022 != 0 {
            return Err(failed(Errno::PERM));
        }
        let cache = Self { directory, key };
        cache.remove_prepared().map_err(failed)?;
        Ok(cache)
    }

    fn remove_prepared(&self) -> Result<(), Errno> {
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_bytes().starts_with(PREPARED.as_bytes()) {
                unlinkat(&self.directory, entry.file_name(), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// The compiled component, if there is one that we wrote. Anything else in its place is removed.
    pub(crate) fn load(&self, engine: &Engine, entry: Entry) -> Option<Component> {
        let loaded =
            self.find(entry).map(|found| found.and_then(|(file, status)| mapping::map(engine, &file, &status)));
        if let Some(None) = loaded {
            // If it cannot be removed it is refused again next time.
            let _refused_again = unlinkat(&self.directory, entry.file_name(), AtFlags::empty());
        }
        loaded.flatten()
    }

    /// The file of an entry: nothing if there is none, and nothing within if it is not one that we wrote.
    fn find(&self, entry: Entry) -> Option<Option<(File, Stat)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.directory, entry.file_name(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return None,
            Err(_) => return Some(None),
        };
        let authentic = fstat(&file).ok().filter(is_plain).and_then(|status| {
            let mut file = File::from(file);
            self.authenticate(&mut file, &status, entry).ok()?;
            Some((file, status))
        });
        Some(authentic)
    }

    // INVARIANT (code_is_authenticated_before_it_is_mapped): no file is mapped whose seal has not been verified,
    // through the descriptor that is mapped, under the daemon's key.
    fn authenticate(&self, file: &mut File, status: &Stat, entry: Entry) -> Result<(), SealError> {
        let size = u64::try_from(status.st_size).map_err(|_| SealError::Malformed)?;
        let code = size.checked_sub(TRAILER_BYTES as u64).ok_or(SealError::Malformed)?;
        let mut seal = Seal::begin(&self.key, &entry.0, code);
        let mut piece = vec![0; PIECE];
        let mut left = code;
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            file.read_exact(&mut piece[..length]).map_err(|_| SealError::Malformed)?;
            seal.add(&piece[..length]);
            left -= length as u64;
        }
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact(&mut trailer).map_err(|_| SealError::Malformed)?;
        seal.verify(&trailer)
    }

    /// Writes compiled code, durably.
    pub(crate) fn store(&self, entry: Entry, code: &[u8]) -> std::io::Result<()> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        let prepared = format!("{PREPARED}{}", hex::encode(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, prepared.as_str(), flags, Mode::RUSR)?;
        let written = self.write(File::from(file), entry, code).and_then(|()| {
            renameat(&self.directory, prepared.as_str(), &self.directory, entry.file_name())?;
            Ok(fsync(&self.directory)?)
        });
        if written.is_err() {
            // What is left is removed at the next start.
            let _removed_later = unlinkat(&self.directory, prepared.as_str(), AtFlags::empty());
        }
        written
    }

    fn write(&self, mut file: File, entry: Entry, code: &[u8]) -> std::io::Result<()> {
        let mut seal = Seal::begin(&self.key, &entry.0, code.len() as u64);
        seal.add(code);
        file.write_all(code)?;
        file.write_all(&seal.finish())?;
        file.sync_all()
    }

    /// Removes what was compiled from a component for this engine.
    pub(crate) fn remove(&self, entry: Entry) -> std::io::Result<()> {
        match unlinkat(&self.directory, entry.file_name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes everything that is not among these entries: code of skills that are gone, and of other versions.
    pub(crate) fn retain(&self, entries: &[Entry]) -> std::io::Result<()> {
        let kept: Vec<String> = entries.iter().map(|entry| entry.file_name()).collect();
        for found in Dir::read_from(&self.directory)? {
            let found = found?;
            let Ok(name) = found.file_name().to_str() else { continue };
            if name.ends_with(".code") && !kept.iter().any(|kept| kept == name) {
                unlinkat(&self.directory, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// A file of our own that nobody else can reach: plain, under one name, writable by nobody else.
fn is_plain(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && is_ours(status)
        && status.st_nlink == 1
        && mode(status) & 0o077 == 0
}

fn is_ours(status: &Stat) -> bool {
    status.st_uid == rustix::process::geteuid().as_raw()
}

fn mode(status: &Stat) -> RawMode {
    Mode::from_raw_mode(status.st_mode).as_raw_mode()
}
