//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by the tests, so that they are exercised wherever the tests run.

use super::ignore_files::parsed;

/// Reads the bytes as a patch.
pub fn patch(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Reading must end, and must not panic; what it finds depends on the files.
        drop(crate::patch::parse_only(text));
    }
}

/// Reads the bytes as an ignore file and asks it about paths.
///
/// # Panics
/// When a promise of the parser is broken.
pub fn ignore_file(bytes: &[u8]) {
    let Some(rules) = parsed(bytes) else { return };
    for path in ["a", ".git", "a/b.rs", "target/debug/x", "ä\u{fffd}/…"] {
        let (file, directory) = (rules.matched(path, false), rules.matched(path, true));
        assert!(file.is_none() || !directory.is_none(), "what matches a file matches a directory of that name: {path}");
    }
}

/// Reads the bytes as git's index.
///
/// # Panics
/// When a promise of the parser is broken.
pub fn git_index(bytes: &[u8]) {
    crate::git_index::fuzz(bytes);
}
