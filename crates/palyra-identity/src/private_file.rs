//! Files that only the daemon's own user reads, replaced whole and made durable.
//!
//! Both sides keep their documents this way. A replacement is written beside the file, made durable, and renamed over
//! it, so a crash at any instant leaves the old content or the new one. Nothing here follows a link: the directories
//! are the user's own, and a link in one of them leads somewhere that is not.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The rights of every file here.
const PRIVATE: u32 = 0o600;
/// The rights of every directory here.
const PRIVATE_DIRECTORY: u32 = 0o700;
/// The bits that belong to anybody else.
pub(crate) const OTHERS: u32 = 0o077;

/// A file's content and rights; nothing when there is no file.
///
/// # Errors
/// It is a link, it is no ordinary file, it is larger than `most`, or it cannot be read.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<(Vec<u8>, u32)>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not an ordinary file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(Some((bytes, meta.permissions().mode() & 0o777)))
}

/// Writes a file and makes its content durable. Its name is durable only after [`sync_parent`].
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = rustix::fs::OFlags::NOFOLLOW;
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(PRIVATE)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file whole.
///
/// # Errors
/// The file cannot be replaced; it is then as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path);
    write(&new, bytes)?;
    std::fs::rename(&new, path)?;
    sync_parent(path)
}

/// Where a file's next content is prepared.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(".new");
    name.into()
}

/// Removes a file, if there is one.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a file's directory durable.
///
/// # Errors
/// The directory cannot be opened or made durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Makes a directory that only its owner enters, if it is not there.
///
/// # Errors
/// It cannot be made, or something else has its name.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.and_then(|()| sync_parent(path)),
    }
    if !path.symlink_metadata()?.is_dir() {
        return Err(io::Error::other("it is not a directory"));
    }
    Ok(())
}

/// Takes everybody else's rights to a file away; tells whether there were any.
///
/// # Errors
/// The rights cannot be changed.
pub(crate) fn make_private(path: &Path) -> io::Result<bool> {
    let meta = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let open = meta.is_file() && meta.permissions().mode() & OTHERS != 0;
    if open {
        std::fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_whole_and_not_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert!(read(&path, 10).unwrap().is_none());
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(read(&path, 3).unwrap(), Some((b"two".to_vec(), 0o600)));
        assert!(read(&path, 2).is_err(), "more than the limit");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(make_private(&path).unwrap() && !make_private(&path).unwrap());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link, 10).is_err() && write(&link, b"x").is_err());
        assert!(read(dir.path(), 10).is_err(), "a directory is no file");
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn a_directory_is_private_and_a_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        directory(&path).unwrap();
        directory(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let file = dir.path().join("f");
        write(&file, b"").unwrap();
        assert!(directory(&file).is_err());
    }
}
