//! Where a shell stood when it ended: what a client that keeps a shell of its own goes on in.
//!
//! A sandboxed process has no way out but its two streams. So the shell is told to write its directory to standard
//! error when it exits, between marks that [`Filter`] takes out again before anybody sees them. A program that writes
//! such marks itself tells a directory of its choice; it could have gone there as well.

use std::path::Path;

const MARK: &[u8] = b"\x1epalyra-directory:";
const END: u8 = 0x1e;
/// The longest that is held back for a mark to end.
const MAX_HELD: usize = 8192;

/// The shells that know `trap … EXIT`.
const SHELLS: [&str; 4] = ["bash", "sh", "zsh", "dash"];

/// The command with a shell that tells its directory; none where it is no `SHELL -c LINE`.
pub(super) fn telling(argv: &[String]) -> Option<Vec<String>> {
    let [shell, flag, line, rest @ ..] = argv else { return None };
    let name = Path::new(shell).file_name()?.to_str()?;
    if flag != "-c" || !SHELLS.contains(&name) {
        return None;
    }
    let line = format!("trap 'printf \"\\036palyra-directory:%s\\036\" \"$PWD\" >&2' EXIT; {line}");
    Some([&[shell.clone(), flag.clone(), line], rest].concat())
}

/// Holds back what may be the mark.
#[derive(Debug, Default)]
pub(super) struct Filter {
    held: Vec<u8>,
}

impl Filter {
    /// Takes further bytes, and gives those that are surely not the mark.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        if self.held.len() > MAX_HELD {
            return std::mem::take(&mut self.held);
        }
        let keep = position(&self.held).unwrap_or_else(|| self.held.len() - partial(&self.held));
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// What is left in the end, without the mark.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        take(&mut rest);
        rest
    }
}

/// Takes the mark off the end of a stream; gives the directory that it names.
pub(super) fn take(bytes: &mut Vec<u8>) -> Option<String> {
    if bytes.last() != Some(&END) {
        return None;
    }
    let at = bytes.windows(MARK.len()).rposition(|window| window == MARK)?;
    let named = bytes.get(at + MARK.len()..bytes.len() - 1)?.to_vec();
    if named.contains(&END) {
        return None;
    }
    bytes.truncate(at);
    String::from_utf8(named).ok().filter(|path| path.starts_with('/'))
}

fn position(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|window| window == MARK)
}

/// How many bytes at the end may be the beginning of the mark.
fn partial(bytes: &[u8]) -> usize {
    (1..MARK.len()).rev().find(|n| bytes.ends_with(&MARK[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn only_a_shell_with_a_line_tells_its_directory() {
        assert!(telling(&words(&["/bin/bash", "-c", "cd x", "name"])).unwrap()[2].ends_with("EXIT; cd x"));
        for other in [&["bash", "x.sh"][..], &["git", "-c", "a=b"], &["bash", "-lc", "cd"], &["bash", "-c"]] {
            assert_eq!(telling(&words(other)), None);
        }
    }

    #[test]
    fn the_mark_is_taken_out_in_whatever_pieces_it_comes() {
        let stream = b"warning\n\x1epalyra-directory:/w/sub dir\x1e";
        for size in 1..stream.len() {
            let mut filter = Filter::default();
            let mut shown: Vec<u8> = stream.chunks(size).flat_map(|piece| filter.push(piece)).collect();
            shown.extend(filter.finish());
            assert_eq!(shown, b"warning\n", "in pieces of {size}");
        }
        let mut kept = stream.to_vec();
        assert_eq!(take(&mut kept).as_deref(), Some("/w/sub dir"));
        assert_eq!(kept, b"warning\n");
    }

    #[test]
    fn what_only_looks_like_a_mark_is_shown() {
        for text in [&b"\x1epalyra-"[..], b"\x1epalyra-directory:/w", b"\x1epalyra-directory:x\x1e more", b"\x1e"] {
            let mut filter = Filter::default();
            let mut shown = filter.push(text);
            shown.extend(filter.finish());
            assert_eq!(shown, text);
        }
        let mut filter = Filter::default();
        let long = [MARK, &[b'x'; 2 * MAX_HELD]].concat();
        assert_eq!(filter.push(&long), long, "nothing is held without end");
    }
}
