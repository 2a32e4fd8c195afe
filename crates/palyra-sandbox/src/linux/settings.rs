//! Paths in the tree that a repository's settings name: hooks, included files, programs.
//!
//! Bounded: settings of a size, or with a number of names, that no person writes are refused, together with the run.
//! What is not looked at would not be guarded.

use super::guarded_paths::{Found, PLAIN, look};
use super::opened_roots::{self, Top, Tops};
use crate::error::SandboxError;
use crate::git::{self, NamedPath};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// All settings of a repository together.
const MOST_BYTES: u64 = 1 << 20;
/// Paths that they name and that are held.
const MOST_NAMED: usize = 1024;

/// What the settings of the repository at a root name, by root and path in it.
pub(super) fn named(tops: &Tops, top: &Top) -> Result<Vec<(PathBuf, PathBuf)>, SandboxError> {
    let own: &[&str] = if top.is_repository { &["config", "config.worktree"] } else { &[] };
    let files = [".git/config", ".git/config.worktree"].iter().chain(own);
    let mut reader = Reader {
        tops,
        top,
        left: MOST_BYTES,
        waiting: files.map(|file| top.root.join(file)).collect(),
        seen: HashSet::new(),
        found: Vec::new(),
    };
    while let Some(file) = reader.waiting.pop() {
        let Some(text) = reader.read(&file)? else { continue };
        for named in git::named_paths(&text) {
            reader.add(&file, &named)?;
        }
    }
    Ok(reader.found)
}

struct Reader<'a> {
    tops: &'a Tops,
    top: &'a Top,
    /// How much more may be read.
    left: u64,
    waiting: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
    found: Vec<(PathBuf, PathBuf)>,
}

impl Reader<'_> {
    /// The text of settings that lie in a root, also behind a link.
    fn read(&mut self, file: &Path) -> Result<Option<String>, SandboxError> {
        let Some((mut top, mut relative)) = self.tops.holding(file) else { return Ok(None) };
        if look(&top.directory, &relative) == Found::Link {
            let Some(behind) = self.tops.behind(top, &relative) else { return Ok(None) };
            (top, relative) = behind;
        }
        let Some(opened) = open(&top.directory, &relative) else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = opened.take(self.left + 1).read_to_end(&mut bytes);
        let length = bytes.len() as u64;
        if read.is_err() || length > self.left {
            let reason = format!("together they are larger than {MOST_BYTES} bytes, or cannot be read");
            return Err(SandboxError::SettingsUnguarded { path: file.to_owned(), reason });
        }
        self.left -= length;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn add(&mut self, file: &Path, named: &NamedPath) -> Result<(), SandboxError> {
        let unguarded = |reason| Err(SandboxError::SettingsUnguarded { path: file.to_owned(), reason });
        if named.path.contains(char::REPLACEMENT_CHARACTER) {
            return unguarded(format!("`{}` is not UTF-8", named.path));
        }
        // An included file is looked for beside the one that names it, everything else from the top of the work tree.
        // Which one that is, a repository without one does not say: it may be any.
        let bases: Vec<&Path> = match file.parent() {
            Some(parent) if named.is_settings => vec![parent],
            _ if self.top.is_repository => self.tops.iter().map(|top| top.root.as_path()).collect(),
            _ => vec![&self.top.root],
        };
        for base in bases {
            let Some(path) = plain(&base.join(&named.path)) else { continue };
            let lexical = self.tops.holding(&path);
            let holding = lexical.or_else(|| self.tops.holding(&opened_roots::real(&path)?));
            let Some((top, relative)) = holding.filter(|(_, relative)| !relative.as_os_str().is_empty()) else {
                continue;
            };
            let counts = match look(&top.directory, &relative) {
                Found::Plain(_, kind) => named.is_directory || kind.is_file(),
                Found::Link => true,
                Found::Nothing => named.is_directory || named.is_settings,
            };
            let path = top.root.join(&relative);
            if !counts || !self.seen.insert(path.clone()) {
                continue;
            }
            if self.found.len() >= MOST_NAMED {
                return unguarded(format!("they name more than {MOST_NAMED} paths of the workspace"));
            }
            self.found.push((top.root.clone(), relative));
            if named.is_settings {
                self.waiting.push(path);
            }
        }
        Ok(())
    }
}

/// A path without `.` and `..`; `None` if it leads above the top.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                plain.pop().then_some(())?;
            }
            part => plain.push(part),
        }
    }
    Some(plain)
}

/// A plain file.
fn open(top: &OwnedFd, relative: &Path) -> Option<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat2(top, relative, flags, Mode::empty(), PLAIN).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// The text of a settings file of reasonable size; `None` for anything else.
pub(super) fn read(top: &OwnedFd, relative: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    open(top, relative)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MOST_BYTES { None } else { String::from_utf8(bytes).ok() }
}

#[cfg(test)]
mod tests {
    use super::super::grants::Roots;
    use super::*;
    use crate::testing::policy;
    use std::fmt::Write as _;
    use std::fs;
    use tempfile::TempDir;

    fn names(config: &[u8]) -> Result<Vec<String>, SandboxError> {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/config"), config).unwrap();
        let tops = Tops::open(&Roots::resolve(&policy(&root)).unwrap()).unwrap();
        let found = named(&tops, tops.of(&root).unwrap())?;
        Ok(found.iter().map(|(_, relative)| relative.display().to_string()).collect())
    }

    #[test]
    fn large_settings_are_read_and_larger_ones_refused() {
        let with = |padding: usize| format!("# {}\n[core]\n\thooksPath = .husky\n", "x".repeat(padding));
        assert_eq!(names(with(200 << 10).as_bytes()).unwrap(), [".husky"]);
        assert_eq!(names(with(1 << 20).as_bytes()).unwrap_err().code(), "sandbox_settings_unguarded");
    }

    #[test]
    fn many_names_are_held_and_more_are_refused() {
        let with = |count: usize| {
            let mut text = "[include]\n".to_owned();
            (0..count).for_each(|n| writeln!(text, "\tpath = ../settings-{n}").unwrap());
            text + "[core]\n\thooksPath = .husky\n"
        };
        let found = names(with(200).as_bytes()).unwrap();
        assert!(found.len() == 201 && found.contains(&".husky".to_owned()), "{found:?}");
        let refused = names(with(MOST_NAMED + 1).as_bytes()).unwrap_err();
        assert_eq!(refused.code(), "sandbox_settings_unguarded");
        assert!(refused.hint().is_some() && refused.to_string().contains(".git/config"), "{refused}");
    }

    #[test]
    fn bytes_that_are_no_text_hide_nothing() {
        assert_eq!(names(b"[user]\n\tname = Jos\xe9\n[core]\n\thooksPath = .husky\n").unwrap(), [".husky"]);
        let refused = names(b"[core]\n\thooksPath = .hus\xe9ky\n").unwrap_err();
        assert_eq!(refused.code(), "sandbox_settings_unguarded");
    }
}
