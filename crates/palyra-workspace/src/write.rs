//! Writing: one whole file, at once.
//!
//! The new content is finished and on the disk before it takes the old one's place, so a reader sees one or the other
//! and an error leaves the old. The file is a new one: hard links to the old file, its extended attributes and its
//! set-id bits stay behind; its permission bits come along. It must never write to what later runs as code outside.

use super::beneath::{DirUse, open_regular, open_subdir, require_regular};
use super::effects::{FileChanges, GuardRules, View};
use super::error::{FileError, at, io_at, shown};
use super::limits::MAX_WRITE_BYTES;
use super::path::ResolvedPath;
use super::read::{sha256_hex, sha256_of};
use super::transaction::{Expect, Identity, Place, Rights, Transaction, look};
use super::{Errand, Workspace};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat, mkdirat};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::File;
use std::sync::Arc;

/// Under which conditions a file is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Make the directories on the way.
    pub create_parents: bool,
    /// Only if the file has this content: what a read gave as `sha256_hex`.
    pub expected_sha256: Option<String>,
    /// Only if there is no such file.
    pub must_not_exist: bool,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    pub bytes: u64,
    /// The SHA-256 of the file as it is now, in hexadecimal.
    pub sha256: String,
    /// There was no such file before.
    pub created: bool,
}

impl Workspace {
    /// Writes a file, whole or not at all. The errand is asked last before anything changes; after that it is too late.
    pub fn write(
        &self,
        path: &ResolvedPath,
        content: &[u8],
        options: &WriteOptions,
        errand: Errand<'_>,
    ) -> Result<Written, FileError> {
        self.refuse_protected(path)?;
        let (transaction, written) = self.prepare_write(path, content, options, errand)?;
        transaction.commit(errand.stop).map_err(|error| match error {
            // It did not exist a moment ago, and nobody asked that it should not.
            FileError::AlreadyExists { path } if !options.must_not_exist => FileError::ContentChanged { path },
            other => other,
        })?;
        Ok(written)
    }

    /// Prepares a file in a view of a store instead of writing it: what it replaces will be kept, and a guarded file
    /// waits.
    ///
    /// # Errors
    /// As for [`Workspace::write`], but that git's and Palyra's own files are guarded instead of refused.
    pub fn stage_write(
        &self,
        (path, content, options): (&ResolvedPath, &[u8], &WriteOptions),
        errand: Errand<'_>,
        (view, guard): (&View, &GuardRules),
    ) -> Result<(FileChanges, Written), FileError> {
        self.refuse_in_git(path)?;
        let (transaction, written) = self.prepare_write(path, content, options, errand)?;
        let kept = view.kept_for_files().map_err(|error| FileError::Io {
            path: shown(path.as_str()),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok((transaction.hand_over(errand.stop, (&kept, guard))?, written))
    }

    fn prepare_write(
        &self,
        path: &ResolvedPath,
        content: &[u8],
        options: &WriteOptions,
        errand: Errand<'_>,
    ) -> Result<(Transaction, Written), FileError> {
        self.in_place()?;
        if content.len() > MAX_WRITE_BYTES {
            return Err(FileError::TooLarge {
                path: shown(path.as_str()),
                limit: MAX_WRITE_BYTES as u64,
                unit: "bytes",
            });
        }
        let mut transaction = Transaction::new(errand.call);
        let place = self.place(path, options.create_parents, &mut transaction)?;
        let old = look(&place)?;
        let created = old.is_none();
        match old {
            None if options.expected_sha256.is_some() => {
                return Err(FileError::ContentChanged { path: shown(path.as_str()) });
            }
            None => transaction.create(place, content, Rights::Plain)?,
            Some((_, stat)) => {
                require_regular(&stat, path.as_str())?;
                if options.must_not_exist {
                    return Err(FileError::AlreadyExists { path: shown(path.as_str()) });
                }
                let expect = check_content(&place, options.expected_sha256.as_deref())?;
                let stat = require_writable(&place)?;
                transaction.replace(place, content, Rights::like(&stat), expect)?;
            }
        }
        Ok((transaction, Written { bytes: content.len() as u64, sha256: sha256_hex(content), created }))
    }

    /// Opens the directory in which a file is to be, making it if asked; what is made belongs to the transaction.
    pub(super) fn place(
        &self,
        path: &ResolvedPath,
        create_parents: bool,
        transaction: &mut Transaction,
    ) -> Result<Place, FileError> {
        let Some((parents, name)) = path.split() else {
            return Err(FileError::IsDirectory { path: shown(path.as_str()) });
        };
        let place = |dir| Place { dir, name: name.to_owned(), path: path.as_str().to_owned() };
        if let Some(dir) = transaction.directory(parents) {
            return Ok(place(dir));
        }
        let dir = match self.open_dir(parents, DirUse::Content) {
            Ok(dir) => Arc::new(dir),
            Err(FileError::NotFound { .. }) if create_parents => self.make_parents(path, parents, transaction)?,
            Err(FileError::NotFound { .. }) => {
                return Err(FileError::NotFound { path: shown(parents) });
            }
            Err(other) => return Err(other),
        };
        transaction.remember_directory(parents, &dir);
        Ok(place(dir))
    }

    fn make_parents(
        &self,
        path: &ResolvedPath,
        parents: &str,
        transaction: &mut Transaction,
    ) -> Result<Arc<OwnedFd>, FileError> {
        let mut dir = Arc::new(self.open_dir(".", DirUse::Content)?);
        let mut so_far = String::new();
        for parent in parents.split('/') {
            so_far.push_str(if so_far.is_empty() { "" } else { "/" });
            so_far.push_str(parent);
            match mkdirat(&dir, parent, Mode::from_raw_mode(0o777)) {
                Ok(()) => transaction.made_directory(Arc::clone(&dir), so_far.clone()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::from_errno(path.as_str(), errno)),
            }
            dir = Arc::new(open_subdir(dir.as_fd(), parent, path.as_str(), DirUse::Content)?);
        }
        Ok(dir)
    }
}

/// Compares the content with what the caller saw, and remembers which file that was.
fn check_content(place: &Place, expected: Option<&str>) -> Result<Expect, FileError> {
    let Some(expected) = expected else { return Ok(Expect::AnyFile) };
    let (file, stat) = open_regular(place.dir.as_fd(), place.name.as_str(), &place.path, OFlags::RDONLY)?;
    let actual = sha256_of(&mut File::from(file)).map_err(io_at(&place.path))?;
    if actual.eq_ignore_ascii_case(expected.trim()) {
        Ok(Expect::Exactly(Identity::of(&stat)))
    } else {
        Err(FileError::ContentChanged { path: shown(&place.path) })
    }
}

/// A rename needs no right on the file it replaces; the file's own permissions count all the same.
pub(super) fn require_writable(place: &Place) -> Result<Stat, FileError> {
    match open_regular(place.dir.as_fd(), place.name.as_str(), &place.path, OFlags::WRONLY) {
        Ok((_, stat)) => Ok(stat),
        // A program that is running may be replaced, as long as it is not written in place.
        Err(FileError::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::TXTBSY) => {
            let stat = rustix::fs::statat(&place.dir, place.name.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            stat.map_err(at(&place.path))
        }
        Err(other) => Err(other),
    }
}
