//! Searching: lines that match a pattern, in one file or in a tree.
//!
//! The pattern and the files are a stranger's, so time and memory are bounded in all of them: the caller's own wish to
//! stop is asked for between files, lines and parts of lines (`pattern.rs`), one file is in memory at a time, and what
//! is returned has a size of its own. Links are not followed, `.git` is only searched when the path names it. What
//! ignore files name (`ignore_files.rs`), binary and very large files are skipped and counted. A search that was cut
//! says so.

use super::Workspace;
use super::beneath::{DirUse, file_type};
use super::error::{FileError, at, io_at};
use super::limits::{
    MAX_CONTEXT_LINES, MAX_EXCERPT_CHARS, MAX_FOUND_BYTES, MAX_PATTERN_BYTES, MAX_SEARCH_BYTES, MAX_SEARCH_ENTRIES,
    MAX_SEARCH_FILE_BYTES, MAX_SEARCH_FILES, MAX_SEARCH_MATCHES, MAX_WALK_DEPTH,
};
use super::path::{ResolvedPath, is_git};
use super::pattern::{Pattern, PatternSyntax, too_long};
use super::read::read_all;
use super::walk::TreeWalk;
use globset::{GlobBuilder, GlobMatcher};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, statat};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;

/// How many leading bytes are looked at to tell binary from text.
const BINARY_PROBE: usize = 8192;

/// What is looked for, and where.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    pub pattern: String,
    pub syntax: PatternSyntax,
    /// A directory or a file.
    pub path: ResolvedPath,
    /// Which files: against the name when it has no `/`, otherwise against the path from the workspace's root.
    pub glob: Option<String>,
    /// Search also what ignore files name. A path that is named itself is searched in any case.
    pub include_ignored: bool,
    pub case_insensitive: bool,
    /// The most matches; beyond [`MAX_SEARCH_MATCHES`] it is cut.
    pub max_matches: usize,
    /// Lines to show before and after each match; beyond [`MAX_CONTEXT_LINES`] it is cut.
    pub context_lines: usize,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    pub path: String,
    /// From 1.
    pub line_number: u64,
    /// The line without its end, or the part of it around the match.
    pub line: String,
    /// `line` is only a part.
    pub line_truncated: bool,
    /// The lines before, as many as were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The lines after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SearchResult {
    pub matches: Vec<Match>,
    pub files_searched: usize,
    /// A limit ended the search: there may be more.
    pub truncated: bool,
    /// Files that hold a NUL byte near their beginning.
    pub skipped_binary: usize,
    /// Files above [`MAX_SEARCH_FILE_BYTES`].
    pub skipped_large: usize,
    /// Files and directories that ignore files name.
    pub skipped_ignored: usize,
    /// Files that hold secrets.
    pub skipped_secret: usize,
    /// Lines so long that they were searched in overlapping pieces: a match of many thousand bytes may be missed there.
    pub lines_in_pieces: usize,
    /// Files and directories that could not be read.
    pub unreadable: usize,
}

impl Workspace {
    /// Searches a file or a tree. `stop` is asked often; when it says yes the answer is [`FileError::Cancelled`].
    pub fn search(&self, query: &SearchQuery, stop: &dyn Fn() -> bool) -> Result<SearchResult, FileError> {
        self.in_place()?;
        let mut search = Search::new(query, stop)?;
        let text = query.path.as_str();
        if !query.path.is_root() {
            let (dir, name) = self.open_parent(&query.path, DirUse::Lookup)?;
            let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(text))?;
            if file_type(&stat) != FileType::Directory {
                let (file, _) = self.open_file(&query.path)?;
                search.file(file, text)?;
                return Ok(search.result);
            }
        }
        let dir = self.open_dir(text, DirUse::Content)?;
        let walk = TreeWalk::new(dir, text, MAX_WALK_DEPTH)?;
        let walk = if query.include_ignored { walk } else { walk.ignoring(self.ignore_rules_above(&query.path)?) };
        search.tree(walk, &|path| self.walks_past_secret(path))?;
        Ok(search.result)
    }
}

/// A search under way.
struct Search<'q> {
    pattern: Pattern<'q>,
    glob: Option<Glob>,
    max_matches: usize,
    context: usize,
    stop: &'q dyn Fn() -> bool,
    bytes_left: u64,
    /// How much text the answer may still hold.
    found_left: usize,
    /// A match was found for which there was no room.
    full: bool,
    result: SearchResult,
}

struct Glob {
    matcher: GlobMatcher,
    names_only: bool,
}

impl<'q> Search<'q> {
    fn new(query: &SearchQuery, stop: &'q dyn Fn() -> bool) -> Result<Self, FileError> {
        Ok(Self {
            pattern: Pattern::new(&query.pattern, query.syntax, query.case_insensitive, stop)?,
            glob: query.glob.as_deref().map(Glob::new).transpose()?,
            max_matches: query.max_matches.min(MAX_SEARCH_MATCHES),
            context: query.context_lines.min(MAX_CONTEXT_LINES),
            stop,
            bytes_left: MAX_SEARCH_BYTES,
            found_left: MAX_FOUND_BYTES,
            full: false,
            result: SearchResult::default(),
        })
    }

    fn tree(&mut self, mut walk: TreeWalk, is_secret: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        while let Some(found) = walk.next() {
            self.check_stop()?;
            if walk.seen > MAX_SEARCH_ENTRIES || self.exhausted() {
                self.result.truncated = true;
                break;
            }
            let name = found.name();
            match found.kind() {
                FileType::Directory if is_git(name) => walk.prune(),
                FileType::RegularFile if self.glob.as_ref().is_none_or(|glob| glob.admits(&found.path, name)) => {
                    if self.result.files_searched == MAX_SEARCH_FILES {
                        self.result.truncated = true;
                        break;
                    }
                    match walk.open(&found) {
                        _ if is_secret(&found.path) => self.result.skipped_secret += 1,
                        Ok(file) => self.file(file, &found.path)?,
                        Err(_) => self.result.unreadable += 1,
                    }
                }
                _ => {}
            }
        }
        self.result.unreadable += walk.unreadable();
        self.result.skipped_ignored = walk.ignored;
        self.result.truncated |= walk.cut;
        Ok(())
    }

    fn file(&mut self, file: OwnedFd, path: &str) -> Result<(), FileError> {
        let file = File::from(file);
        let size = file.metadata().map_err(io_at(path))?.len();
        if size > MAX_SEARCH_FILE_BYTES {
            self.result.skipped_large += 1;
            return Ok(());
        }
        if size > self.bytes_left {
            self.result.truncated = true;
            self.bytes_left = 0;
            return Ok(());
        }
        let Ok(read) = read_all(&file, MAX_SEARCH_FILE_BYTES) else {
            self.result.unreadable += 1;
            return Ok(());
        };
        let Some(bytes) = read else {
            self.result.skipped_large += 1;
            return Ok(());
        };
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        self.result.files_searched += 1;
        if bytes.iter().take(BINARY_PROBE).any(|byte| *byte == 0) {
            self.result.skipped_binary += 1;
            return Ok(());
        }
        self.lines(&bytes, path)
    }

    fn lines(&mut self, bytes: &[u8], path: &str) -> Result<(), FileError> {
        let mut before = VecDeque::with_capacity(self.context + 1);
        let mut rest = bytes;
        let mut line_number = 0;
        while let Some((line, following)) = next_line(rest) {
            rest = following;
            line_number += 1;
            self.result.lines_in_pieces += usize::from(self.pattern.cuts(line));
            if let Some(hit) = self.pattern.find(line)? {
                let found = self.describe((line, hit), &before, rest);
                if !self.keep(Match { path: path.to_owned(), line_number, ..found }) {
                    return Ok(());
                }
            }
            before.push_back(line);
            if before.len() > self.context {
                before.pop_front();
            }
        }
        Ok(())
    }

    /// Takes a match into the answer, unless the answer is full.
    fn keep(&mut self, found: Match) -> bool {
        let size = |lines: &[String]| lines.iter().map(String::len).sum::<usize>();
        let size = found.path.len() + found.line.len() + size(&found.before) + size(&found.after);
        if self.result.matches.len() == self.max_matches || size > self.found_left {
            self.result.truncated = true;
            self.full = true;
            return false;
        }
        self.found_left -= size;
        self.result.matches.push(found);
        true
    }

    /// A line with what stands around it; whose it is, the caller knows.
    fn describe(&self, (line, hit): (&[u8], usize), before: &VecDeque<&[u8]>, mut rest: &[u8]) -> Match {
        let (line, line_truncated) = excerpt(line, hit);
        let before = before.iter().map(|line| excerpt(line, 0).0).collect();
        let mut after = Vec::with_capacity(self.context);
        while after.len() < self.context
            && let Some((line, following)) = next_line(rest)
        {
            after.push(excerpt(line, 0).0);
            rest = following;
        }
        Match { path: String::new(), line_number: 0, line, line_truncated, before, after }
    }

    /// No further file can add anything. The last match allowed does not end the search by itself: whether there is
    /// one more decides if the answer was cut.
    fn exhausted(&self) -> bool {
        self.bytes_left == 0 || self.full
    }

    fn check_stop(&self) -> Result<(), FileError> {
        if (self.stop)() { Err(FileError::Cancelled) } else { Ok(()) }
    }
}

impl Glob {
    fn new(text: &str) -> Result<Self, FileError> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(too_long("glob"));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| FileError::InvalidPattern { reason: error.kind().to_string() })?;
        Ok(Self { matcher: glob.compile_matcher(), names_only: !text.contains('/') })
    }

    fn admits(&self, path: &str, name: &str) -> bool {
        self.matcher.is_match(if self.names_only { name } else { path })
    }
}

/// The first line of a text without its end, and what follows it.
fn next_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.is_empty() {
        return None;
    }
    let end = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
    let (line, following) = text.split_at(end);
    Some((without_end(line), following))
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line as text, cut to the part around byte `hit`; and whether it was cut.
fn excerpt(line: &[u8], hit: usize) -> (String, bool) {
    // A character has at most four bytes, so this much is enough before it is counted in characters.
    let from = if hit > MAX_EXCERPT_CHARS / 2 { hit - MAX_EXCERPT_CHARS / 5 } else { 0 };
    // Not to begin inside a character: step over continuation bytes.
    let from = line.iter().skip(from).take(3).take_while(|byte| **byte & 0xC0 == 0x80).count() + from;
    let rest = line.get(from..).unwrap_or_default();
    let part = rest.get(..MAX_EXCERPT_CHARS * 4).unwrap_or(rest);
    let whole = String::from_utf8_lossy(part);
    let text: String = whole.chars().take(MAX_EXCERPT_CHARS).collect();
    let cut = from > 0 || part.len() < rest.len() || text.len() < whole.len();
    (text, cut)
}
