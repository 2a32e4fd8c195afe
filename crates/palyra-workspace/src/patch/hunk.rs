//! Hunks, and putting them on a file's content.
//!
//! A hunk applies where its old lines stand, byte for byte. That is at the line it names; or, because people and models
//! count badly, at the one other place behind the previous hunk where they stand. Where they stand twice, or never, it
//! does not apply: there is no fuzz, and nothing is guessed. It must never put a file's content into an error: who may
//! write a file is not always one who may read it.

use crate::error::{FileError, shown};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Context,
    Removed,
    Added,
}

/// One line of a hunk, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) kind: LineKind,
    text: String,
}

impl Line {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let body = line.strip_suffix('\n').unwrap_or(line);
        let (kind, text) = match body.as_bytes().first() {
            Some(b' ') => (LineKind::Context, body.get(1..)?),
            Some(b'-') => (LineKind::Removed, body.get(1..)?),
            Some(b'+') => (LineKind::Added, body.get(1..)?),
            // An empty line of context whose blank was lost on the way, as git and GNU patch read it.
            None | Some(b'\r') if body.trim_end_matches('\r').is_empty() => (LineKind::Context, body),
            _ => return None,
        };
        Some(Self { kind, text: format!("{text}\n") })
    }

    /// Takes the line's end off; says whether it had one.
    pub(super) fn end_without_newline(&mut self) -> bool {
        self.text.ends_with('\n') && self.text.pop().is_some()
    }
}

/// A group of lines that replaces another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Where in the patch it begins.
    pub(super) line: usize,
    pub(super) old_start: usize,
    pub(super) old_count: usize,
    pub(super) lines: Vec<Line>,
}

impl Hunk {
    /// The index of the first old line: with no old lines the header names the line *before*.
    pub(super) fn old_index(&self) -> usize {
        if self.old_count == 0 { self.old_start } else { self.old_start.saturating_sub(1) }
    }

    pub(super) fn old_end(&self) -> usize {
        self.old_index().saturating_add(self.old_count)
    }

    /// What no hunk can mean, whatever the file.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.lines.iter().all(|line| line.kind == LineKind::Context) {
            return Err("the hunk changes nothing");
        }
        if self.old_count > 0 && self.old_start == 0 {
            return Err("lines are counted from 1");
        }
        for side in [LineKind::Added, LineKind::Removed] {
            let mut ends = self.lines.iter().filter(|line| line.kind != side).map(|line| line.text.ends_with('\n'));
            if ends.by_ref().any(|has_newline| !has_newline) && ends.next().is_some() {
                return Err("only the last line of a file can be without a newline");
            }
        }
        Ok(())
    }

    fn old_lines(&self) -> Vec<&[u8]> {
        self.lines.iter().filter(|line| line.kind != LineKind::Added).map(|line| line.text.as_bytes()).collect()
    }

    fn count(&self, kind: LineKind) -> usize {
        self.lines.iter().filter(|line| line.kind == kind).count()
    }
}

/// A file's content after its hunks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Patched {
    pub(super) content: Vec<u8>,
    pub(super) added: usize,
    pub(super) removed: usize,
    /// How many hunks stood at another line than they named.
    pub(super) relocated: usize,
}

/// Applies hunks to content. `lines_left` bounds how far hunks are looked for in all.
pub(super) fn patched(
    path: &str,
    content: &[u8],
    hunks: &[Hunk],
    lines_left: &mut usize,
) -> Result<Patched, FileError> {
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let mut result = Patched { content: Vec::with_capacity(content.len()), ..Patched::default() };
    let mut cursor = 0_usize;
    // How far the file has drifted from the line numbers of the patch.
    let mut drift = 0_isize;
    for (number, hunk) in hunks.iter().enumerate() {
        let fails = |reason: String| FileError::PatchDoesNotApply { path: shown(path), hunk: number + 1, reason };
        let old = hunk.old_lines();
        let named = hunk.old_index().saturating_add_signed(drift);
        let at =
            locate(&lines, &old, cursor, named, lines_left).map_err(|miss| fails(miss.reason(hunk, &lines, &old)))?;
        if at != named {
            result.relocated += 1;
            drift = at.cast_signed().wrapping_sub(hunk.old_index().cast_signed());
        }
        let kept = lines.get(cursor..at).unwrap_or_default();
        let new = hunk.lines.iter().filter(|line| line.kind != LineKind::Removed).map(|line| line.text.as_bytes());
        for line in kept.iter().copied().chain(new) {
            push(&mut result.content, line).map_err(|reason| fails(reason.to_owned()))?;
        }
        cursor = at + old.len();
        result.added += hunk.count(LineKind::Added);
        result.removed += hunk.count(LineKind::Removed);
    }
    for line in lines.get(cursor..).unwrap_or_default() {
        push(&mut result.content, line).map_err(|reason| FileError::PatchDoesNotApply {
            path: shown(path),
            hunk: hunks.len(),
            reason: reason.to_owned(),
        })?;
    }
    Ok(result)
}

fn push(content: &mut Vec<u8>, line: &[u8]) -> Result<(), &'static str> {
    if content.last().is_some_and(|last| *last != b'\n') {
        return Err("it would join two lines: a line without a newline must be the file's last");
    }
    content.extend_from_slice(line);
    Ok(())
}

/// Why a hunk has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Miss {
    NoContext,
    Nowhere,
    Ambiguous,
    TooFar,
}

impl Miss {
    fn reason(self, hunk: &Hunk, lines: &[&[u8]], old: &[&[u8]]) -> String {
        match self {
            Self::NoContext => "it has neither context nor removed lines; add some lines of context".to_owned(),
            Self::Ambiguous => {
                format!("its old lines are not at line {} and stand in several places; add context", hunk.old_start)
            }
            Self::TooFar => "too many hunks are not at the lines they name; make the patch again".to_owned(),
            Self::Nowhere => {
                // Says which line of the patch, never what the file has instead.
                let at = lines.get(hunk.old_index()..).unwrap_or_default();
                let same = old.iter().zip(at).take_while(|(old, line)| old == line).count();
                if let (Some(old), Some(line)) = (old.get(same), at.get(same))
                    && without_end(old) == without_end(line)
                {
                    return other_end(hunk.old_start + same, old, line);
                }
                let expected =
                    old.get(same).map(|line| shown(String::from_utf8_lossy(line).trim_end())).unwrap_or_default();
                format!(
                    "line {} of the file is not `{expected}`; read the file again and make the patch from that",
                    hunk.old_start + same
                )
            }
        }
    }
}

/// What is to be said of a line that differs from the patch's in nothing but its end.
fn other_end(number: usize, old: &[u8], line: &[u8]) -> String {
    match (old.ends_with(b"\n"), line.ends_with(b"\n")) {
        (true, false) => format!(
            "line {number} of the file has no newline at its end; the patch must say so: `\\ No newline at end of file`"
        ),
        (false, true) => format!("line {number} of the file has a newline at its end; the patch says that it has none"),
        _ => format!(
            "line {number} of the file has another line end than the patch; one of them ends lines with CR LF, and a patch \
             must end them as the file does"
        ),
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where the old lines stand, at or behind `cursor`.
fn locate(lines: &[&[u8]], old: &[&[u8]], cursor: usize, named: usize, lines_left: &mut usize) -> Result<usize, Miss> {
    if old.is_empty() {
        // With nothing to compare, a place can only be believed where there is no other.
        return if lines.is_empty() { Ok(0) } else { Err(Miss::NoContext) };
    }
    let stands_at = |at: usize| lines.get(at..).is_some_and(|rest| rest.starts_with(old));
    if named >= cursor && stands_at(named) {
        return Ok(named);
    }
    let behind = lines.get(cursor..).unwrap_or_default();
    *lines_left = lines_left.checked_sub(behind.len() + old.len()).ok_or(Miss::TooFar)?;
    let mut places = occurrences(behind, old).into_iter();
    match (places.next(), places.next()) {
        (None, _) => Err(Miss::Nowhere),
        (Some(at), None) => Ok(cursor + at),
        (Some(_), Some(_)) => Err(Miss::Ambiguous),
    }
}

/// The first two places of a sequence of lines (Knuth, Morris, Pratt: linear also in a file of a million equal lines).
fn occurrences(lines: &[&[u8]], sought: &[&[u8]]) -> Vec<usize> {
    let mut fallback = vec![0_usize; sought.len()];
    let mut matched = 0;
    for at in 1..sought.len() {
        while matched > 0 && sought.get(at) != sought.get(matched) {
            matched = fallback.get(matched - 1).copied().unwrap_or(0);
        }
        if sought.get(at) == sought.get(matched) {
            matched += 1;
        }
        if let Some(slot) = fallback.get_mut(at) {
            *slot = matched;
        }
    }
    let mut places = Vec::new();
    matched = 0;
    for (at, line) in lines.iter().enumerate() {
        while matched > 0 && sought.get(matched) != Some(line) {
            matched = fallback.get(matched - 1).copied().unwrap_or(0);
        }
        if sought.get(matched) == Some(line) {
            matched += 1;
        }
        if matched == sought.len() {
            places.push(at + 1 - matched);
            if places.len() == 2 {
                break;
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_agree_with_the_naive_search() {
        for haystack in 0..512_u32 {
            for needle in 0..16_u32 {
                let bits = |value: u32, n: u32| -> Vec<&'static [u8]> {
                    (0..n).map(|bit| if value >> bit & 1 == 1 { b"a".as_slice() } else { b"b" }).collect()
                };
                for length in 1..=4 {
                    let (lines, sought) = (bits(haystack, 9), bits(needle, length));
                    let naive: Vec<usize> =
                        (0..lines.len()).filter(|at| lines[*at..].starts_with(&sought)).take(2).collect();
                    assert_eq!(occurrences(&lines, &sought), naive);
                }
            }
        }
    }
}
