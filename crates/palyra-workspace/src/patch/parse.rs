//! Reading a unified diff, strictly.
//!
//! The text is a caller's. It becomes file sections with counted hunks, or an error that names the line. Anything that
//! is not understood after the first section is an error: a hunk with a wrong count must not turn its last lines into
//! comments. It must never guess, and never touch the disk.

use super::hunk::{Hunk, Line, LineKind};
use super::name::{git_names, git_prefixed, header_name, strip_prefixes};
use crate::error::{FileError, shown};

/// What a patch says about one file, by the names it uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileDiff {
    /// Where the section begins.
    pub(super) line: usize,
    /// Nothing for a file that is created.
    pub(super) old: Option<String>,
    /// Nothing for a file that is deleted.
    pub(super) new: Option<String>,
    pub(super) executable: Option<bool>,
    pub(super) hunks: Vec<Hunk>,
}

/// Reads all sections of a patch; at least one.
pub(super) fn parse(text: &str) -> Result<Vec<FileDiff>, FileError> {
    let mut reader = Reader { lines: text.split_inclusive('\n').collect(), at: 0 };
    let mut diffs = Vec::new();
    // Mail headers and prose may stand before the first section of each mail.
    let mut prose = true;
    while let Some(line) = reader.peek() {
        if line.starts_with("diff --git ") {
            diffs.push(reader.git_section()?);
            prose = false;
        } else if reader.at_names() {
            diffs.push(reader.plain_section()?);
            prose = false;
        } else if line.starts_with("@@ ") || line.starts_with("+++ ") {
            return Err(reader.malformed("a hunk or name without the `--- ` and `+++ ` lines that belong before it"));
        } else if is_binary(line) {
            return Err(reader.malformed("binary patches are not supported; write the file instead"));
        } else if reader.at_signature() {
            reader.at += 2;
        } else if is_mail(line) {
            prose = true;
            reader.at += 1;
        } else if prose || line.trim().is_empty() || is_noise(line) {
            reader.at += 1;
        } else {
            return Err(reader.malformed(
                "it belongs to no hunk; check that the counts in the `@@` line above are those of its lines",
            ));
        }
    }
    if diffs.is_empty() {
        return Err(reader.malformed("there is no `--- ` and `+++ ` line; send a unified diff"));
    }
    Ok(diffs)
}

fn is_binary(line: &str) -> bool {
    line.starts_with("GIT binary patch") || line.starts_with("Binary files ")
}

/// The first line of a mail that `git format-patch` wrote.
fn is_mail(line: &str) -> bool {
    let id = line.strip_prefix("From ").and_then(|rest| rest.get(..40));
    id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Lines that `diff -r` and Subversion put between sections.
fn is_noise(line: &str) -> bool {
    line.starts_with("diff ") || line.starts_with("Index: ") || line.starts_with("=====")
}

/// What git's lines between `diff --git` and `---` say.
#[derive(Debug, Default)]
struct GitHeader {
    created: bool,
    deleted: bool,
    executable: Option<bool>,
    from: Option<String>,
    to: Option<String>,
}

struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    /// Whether a `---` and a `+++` line are next.
    fn at_names(&self) -> bool {
        let begins = |at: usize, with: &str| self.lines.get(at).is_some_and(|line| line.starts_with(with));
        begins(self.at, "--- ") && begins(self.at + 1, "+++ ")
    }

    /// Whether git's signature is next: `-- ` and its version. Without the version it could be a removed `-` that a
    /// hunk failed to count.
    fn at_signature(&self) -> bool {
        let version = self.lines.get(self.at + 1).and_then(|line| line.bytes().next());
        self.peek().is_some_and(|line| line.trim_end() == "--") && version.is_some_and(|byte| byte.is_ascii_digit())
    }

    fn malformed(&self, reason: impl Into<String>) -> FileError {
        FileError::PatchMalformed { line: self.at + 1, reason: reason.into() }
    }

    fn plain_section(&mut self) -> Result<FileDiff, FileError> {
        let line = self.at + 1;
        let (old, new) = self.names()?;
        let (old, new) = strip_prefixes(old, new);
        if let (Some(old), Some(new)) = (&old, &new)
            && old != new
        {
            let reason = format!(
                "`{}` and `{}` differ; use git's `rename from` and `rename to` lines for a rename",
                shown(old),
                shown(new)
            );
            return Err(FileError::PatchMalformed { line, reason });
        }
        let hunks = self.hunks()?;
        if hunks.is_empty() {
            return Err(self.malformed("a `@@` line should follow the file names"));
        }
        Ok(FileDiff { line, old, new, executable: None, hunks })
    }

    fn names(&mut self) -> Result<(Option<String>, Option<String>), FileError> {
        let mut name = |prefix: &str| {
            let text = self.peek().and_then(|line| line.strip_prefix(prefix)).unwrap_or_default();
            let name = header_name(text).map_err(|reason| self.malformed(reason))?;
            self.at += 1;
            Ok(name)
        };
        Ok((name("--- ")?, name("+++ ")?))
    }

    fn git_section(&mut self) -> Result<FileDiff, FileError> {
        let line = self.at + 1;
        let first = self.peek().and_then(|line| line.strip_prefix("diff --git ")).unwrap_or_default();
        self.at += 1;
        let header = self.git_header()?;
        if self.peek().is_some_and(is_binary) {
            return Err(self.malformed("binary patches are not supported; write the file instead"));
        }
        let malformed = |reason: &str| FileError::PatchMalformed { line, reason: reason.to_owned() };
        let strip = |(old, new)| if git_prefixed(first) { strip_prefixes(old, new) } else { (old, new) };
        let named = git_names(first).map(|(old, new)| strip((Some(old), Some(new))));
        let (old, new, hunks) = if self.at_names() {
            let (old, new) = strip(self.names()?);
            let contradicts =
                named.is_some_and(|named| (old.is_some() && old != named.0) || (new.is_some() && new != named.1));
            if contradicts && header.from.is_none() {
                return Err(malformed("the `diff --git` line and the `---`/`+++` lines name different files"));
            }
            (old, new, self.hunks()?)
        } else if let (Some(from), Some(to)) = (&header.from, &header.to) {
            (Some(from.clone()), Some(to.clone()), Vec::new())
        } else {
            let (old, new) =
                named.ok_or_else(|| malformed("the file names cannot be told apart; add `---` and `+++`"))?;
            (old.filter(|_| !header.created), new.filter(|_| !header.deleted), Vec::new())
        };
        header.check(&old, &new, hunks.is_empty()).map_err(malformed)?;
        Ok(FileDiff { line, old, new, executable: header.executable, hunks })
    }

    fn git_header(&mut self) -> Result<GitHeader, FileError> {
        let mut header = GitHeader::default();
        while let Some(line) = self.peek() {
            let text = line.trim_end_matches(['\n', '\r']);
            if let Some(mode) = text.strip_prefix("new file mode ") {
                header.created = true;
                header.executable = Some(self.mode(mode)?);
            } else if let Some(mode) = text.strip_prefix("deleted file mode ") {
                header.deleted = true;
                self.mode(mode)?;
            } else if let Some(mode) = text.strip_prefix("old mode ") {
                self.mode(mode)?;
            } else if let Some(mode) = text.strip_prefix("new mode ") {
                header.executable = Some(self.mode(mode)?);
            } else if let Some(name) = text.strip_prefix("rename from ") {
                header.from = header_name(name).map_err(|reason| self.malformed(reason))?;
            } else if let Some(name) = text.strip_prefix("rename to ") {
                header.to = header_name(name).map_err(|reason| self.malformed(reason))?;
            } else if let Some(index) = text.strip_prefix("index ") {
                if let Some((_, mode)) = index.split_once(' ') {
                    self.mode(mode)?;
                }
            } else if text.starts_with("copy from ") || text.starts_with("copy to ") {
                return Err(self.malformed("copies are not supported; create the file instead"));
            } else if !(text.starts_with("similarity index ") || text.starts_with("dissimilarity index ")) {
                break;
            }
            self.at += 1;
        }
        Ok(header)
    }

    /// Whether a mode is that of an executable file; only plain files are patched.
    fn mode(&self, mode: &str) -> Result<bool, FileError> {
        match mode.trim() {
            "100644" => Ok(false),
            "100755" => Ok(true),
            "120000" => Err(self.malformed("a patch cannot make, change or delete symbolic links")),
            "160000" => Err(self.malformed("a patch cannot change submodules")),
            _ => Err(self.malformed("the file mode should be 100644 or 100755")),
        }
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, FileError> {
        let mut hunks: Vec<Hunk> = Vec::new();
        while let Some(header) = self.peek().filter(|line| line.starts_with("@@ ")) {
            let hunk = self.hunk(header)?;
            if hunks.last().is_some_and(|last| hunk.old_index() < last.old_end()) {
                let reason = "this file's hunks overlap or are out of order".to_owned();
                return Err(FileError::PatchMalformed { line: hunk.line, reason });
            }
            hunks.push(hunk);
        }
        Ok(hunks)
    }

    fn hunk(&mut self, header: &str) -> Result<Hunk, FileError> {
        let line = self.at + 1;
        let (old, new) = ranges(header).ok_or_else(|| self.malformed("a hunk should begin `@@ -1,3 +1,4 @@`"))?;
        self.at += 1;
        let (mut old_left, mut new_left) = (old.1, new.1);
        let mut lines: Vec<Line> = Vec::new();
        while old_left > 0 || new_left > 0 || self.peek().is_some_and(|line| line.starts_with('\\')) {
            let Some(text) = self.peek() else {
                return Err(self.malformed(format!(
                    "the patch ends {old_left} old and {new_left} new lines before the end of the hunk of line {line}"
                )));
            };
            if text.starts_with('\\') {
                if !lines.last_mut().is_some_and(Line::end_without_newline) {
                    return Err(self.malformed("`\\ No newline at end of file` belongs behind a line"));
                }
            } else {
                let parsed = Line::parse(text).ok_or_else(|| {
                    self.malformed("a line of a hunk should begin with a blank, `+` or `-`; check the hunk's counts")
                })?;
                let fits = parsed.kind.take(&mut old_left, &mut new_left);
                fits.ok_or_else(|| self.malformed("the hunk has more lines than its `@@` line counts"))?;
                lines.push(parsed);
            }
            self.at += 1;
        }
        let hunk = Hunk { line, old_start: old.0, old_count: old.1, lines };
        hunk.check().map_err(|reason| FileError::PatchMalformed { line, reason: reason.to_owned() })?;
        Ok(hunk)
    }
}

impl GitHeader {
    fn check(&self, old: &Option<String>, new: &Option<String>, no_hunks: bool) -> Result<(), &'static str> {
        if self.created && old.is_some() {
            return Err("`new file mode` and `--- /dev/null` belong together");
        }
        if self.deleted && new.is_some() {
            return Err("`deleted file mode` and `+++ /dev/null` belong together");
        }
        match (&self.from, &self.to) {
            (None, None) if old.is_some() && new.is_some() && old != new => {
                Err("the names differ; use `rename from` and `rename to` lines for a rename")
            }
            (None, None) if no_hunks && self.executable.is_none() && !self.created && !self.deleted => {
                Err("the section changes nothing")
            }
            (None, None) => Ok(()),
            (from, to) if from == old && to == new && from != to => Ok(()),
            _ => Err("the rename lines do not fit the `---`/`+++` lines"),
        }
    }
}

impl LineKind {
    /// Counts a line of this kind; nothing when the hunk has no room for it.
    fn take(self, old_left: &mut usize, new_left: &mut usize) -> Option<()> {
        if self != Self::Added {
            *old_left = old_left.checked_sub(1)?;
        }
        if self != Self::Removed {
            *new_left = new_left.checked_sub(1)?;
        }
        Some(())
    }
}

/// The start and count of both sides: `@@ -1,3 +1,4 @@ …`.
fn ranges(header: &str) -> Option<((usize, usize), (usize, usize))> {
    let (ranges, _) = header.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    Some((range(old)?, range(new)?))
}

fn range(text: &str) -> Option<(usize, usize)> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match text.split_once(',') {
        Some((start, count)) => Some((number(start)?, number(count)?)),
        None => Some((number(text)?, 1)),
    }
}
