//! What an ELF file carries with it wherever it is copied: its build id and its code.
//!
//! Both stay the same when bytes are appended or symbols stripped, and both are found with a few small reads, however
//! large the file is. Whoever rewrites them has made another program, which is what a compiler does too.

use super::opened::read_at;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Headers of a file that is not hostile are small.
const MOST_HEADERS: usize = 64;
const MOST_NOTES: usize = 4096;
const PAGE: u64 = 4096;

/// What identifies a program, whatever was put around it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prints {
    /// The linker's note.
    build_id: Option<Vec<u8>>,
    /// A page from the middle of the code.
    code: Option<u64>,
}

impl Prints {
    /// Takes them; none of a file that is no 64-bit ELF file.
    pub(super) fn of(file: &File) -> Self {
        Self::find(file).unwrap_or_default()
    }

    /// Whether both are of one program.
    pub(super) fn agree(&self, other: &Self) -> bool {
        let same_id = self.build_id.is_some() && self.build_id == other.build_id;
        let same_code = self.code.is_some() && self.code == other.code;
        same_id || same_code
    }

    fn find(file: &File) -> Option<Self> {
        let mut header = [0; 64];
        read_at(file, &mut header, 0).ok().filter(|length| *length == header.len())?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (offset, size, count) = (long(&header, 32)?, half(&header, 54)?, half(&header, 56)?);
        if size != 56 || count > MOST_HEADERS {
            return None;
        }
        let mut table = vec![0; size * count];
        read_at(file, &mut table, offset).ok().filter(|length| *length == table.len())?;
        let mut prints = Self::default();
        for segment in table.chunks_exact(size).filter_map(Segment::parse) {
            match segment {
                Segment { kind: Segment::NOTE, offset, length, .. } => {
                    prints.build_id = prints.build_id.or_else(|| build_id(file, offset, length));
                }
                Segment { kind: Segment::LOAD, executable: true, offset, length } => {
                    prints.code = prints.code.or_else(|| code(file, offset, length));
                }
                _ => {}
            }
        }
        Some(prints)
    }
}

struct Segment {
    kind: u32,
    executable: bool,
    offset: u64,
    length: u64,
}

impl Segment {
    const LOAD: u32 = 1;
    const NOTE: u32 = 4;

    fn parse(entry: &[u8]) -> Option<Self> {
        Some(Self {
            kind: word(entry, 0)?,
            executable: word(entry, 4)? & 1 != 0,
            offset: long(entry, 8)?,
            length: long(entry, 32)?,
        })
    }
}

/// The note that the linker leaves: kind 3, of the owner `GNU`.
fn build_id(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut notes = vec![0; usize::try_from(length).ok()?.min(MOST_NOTES)];
    let length = read_at(file, &mut notes, offset).ok()?;
    let mut left = notes.get(..length)?;
    while left.len() >= 12 {
        let (name, value, kind) = (word(left, 0)? as usize, word(left, 4)? as usize, word(left, 8)?);
        let begin = name.checked_next_multiple_of(4)?.checked_add(12)?;
        let bytes = left.get(begin..begin.checked_add(value)?)?;
        if kind == 3 && left.get(12..12 + name)? == b"GNU\0" && !bytes.is_empty() {
            return Some(bytes.to_vec());
        }
        left = left.get(begin.checked_add(value.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

fn code(file: &File, offset: u64, length: u64) -> Option<u64> {
    let mut page = vec![0; PAGE as usize];
    let read = read_at(file, &mut page, offset.checked_add(length / 2)?).ok()?;
    // Less than a page is mostly what every compiler puts into every program.
    if length < 2 * PAGE || read < page.len() || page.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    page.hash(&mut hasher);
    Some(hasher.finish())
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn prints(bytes: &[u8]) -> Prints {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Prints::of(&file)
    }

    #[test]
    fn a_program_is_known_whatever_is_put_behind_it() {
        let bash = std::fs::read("/bin/bash").unwrap();
        let known = prints(&bash);
        assert!(known.build_id.is_some() && known.code.is_some());
        assert!(known.agree(&prints(&[&bash[..], b"more"].concat())));
        assert!(!known.agree(&prints(&std::fs::read("/bin/cat").unwrap())));
    }

    #[test]
    fn the_code_tells_when_the_note_was_rewritten() {
        let mut bash = std::fs::read("/bin/bash").unwrap();
        let known = prints(&bash);
        let id = known.build_id.clone().unwrap();
        let at = bash.windows(id.len()).position(|window| window == id).unwrap();
        bash[at] ^= 1;
        let changed = prints(&bash);
        assert!(changed.build_id != known.build_id && known.agree(&changed));
    }

    #[test]
    fn hostile_headers_are_no_program() {
        let mut bytes = std::fs::read("/bin/true").unwrap();
        bytes.truncate(4096);
        for at in 0..bytes.len().min(1024) {
            for value in [0, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _answer = prints(&changed);
            }
        }
        assert_eq!(prints(b"\x7fELF\x02\x01"), Prints::default());
        assert!(!Prints::default().agree(&Prints::default()));
    }
}
