//! Files that are replaced whole or not at all.
//!
//! New content is written beside the target and made durable, then renamed over it, then the directory is made durable.
//! A crash at any instant leaves the old file or the new one. What a crash leaves in the directory for temporary files
//! is removed when the vault is opened.

use crate::aead::random_array;
use crate::crash::point;
use crate::error::VaultError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Writes new content into the directory for temporary files.
pub(crate) fn prepare(temporary: &Path, bytes: &[u8], sync: Sync) -> Result<Prepared, VaultError> {
    let path = temporary.join(hex::encode(random_array::<16>()?));
    let prepared = Prepared { path };
    let failed = |source| VaultError::io(&prepared.path, "cannot be written", source);
    let mut file = create_new(&prepared.path).map_err(failed)?;
    point("durable.created");
    file.write_all(bytes).map_err(failed)?;
    point("durable.written");
    if matches!(sync, Sync::Now) {
        file.sync_all().map_err(failed)?;
    }
    point("durable.synced");
    Ok(prepared)
}

/// When written content is made durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sync {
    /// At once.
    Now,
    /// By the caller, before anything is put in place.
    ByCaller,
}

/// Content that waits beside its target. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Prepared {
    path: PathBuf,
}

impl Prepared {
    /// Puts the content in the target's place; the directory is not durable yet.
    pub(crate) fn put_in_place(mut self, target: &Path) -> Result<(), VaultError> {
        std::fs::rename(&self.path, target).map_err(|source| VaultError::io(target, "cannot be replaced", source))?;
        self.path.clear();
        point("durable.renamed");
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What stays behind is removed when the vault is opened.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Replaces a file durably.
pub(crate) fn replace(temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), VaultError> {
    prepare(temporary, bytes, Sync::Now)?.put_in_place(target)?;
    sync_parent(target)?;
    point("durable.done");
    Ok(())
}

/// Removes a file durably; tells whether it was there.
pub(crate) fn remove(target: &Path) -> Result<bool, VaultError> {
    match std::fs::remove_file(target) {
        Ok(()) => {}
        Err(source) if source.kind() == ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(VaultError::io(target, "cannot be removed", source)),
    }
    point("durable.removed");
    sync_parent(target)?;
    Ok(true)
}

/// Reads a file of at most `limit` bytes; nothing if there is none. A link is not followed: everything in the vault's
/// directory is a file of its own.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Option<Vec<u8>>, VaultError> {
    let failed = |source| VaultError::io(path, "cannot be read", source);
    let Some(mut file) = open(path).map_err(failed)? else { return Ok(None) };
    let length = usize::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(usize::MAX);
    if length > limit {
        return Err(VaultError::damaged(&format!("`{}`", path.display()), format!("it has more than {limit} bytes")));
    }
    let mut bytes = vec![0; length];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(source) if source.kind() == ErrorKind::UnexpectedEof => {
            Err(VaultError::damaged(&format!("`{}`", path.display()), "it was cut off while it was read"))
        }
        Err(source) => Err(failed(source)),
    }
}

/// Reads the first `limit` bytes of a file, or fewer if it is shorter.
pub(crate) fn read_beginning(path: &Path, limit: usize) -> Result<Option<Vec<u8>>, VaultError> {
    let failed = |source| VaultError::io(path, "cannot be read", source);
    let Some(mut file) = open(path).map_err(failed)? else { return Ok(None) };
    let mut bytes = vec![0; limit];
    let mut filled = 0;
    while filled < limit {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(source) if source.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(failed(source)),
        }
    }
    bytes.truncate(filled);
    Ok(Some(bytes))
}

fn open(path: &Path) -> std::io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true);
    no_links(&mut options);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file that only its owner may read; there must be none.
pub(crate) fn create_new(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(unix)]
pub(crate) fn no_links(options: &mut OpenOptions) {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, flags.bits() as i32);
}

#[cfg(not(unix))]
pub(crate) fn no_links(_: &mut OpenOptions) {}

/// Makes a directory that only its owner may enter, and its parents; one that is there already stays as it is.
pub(crate) fn make_directory(path: &Path) -> Result<(), VaultError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| VaultError::io(path, "cannot be made", source))
}

/// Makes what a directory lists durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), VaultError> {
    // Windows has no way to do this and none is needed: its file system orders changes to a directory by itself.
    if cfg!(unix) {
        let synced = File::open(path).and_then(|directory| directory.sync_all());
        synced.map_err(|source| VaultError::io(path, "cannot be made durable", source))?;
    }
    Ok(())
}

pub(crate) fn sync_parent(path: &Path) -> Result<(), VaultError> {
    path.parent().map_or(Ok(()), sync_directory)
}
