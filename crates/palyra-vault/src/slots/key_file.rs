//! Key files: 32 random bytes that only their owner may read.

use crate::aead::Key;
use crate::durable;
use crate::error::VaultError;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use zeroize::Zeroizing;

const PREFIX: &str = "palyra-vault-key-1:";
/// The prefix, 64 digits and a line end.
const LENGTH: usize = PREFIX.len() + 64 + 1;

/// Reads a key file, or makes one where there is none. Where there is one already it is used: a vault whose making was
/// cut off can be made anew.
pub(super) fn read_or_make(path: &Path) -> Result<Key, VaultError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        durable::make_directory(directory)?;
    }
    let mut file = match durable::create_new(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return read(path),
        Err(source) => return Err(VaultError::io(path, "cannot be made", source)),
    };
    let key = Key::generate()?;
    let mut text = Zeroizing::new(vec![0; LENGTH]);
    text[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
    text[LENGTH - 1] = b'\n';
    hex::encode_to_slice(key.expose(), &mut text[PREFIX.len()..LENGTH - 1])
        .map_err(|_| VaultError::Internal { what: "a key has no text form" })?;
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    if let Err(source) = written {
        // Half a key file is in the way of the next attempt.
        drop(std::fs::remove_file(path));
        return Err(VaultError::io(path, "cannot be written", source));
    }
    durable::sync_parent(path)?;
    Ok(key)
}

/// Reads a key file that only its owner can read.
pub(super) fn read(path: &Path) -> Result<Key, VaultError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => unusable(path, "is missing"),
        _ => VaultError::io(path, "cannot be read", source),
    };
    let mut options = std::fs::OpenOptions::new();
    options.read(true);
    durable::no_links(&mut options);
    let mut file = options.open(path).map_err(failed)?;
    check_private(path, &file)?;
    let mut text = Zeroizing::new(vec![0; LENGTH + 1]);
    let mut filled = 0;
    while filled < text.len() {
        match file.read(&mut text[filled..]).map_err(failed)? {
            0 => break,
            count => filled += count,
        }
    }
    parse(&text[..filled]).ok_or_else(|| unusable(path, "holds no key of a vault"))
}

fn parse(text: &[u8]) -> Option<Key> {
    let digits = text.strip_prefix(PREFIX.as_bytes())?.strip_suffix(b"\n")?;
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(digits, &mut *bytes).ok()?;
    Key::from_slice(&*bytes)
}

#[cfg(unix)]
fn check_private(path: &Path, file: &File) -> Result<(), VaultError> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = file.metadata().map_err(|source| VaultError::io(path, "cannot be read", source))?;
    if !meta.is_file() {
        return Err(unusable(path, "is not a file"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(unusable(path, "can be read by others; give it mode 0600 and consider its key known"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(unusable(path, "belongs to another user"));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_private(path: &Path, file: &File) -> Result<(), VaultError> {
    let meta = file.metadata().map_err(|source| VaultError::io(path, "cannot be read", source))?;
    if meta.is_file() { Ok(()) } else { Err(unusable(path, "is not a file")) }
}

fn unusable(path: &Path, what: &'static str) -> VaultError {
    VaultError::KeyFile { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        read(path).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_key_file_is_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/key");
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap().expose(), key.expose());
        assert_eq!(read(&path).unwrap().expose(), key.expose());
    }

    #[test]
    fn a_key_file_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(refusal(&path).contains("is missing"));
        read_or_make(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for bad in [&b""[..], &whole[..LENGTH - 1], &[&whole[..], b"\n"].concat(), &whole.to_ascii_uppercase()] {
            std::fs::write(&path, bad).unwrap();
            assert!(refusal(&path).contains("holds no key"), "{}", refusal(&path));
        }
        assert!(refusal(dir.path()).contains("not a file") || refusal(dir.path()).contains("read by others"));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        read_or_make(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(refusal(&path).contains("can be read by others"));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refusal(&link).contains("cannot be read"));
    }
}
