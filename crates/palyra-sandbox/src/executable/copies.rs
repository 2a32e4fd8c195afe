//! Which installed program a file is a copy of, whatever it is called.
//!
//! Three looks, each cheap: it is the installed file itself under another name; it carries that program's build id or
//! code ([`super::elf`]); it bears text that only such a program has. The last one reads the whole file, once: the
//! answer is kept by the file's identity. None of them can recognise a program that was compiled anew, and none has to:
//! compiled programs of the workspace may run.

use super::elf::Prints;
use super::file::{self, FileIdentity};
use super::inventory::{Installed, inventory};
use super::opened::{Opened, read_at};
use memchr::memmem;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a file is a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Original {
    /// The original's family.
    pub(super) family: &'static str,
    /// Its name.
    pub(super) name: String,
    /// Where it is installed, if the copy was compared with it.
    pub(super) path: Option<PathBuf>,
}

/// The interpreter that a file is, judged by its content.
pub(super) fn original_of(opened: &Opened, search_path: &str) -> Option<Original> {
    recognise(opened.file(), opened.identity(), search_path)
}

/// The same for a copy of what had this identity.
pub(super) fn recognise(file: &File, identity: FileIdentity, search_path: &str) -> Option<Original> {
    let prints = Prints::of(file);
    let same = |known: &&Installed| {
        let exact = || known.identity.size == identity.size && same_bytes(file, &known.real);
        known.identity.is_same_file(identity) || known.prints.agree(&prints) || exact()
    };
    if let Some(known) = inventory(search_path).programs.iter().find(same) {
        let name = file::known_as(&known.real).to_owned();
        return Some(Original { family: known.family, name, path: Some(known.path.clone()) });
    }
    let family = marked(file, identity)?;
    Some(Original { family, name: family.to_owned(), path: None })
}

fn same_bytes(a: &File, b: &Path) -> bool {
    let Ok(b) = File::open(b) else { return false };
    let (mut x, mut y) = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    let mut at = 0;
    loop {
        match (read_at(a, &mut x, at), read_at(&b, &mut y, at)) {
            (Ok(n), Ok(m)) if n == m && x[..n] == y[..m] => {
                if n == 0 {
                    return true;
                }
                at += n as u64;
            }
            _ => return false,
        }
    }
}

/// Text that an interpreter carries and an ordinary program does not: family, first byte, the rest. The first byte
/// stands apart so that this table does not make a copy of our own program an interpreter.
const MARKS: &[(&str, u8, &[u8])] = &[
    ("bash", b'@', b"(#)Bash version "),
    ("busybox", b'B', b"usyBox v1."),
    ("python", b'F', b"atal Python error: "),
    ("node", b'N', b"ODE_PENDING_DEPRECATION"),
    ("perl", b'p', b"anic: top_env"),
    ("ruby", b'r', b"uby: --yjit"),
    ("zsh", b'Z', b"SH_EVAL_CONTEXT"),
];

/// Answers by file. Bounded: what does not fit is looked at again.
static MARKED: Mutex<Option<HashMap<FileIdentity, Option<&'static str>>>> = Mutex::new(None);
const MOST_KNOWN: usize = 1024;

/// The family whose mark a file bears.
fn marked(file: &File, identity: FileIdentity) -> Option<&'static str> {
    let known = |answers: &HashMap<_, _>| answers.get(&identity).copied();
    if let Some(answer) = MARKED.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(known) {
        return answer;
    }
    // A file that cannot be read to its end is not known to be harmless; it could not be executed either.
    let answer = search_marks(file).unwrap_or(Some("unreadable"));
    if identity.is_settled() {
        let mut guard = MARKED.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = guard.get_or_insert_with(HashMap::new);
        if answers.len() >= MOST_KNOWN {
            answers.clear();
        }
        answers.insert(identity, answer);
    }
    answer
}

/// Reads the file to its end, however large, in pieces that overlap by the longest mark.
fn search_marks(file: &File) -> io::Result<Option<&'static str>> {
    const PIECE: usize = 1 << 20;
    const OVERLAP: usize = 64;
    let needles: Vec<(&'static str, Vec<u8>)> =
        MARKS.iter().map(|(family, first, rest)| (*family, [&[*first], *rest].concat())).collect();
    let finders: Vec<_> = needles.iter().map(|(family, needle)| (*family, memmem::Finder::new(needle))).collect();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let length = read_at(file, &mut piece, at)?;
        let text = &piece[..length];
        if let Some((family, _)) = finders.iter().find(|(_, finder)| finder.find(text).is_some()) {
            return Ok(Some(family));
        }
        if length < PIECE {
            return Ok(None);
        }
        at += (PIECE - OVERLAP) as u64;
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn marks_are_found_anywhere_and_across_pieces() {
        for before in [0, 5, (1 << 20) - 3, (1 << 20) - 64, 3 << 20] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![b'B'; before]).unwrap();
            file.write_all(b"BusyBox v1.36").unwrap();
            assert_eq!(search_marks(&file).unwrap(), Some("busybox"), "{before}");
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"BusyBox").unwrap();
        assert_eq!(search_marks(&file).unwrap(), None);
    }
}
