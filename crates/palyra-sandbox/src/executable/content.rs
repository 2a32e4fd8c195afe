//! What a file is, judged by its bytes: a program, a script, or a copy of an interpreter under another name.
//!
//! Reads at most a few bytes of an ordinary program; whole files are compared only when their size already equals that of
//! an installed interpreter. It must never trust a name.

use super::names::{self, Kind};
use super::{FileIdentity, LookedAt, file};
use crate::error::SandboxError;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The kernel reads this much of a script's first line.
const SHEBANG_BYTES: usize = 256;
/// Files larger than this are not searched for an interpreter's marks.
const MARK_SEARCH_BYTES: u64 = 64 << 20;

/// What the kernel would make of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A compiled program.
    Program,
    /// A script, and the interpreter's command line from its first line.
    Script {
        /// The interpreter and its one argument, if any.
        interpreter: Vec<String>,
    },
}

/// Looks at the first bytes.
pub(super) fn inspect(path: &Path) -> Result<Content, SandboxError> {
    let mut head = [0u8; SHEBANG_BYTES];
    let length = read_head(path, &mut head).map_err(SandboxError::io("read the program's first bytes"))?;
    let head = &head[..length];
    if is_program(head) {
        return Ok(Content::Program);
    }
    if cfg!(windows) {
        // Batch files go to a shell that reads the arguments by rules of its own; nothing else can be executed.
        return Err(SandboxError::NotExecutable { path: path.to_owned() });
    }
    // Neither program nor script: execve refuses it, and helpful libraries then hand it to a shell.
    let line = head.strip_prefix(b"#!").ok_or_else(|| SandboxError::NotExecutable { path: path.to_owned() })?;
    let interpreter = shebang(line).ok_or_else(|| SandboxError::NotExecutable { path: path.to_owned() })?;
    Ok(Content::Script { interpreter })
}

/// Whether the first bytes are those of a program of this platform.
fn is_program(head: &[u8]) -> bool {
    let marks: &[&[u8]] = if cfg!(target_os = "macos") {
        &[b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf", b"\xfe\xed\xfa\xcf"]
    } else if cfg!(windows) {
        &[b"MZ"]
    } else {
        &[b"\x7fELF"]
    };
    marks.iter().any(|mark| head.starts_with(mark))
}

fn read_head(path: &Path, head: &mut [u8]) -> io::Result<usize> {
    let mut file = File::open(path)?;
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// The interpreter of a first line, as the kernel splits it: a path, then everything else as one argument. A line that
/// is longer than the kernel reads is refused rather than cut.
fn shebang(line: &[u8]) -> Option<Vec<String>> {
    let end = line.iter().position(|&b| b == b'\n')?;
    let line = std::str::from_utf8(&line[..end]).ok()?.trim_matches([' ', '\t', '\r']);
    let (path, argument) = match line.split_once([' ', '\t']) {
        Some((path, argument)) => (path, Some(argument.trim())),
        None => (line, None),
    };
    if !path.starts_with('/') {
        return None;
    }
    let mut words = vec![path.to_owned()];
    let is_env = matches!(path.rsplit('/').next(), Some("env"));
    match argument.filter(|a| !a.is_empty()) {
        // `#!/usr/bin/env -S python3 -u`: env splits the rest; without quotes that is at spaces.
        Some(argument) if is_env && argument.starts_with("-S") => {
            let rest = argument[2..].trim();
            if rest.contains(['\'', '"', '\\', '$', '#']) {
                return None;
            }
            words.extend(rest.split_whitespace().map(str::to_owned));
        }
        Some(argument) => words.push(argument.to_owned()),
        None => {}
    }
    Some(words)
}

/// What a file is a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Original {
    /// What the original is known as.
    pub(super) kind: Kind,
    /// Its name.
    pub(super) name: String,
}

/// One installed program that is on a list of names.
#[derive(Debug, Clone)]
struct Installed {
    original: Original,
    path: PathBuf,
    identity: FileIdentity,
}

/// Installed programs of the lists by size, per search path.
static INSTALLED: Mutex<Option<(String, BySize)>> = Mutex::new(None);

type BySize = HashMap<u64, Vec<Installed>>;

/// The listed program that a file is by content: a hard link, an exact copy, or a changed copy that still bears the marks.
/// Files in the system's directories are known by name and skipped.
pub(super) fn original_of(looked_at: LookedAt<'_>, search_path: &str) -> Option<Original> {
    let LookedAt { path, identity, of_system } = looked_at;
    if crate::layout::is_system_path(path) && of_system {
        return None;
    }
    for known in same_size(identity.size, search_path) {
        if known.identity.is_same_file(identity) || same_bytes(path, &known.path) {
            return Some(known.original);
        }
    }
    marked(path, identity.size).map(|family| Original { kind: Kind::Interpreter(family), name: family.to_owned() })
}

fn same_size(size: u64, search_path: &str) -> Vec<Installed> {
    let mut guard = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.as_ref().is_none_or(|(known, _)| known != search_path) {
        *guard = Some((search_path.to_owned(), scan_installed(search_path)));
    }
    guard.as_ref().and_then(|(_, by_size)| by_size.get(&size).cloned()).unwrap_or_default()
}

/// Reads the search path once and keeps what is on a list by name.
fn scan_installed(search_path: &str) -> BySize {
    let mut by_size = BySize::new();
    let directories = std::env::split_paths(search_path).filter_map(|dir| fs::read_dir(dir).ok());
    for entry in directories.flatten().filter_map(Result::ok) {
        let path = entry.path();
        let name = file::known_as(&path).to_owned();
        let Some(kind) = names::kind_of(&name) else { continue };
        let Ok(identity) = FileIdentity::at(&path) else { continue };
        let original = Original { kind, name };
        by_size.entry(identity.size).or_default().push(Installed { original, path, identity });
    }
    by_size
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (File::open(a), File::open(b)) else { return false };
    let (mut a, mut b) = (io::BufReader::with_capacity(1 << 16, a), io::BufReader::with_capacity(1 << 16, b));
    let (mut x, mut y) = (vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    loop {
        match (fill(&mut a, &mut x), fill(&mut b, &mut y)) {
            (Ok(n), Ok(m)) if n == m && x[..n] == y[..m] => {
                if n == 0 {
                    return true;
                }
            }
            _ => return false,
        }
    }
}

fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// Text that an interpreter carries and an ordinary program does not: family, first byte, the rest. The first byte stands
/// apart so that this table does not make a copy of our own program an interpreter.
const MARKS: &[(&str, u8, &[u8])] = &[
    ("bash", b'@', b"(#)Bash version "),
    ("busybox", b'B', b"usyBox v1."),
    ("python", b'P', b"YTHONDONTWRITEBYTECODE"),
    ("node", b'N', b"ODE_PENDING_DEPRECATION"),
    ("perl", b'P', b"ERL5OPT"),
    ("ruby", b'R', b"UBYOPT"),
    ("zsh", b'Z', b"SH_EVAL_CONTEXT"),
];

/// Searches the file for [`MARKS`].
fn marked(path: &Path, size: u64) -> Option<&'static str> {
    if size > MARK_SEARCH_BYTES {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    MARKS.iter().find(|(_, first, rest)| contains(&bytes, *first, rest)).map(|(family, ..)| *family)
}

fn contains(haystack: &[u8], first: u8, rest: &[u8]) -> bool {
    let mut at = 0;
    while let Some(offset) = haystack[at..].iter().position(|&b| b == first) {
        at += offset + 1;
        if haystack[at..].starts_with(rest) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shebang_lines() {
        for (line, expect) in [
            ("/bin/sh\n", Some(vec!["/bin/sh"])),
            (" /usr/bin/env python3\nprint()", Some(vec!["/usr/bin/env", "python3"])),
            ("/usr/bin/env -S python3 -u\n", Some(vec!["/usr/bin/env", "python3", "-u"])),
            ("/usr/bin/perl -w -T\n", Some(vec!["/usr/bin/perl", "-w -T"])),
            ("/usr/bin/env -S 'a b'\n", None),
            ("python3\n", None),
            ("\n", None),
            ("/bin/sh without an end", None),
        ] {
            let got = shebang(line.as_bytes());
            assert_eq!(got, expect.map(|w| w.into_iter().map(str::to_owned).collect()), "{line:?}");
        }
    }

    #[test]
    fn marks_are_found_anywhere() {
        assert!(contains(b"xxBusyBox v1", b'B', b"usyBox v"));
        assert!(contains(b"BusyBusyBox v", b'B', b"usyBox v"));
        assert!(!contains(b"BusyBox", b'B', b"usyBox v"));
    }
}
