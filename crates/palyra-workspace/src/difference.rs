//! The difference that a write would make to a file: for people who are asked about it.
//!
//! It holds bytes of the file that is there, so it is for those alone who may answer for the call. Both versions are
//! bounded: the time that a difference takes grows with the square of its lines.

use super::Workspace;
use super::error::{FileError, io_at};
use super::read::read_all;
use std::fs::File;

/// The largest version that is compared, in bytes and in lines.
const MAX_BYTES: usize = 256 << 10;
const MAX_LINES: usize = 4000;

/// What a write would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteDifference {
    /// A unified difference; all lines are added where there is no file yet.
    Text(String),
    /// The file has this content already.
    Same,
    /// One of the versions is no text, or too large to be compared.
    Opaque {
        /// The size of the file that is there, if there is one.
        old: Option<u64>,
    },
}

impl Workspace {
    /// The difference between the file at a path, which is resolved as it was shown, and its new content.
    ///
    /// # Errors
    /// The path leads elsewhere than it did, or the file cannot be read.
    pub fn write_difference(&self, path: &str, new: &[u8]) -> Result<WriteDifference, FileError> {
        self.in_place()?;
        let resolved = self.resolve(path)?;
        if resolved.as_str() != path {
            return Err(FileError::SymlinkRace { path: super::error::shown(path) });
        }
        let old = match self.open_file(&resolved) {
            Ok((file, stat)) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                Some((read_all(&File::from(file), MAX_BYTES as u64).map_err(io_at(path))?, size))
            }
            Err(FileError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let opaque = WriteDifference::Opaque { old: old.as_ref().map(|(_, size)| *size) };
        let before = match &old {
            None => Some(""),
            Some((bytes, _)) => bytes.as_deref().and_then(comparable),
        };
        let (Some(before), Some(after)) = (before, comparable(new)) else { return Ok(opaque) };
        if old.is_some() && before == after {
            return Ok(WriteDifference::Same);
        }
        let mut options = diffy::DiffOptions::new();
        let original = if old.is_some() { format!("a/{path}") } else { "/dev/null".to_owned() };
        options.set_original_filename(original).set_modified_filename(format!("b/{path}"));
        Ok(WriteDifference::Text(options.create_patch(before, after).to_string()))
    }
}

/// A version as text that can be compared.
fn comparable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    (text.len() <= MAX_BYTES && text.lines().count() <= MAX_LINES).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_shown_as_what_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "one\ntwo\n").unwrap();
        std::fs::write(dir.path().join("b.bin"), b"\xff\x00").unwrap();
        std::os::unix::fs::symlink("a.txt", dir.path().join("link")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let difference = |path: &str, new: &[u8]| workspace.write_difference(path, new);
        let WriteDifference::Text(text) = difference("a.txt", b"one\n2\n").unwrap() else { panic!("no text") };
        assert!(text.contains("-two\n+2\n") && text.contains("+++ b/a.txt"), "{text}");
        let WriteDifference::Text(text) = difference("new.txt", b"all\n").unwrap() else { panic!("no text") };
        assert!(text.contains("--- /dev/null") && text.contains("+all"), "{text}");
        assert_eq!(difference("a.txt", b"one\ntwo\n").unwrap(), WriteDifference::Same);
        assert_eq!(difference("b.bin", b"x").unwrap(), WriteDifference::Opaque { old: Some(2) });
        assert_eq!(difference("a.txt", b"\xff").unwrap(), WriteDifference::Opaque { old: Some(8) });
        let large = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(difference("a.txt", large.as_bytes()).unwrap(), WriteDifference::Opaque { old: Some(8) });
        // What is there now is not what was shown.
        assert!(matches!(difference("link", b"x"), Err(FileError::SymlinkRace { .. })));
    }
}
