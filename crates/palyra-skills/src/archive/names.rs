//! Which names an entry may have: relative paths that every file system reads alike.
//!
//! Names are ASCII. A name in another script has several spellings that look alike and that file systems fold together
//! in different ways; refusing them all is simpler than knowing every way.

use std::collections::{BTreeMap, BTreeSet};

/// The longest name.
pub const MAX_NAME: usize = 240;
/// The longest part between slashes.
const MAX_PART: usize = 128;
/// How many directories deep an entry may be.
const MAX_DEPTH: usize = 16;
/// Names that Windows takes for devices, with any extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing.
    #[error("it is empty")]
    Empty,
    /// Longer than the limits.
    #[error(
        "it is longer than {MAX_NAME} characters, has a part longer than {MAX_PART}, or more than {MAX_DEPTH} parts"
    )]
    TooLong,
    /// Something else than printable ASCII.
    #[error("names are printable ASCII characters")]
    Characters,
    /// It leads out of the directory.
    #[error("a part is `.` or `..`, so it leads elsewhere")]
    Traversal,
    /// It begins at the root.
    #[error("it begins at the root of a file system")]
    Absolute,
    /// Windows reads it in another way.
    #[error("Windows reads it as something else: a backslash, a drive, a stream, a device, or a final dot or space")]
    Windows,
    /// A directory, or a part that is empty.
    #[error("it names a directory or has an empty part")]
    Directory,
}

impl NameFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Empty => "archive_name_empty",
            Self::TooLong => "archive_name_too_long",
            Self::Characters => "archive_name_characters",
            Self::Traversal => "archive_name_traversal",
            Self::Absolute => "archive_name_absolute",
            Self::Windows => "archive_name_windows",
            Self::Directory => "archive_name_directory",
        }
    }
}

/// Reads a name.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &[u8]) -> Result<&str, NameFault> {
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    let text = std::str::from_utf8(name).map_err(|_| NameFault::Characters)?;
    if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Err(NameFault::Characters);
    }
    if text.contains(['\\', ':', '<', '>', '"', '|', '?', '*']) {
        return Err(NameFault::Windows);
    }
    if text.starts_with('/') {
        return Err(NameFault::Absolute);
    }
    if text.len() > MAX_NAME || text.split('/').count() > MAX_DEPTH {
        return Err(NameFault::TooLong);
    }
    text.split('/').try_for_each(check_part)?;
    Ok(text)
}

fn check_part(part: &str) -> Result<(), NameFault> {
    match part {
        "" => return Err(NameFault::Directory),
        "." | ".." => return Err(NameFault::Traversal),
        part if part.len() > MAX_PART => return Err(NameFault::TooLong),
        _ => {}
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') || is_device(part) {
        return Err(NameFault::Windows);
    }
    Ok(())
}

/// Whether Windows would open a device instead of a file.
fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
    let numbered = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    DEVICES.contains(&stem.as_str()) || numbered.is_some_and(|n| matches!(n.as_bytes(), [b'0'..=b'9']))
}

/// Two names that cannot stand side by side in every file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clash {
    /// The same name again.
    Duplicate,
    /// They differ in case only, or their directories do.
    CaseTwin,
    /// One is a file and the other has it as a directory.
    FileAndDirectory,
}

/// The names seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    files: BTreeSet<String>,
    /// Every directory and file by its folded spelling, with the spelling that was used.
    spellings: BTreeMap<String, String>,
    directories: BTreeSet<String>,
}

impl Seen {
    /// Adds a name that [`check_name`] accepted.
    pub(super) fn add(&mut self, name: &str) -> Result<(), Clash> {
        if self.files.contains(name) {
            return Err(Clash::Duplicate);
        }
        let cuts = name.match_indices('/').map(|(at, _)| at);
        for end in cuts.chain([name.len()]) {
            let path = &name[..end];
            let known = self.spellings.entry(path.to_ascii_lowercase()).or_insert_with(|| path.to_owned());
            if known != path {
                return Err(Clash::CaseTwin);
            }
            if end < name.len() {
                if self.files.contains(path) {
                    return Err(Clash::FileAndDirectory);
                }
                self.directories.insert(path.to_owned());
            }
        }
        if self.directories.contains(name) {
            return Err(Clash::FileAndDirectory);
        }
        self.files.insert(name.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_by_kind() {
        for good in ["skill.toml", "modules/a.wasm", "assets/a b/c(1).txt", "assets/.hidden", "a/b.c.d"] {
            assert_eq!(check_name(good.as_bytes()), Ok(good));
        }
        for (bad, fault) in [
            ("", NameFault::Empty),
            ("../x", NameFault::Traversal),
            ("a/../x", NameFault::Traversal),
            ("a/.", NameFault::Traversal),
            ("/etc/passwd", NameFault::Absolute),
            ("c:/x", NameFault::Windows),
            ("a\\b", NameFault::Windows),
            ("a/nul", NameFault::Windows),
            ("a/COM1.txt", NameFault::Windows),
            ("a/x.", NameFault::Windows),
            ("a /x", NameFault::Windows),
            ("a:stream", NameFault::Windows),
            ("a/", NameFault::Directory),
            ("a//b", NameFault::Directory),
            ("a\nb", NameFault::Characters),
            ("é", NameFault::Characters),
            ("a\u{0}b", NameFault::Characters),
        ] {
            assert_eq!(check_name(bad.as_bytes()), Err(fault), "{bad:?}");
        }
        assert_eq!(check_name(&[0xff]), Err(NameFault::Characters));
        assert_eq!(check_name("a/".repeat(17).as_bytes()), Err(NameFault::TooLong));
        assert_eq!(check_name("a".repeat(129).as_bytes()), Err(NameFault::TooLong));
    }

    #[test]
    fn clashing_names_are_found() {
        let check = |names: &[&str]| {
            let mut seen = Seen::default();
            names.iter().try_for_each(|name| seen.add(name))
        };
        assert_eq!(check(&["a/b", "a/c", "d"]), Ok(()));
        assert_eq!(check(&["a", "a"]), Err(Clash::Duplicate));
        assert_eq!(check(&["a/b", "a/B"]), Err(Clash::CaseTwin));
        assert_eq!(check(&["a/b", "A/c"]), Err(Clash::CaseTwin));
        assert_eq!(check(&["a", "a/b"]), Err(Clash::FileAndDirectory));
        assert_eq!(check(&["a/b", "a"]), Err(Clash::FileAndDirectory));
    }
}
