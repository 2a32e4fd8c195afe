//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.

use crate::{Membership, PolicyFile, PolicyFiles};

/// Reads the bytes as a policy directory: files between NUL bytes, each a name, a line end and its content.
///
/// # Panics
/// When a set that was accepted is refused the next time.
pub fn policy_directory(bytes: &[u8]) {
    let files = bytes.split(|b| *b == 0).filter_map(|file| {
        let end = file.iter().position(|b| *b == b'\n')?;
        let name = std::str::from_utf8(&file[..end]).ok()?.to_owned();
        Some(PolicyFile { name, bytes: file[end + 1..].to_vec() })
    });
    let Ok(files) = PolicyFiles::new(files.collect()) else { return };
    let base = Membership::single_user();
    if files.check(&base, None).is_ok() {
        assert!(files.check(&base, None).is_ok(), "a set that is accepted stays accepted");
    }
}
