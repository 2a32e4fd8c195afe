//! What the kernel would make of a file's first bytes: a program, or a script and its interpreter's command line.
//!
//! It must never trust a name, and never read a line in another way than the kernel does: what cannot be read exactly
//! is refused.

use super::opened::Opened;
use crate::error::SandboxError;
use std::path::Path;

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
pub(super) fn inspect(opened: &Opened, path: &Path) -> Result<Content, SandboxError> {
    let head = opened.head().map_err(SandboxError::io("read the program's first bytes"))?;
    if is_program(&head) {
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

/// Whether an opened file is a program of this platform.
#[cfg(target_os = "linux")]
pub(super) fn is_program_file(file: &std::fs::File) -> std::io::Result<bool> {
    let mut head = [0; 4];
    let length = super::opened::read_at(file, &mut head, 0)?;
    Ok(is_program(&head[..length]))
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

/// The interpreter of a first line, as the kernel splits it: a path, then everything else as one argument. Blanks and
/// tabs part words, and nothing else does: a carriage return belongs to the name. A line that is longer than the kernel
/// reads is refused rather than cut.
fn shebang(line: &[u8]) -> Option<Vec<String>> {
    const BLANKS: [char; 2] = [' ', '\t'];
    let end = line.iter().position(|&b| b == b'\n')?;
    let line = std::str::from_utf8(&line[..end]).ok()?.trim_matches(BLANKS);
    let (path, argument) = match line.split_once(BLANKS) {
        Some((path, argument)) => (path, Some(argument.trim_matches(BLANKS))),
        None => (line, None),
    };
    if !path.starts_with('/') || line.contains('\0') {
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
            ("/bin/sh \t\n", Some(vec!["/bin/sh"])),
            ("/bin/sh\r\n", Some(vec!["/bin/sh\r"])),
            ("/bin/sh\u{a0}x\n", Some(vec!["/bin/sh\u{a0}x"])),
            ("/usr/bin/env -S 'a b'\n", None),
            ("/bin/sh\0x\n", None),
            ("python3\n", None),
            ("\n", None),
            ("/bin/sh without an end", None),
        ] {
            let got = shebang(line.as_bytes());
            assert_eq!(got, expect.map(|w| w.into_iter().map(str::to_owned).collect()), "{line:?}");
        }
    }
}
