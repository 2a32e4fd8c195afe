//! Which paths of a workspace lead to code that runs later, outside: the layout's, and those that its repositories add.
//!
//! A repository has more than one place where git looks for settings and hooks: each submodule's and each worktree's own directory
//! below `.git`, whatever the settings name (`core.hooksPath`, an included file, a filter that lies in the tree), and the
//! top itself, if it looks like a repository without `.git`. `commondir` moves all of them elsewhere at once.
//!
//! A name may be a link, or lie behind one. Then both count: the link, which could be replaced, and the file it leads to, if that
//! lies where the run may write.
//!
//! What this looks at is bounded by constants, never by the size of the workspace.

use super::grants::Roots;
use crate::git;
use crate::layout;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// How something new at such a path is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory on the way to others: fine if it is one.
    Way,
    /// Hooks: fine if there are only samples.
    Hooks,
    /// Settings of git: fine if all are harmless.
    Settings,
    /// Where a worktree finds its repository: fine if that is where it always is.
    Common,
    /// Where a repository finds its worktree: tells nothing of programs.
    Back,
    /// Never fine.
    Forbidden,
}

/// One path of a writable root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sensitive {
    pub(super) root: PathBuf,
    pub(super) relative: PathBuf,
    pub(super) kind: Kind,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A directory or plain file, with no link on the way: its device and number.
    Plain((u64, u64), FileType),
    /// A link, or something behind one.
    Link,
    /// Nothing, or nothing that could be held.
    Nothing,
}

/// No symlink on the way, and nothing above the beginning.
pub(super) const PLAIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// More submodules and worktrees than this are not looked at one by one: then their directory is held as a whole.
const MOST_REPOSITORIES: usize = 64;
/// Paths that settings name and that are held.
const MOST_NAMED: usize = 64;
const MOST_CONFIG_BYTES: u64 = 64 << 10;

/// What a repository's own directory holds.
const IN_A_REPOSITORY: &[(&str, Kind)] = &[
    ("hooks", Kind::Hooks),
    ("config", Kind::Settings),
    ("config.worktree", Kind::Settings),
    ("commondir", Kind::Forbidden),
    ("gitdir", Kind::Forbidden),
    ("info/attributes", Kind::Forbidden),
];
/// What the directory of a worktree holds.
const IN_A_WORKTREE: &[(&str, Kind)] =
    &[("config.worktree", Kind::Settings), ("commondir", Kind::Common), ("gitdir", Kind::Back), ("hooks", Kind::Hooks)];

/// Every such path of the writable roots, there or not; directories before what lies in them.
pub(super) fn all(roots: &Roots) -> Vec<Sensitive> {
    let mut search = Search { roots, tops: Tops::default(), seen: HashSet::new(), found: Vec::new() };
    for root in roots.writable() {
        let Some(top) = open_directory(root) else { continue };
        for name in layout::GUARDED_IN_WORKSPACE.iter().filter(|name| !name.starts_with(".git/")) {
            search.add(root, Path::new(name), Kind::Forbidden);
        }
        search.repository(root, Path::new(".git"), IN_A_REPOSITORY);
        search.inner_repositories(root, &top);
        if is_repository(&top) {
            search.repository(root, Path::new(""), IN_A_REPOSITORY);
        }
        for named in named_by_settings(root, &top) {
            search.add(root, &named, Kind::Forbidden);
        }
    }
    search.found
}

/// Those of submodules and worktrees alone: what a run may add to a repository without being stopped.
pub(super) fn of_inner_repositories(roots: &Roots) -> Vec<Sensitive> {
    let mut search = Search { roots, tops: Tops::default(), seen: HashSet::new(), found: Vec::new() };
    for root in roots.writable() {
        if let Some(top) = open_directory(root) {
            search.inner_repositories(root, &top);
        }
    }
    search.found
}

/// The tops of the roots: each is opened once.
#[derive(Debug, Default)]
pub(super) struct Tops(Vec<(PathBuf, OwnedFd)>);

impl Tops {
    pub(super) fn of(&mut self, root: &Path) -> Option<&OwnedFd> {
        if !self.0.iter().any(|(known, _)| known == root) {
            self.0.push((root.to_owned(), open_directory(root)?));
        }
        self.0.iter().find(|(known, _)| known == root).map(|(_, top)| top)
    }
}

struct Search<'a> {
    roots: &'a Roots,
    tops: Tops,
    seen: HashSet<PathBuf>,
    found: Vec<Sensitive>,
}

impl Search<'_> {
    fn inner_repositories(&mut self, root: &Path, top: &OwnedFd) {
        for (directory, names) in [("modules", IN_A_REPOSITORY), ("worktrees", IN_A_WORKTREE)] {
            let directory = Path::new(".git").join(directory);
            match repositories(top, &directory) {
                Some(inner) => inner.iter().for_each(|path| self.repository(root, path, names)),
                None => self.add(root, &directory, Kind::Forbidden),
            }
        }
    }

    fn repository(&mut self, root: &Path, directory: &Path, names: &[(&str, Kind)]) {
        for (name, kind) in names {
            self.add(root, &directory.join(name), *kind);
        }
    }

    fn add(&mut self, root: &Path, relative: &Path, kind: Kind) {
        let path = root.join(relative);
        if !self.seen.insert(path.clone()) {
            return;
        }
        if let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.add(root, parent, Kind::Way);
        }
        let Some(top) = self.tops.of(root) else { return };
        let is_link = look(top, relative) == Found::Link;
        self.found.push(Sensitive { root: root.to_owned(), relative: relative.to_owned(), kind });
        if is_link
            && let Some(real) = real(&path)
            && let Some(holds) = self.roots.writable().find(|root| real.starts_with(root)).cloned()
            && let Ok(relative) = real.strip_prefix(&holds).map(Path::to_owned)
            && !relative.as_os_str().is_empty()
        {
            self.add(&holds, &relative, kind);
        }
    }
}

/// Where a path leads; one that leads to nothing yet keeps its name below what is there.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Some(real);
    }
    // A link that leads to nothing: to where it would.
    let target = std::fs::read_link(path).ok().and_then(|target| Some(path.parent()?.join(target)));
    let path = target.as_deref().unwrap_or(path);
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

pub(super) fn open_directory(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// What is at a path below `top`, without following a link.
pub(super) fn look(top: &OwnedFd, relative: &Path) -> Found {
    let fd = match rustix::fs::openat2(top, relative, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), PLAIN) {
        Ok(fd) => fd,
        Err(Errno::LOOP | Errno::XDEV) => return Found::Link,
        Err(_) => return Found::Nothing,
    };
    let Ok(stat) = rustix::fs::fstat(&fd) else { return Found::Nothing };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_dir() || kind.is_file() { Found::Plain((stat.st_dev, stat.st_ino), kind) } else { Found::Nothing }
}

fn is_directory(top: &OwnedFd, relative: &Path) -> bool {
    matches!(look(top, relative), Found::Plain(_, kind) if kind.is_dir())
}

/// Whether git takes a directory for a repository: what it looks for.
pub(super) fn is_repository(top: &OwnedFd) -> bool {
    let there = |name: &str| rustix::fs::statat(top, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    there("HEAD") && ((there("objects") && there("refs")) || there("commondir"))
}

/// The repositories below a directory of `.git`; a submodule's name may have several parts, and it may have its own. `None`: too
/// many.
fn repositories(top: &OwnedFd, directory: &Path) -> Option<Vec<PathBuf>> {
    const DEEPEST: usize = 6;
    let (mut found, mut looked) = (Vec::new(), 0);
    let mut waiting = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        for path in directories(top, &directory)? {
            looked += 1;
            if looked > 4 * MOST_REPOSITORIES || found.len() >= MOST_REPOSITORIES || depth > DEEPEST {
                return None;
            }
            let is_repository = !matches!(look(top, &path.join("HEAD")), Found::Nothing);
            if is_repository {
                waiting.push((path.join("modules"), depth + 1));
                found.push(path);
            } else {
                waiting.push((path, depth + 1));
            }
        }
    }
    Some(found)
}

/// The directories in a directory; none if it is not there. `None`: too many.
fn directories(top: &OwnedFd, relative: &Path) -> Option<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat2(top, relative, flags, Mode::empty(), PLAIN) else {
        return Some(Vec::new());
    };
    let Ok(entries) = Dir::read_from(directory.as_fd()) else { return Some(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let path = relative.join(std::os::unix::ffi::OsStrExt::from_bytes(name) as &std::ffi::OsStr);
        if is_directory(top, &path) {
            found.push(path);
        }
        if found.len() > 4 * MOST_REPOSITORIES {
            return None;
        }
    }
    Some(found)
}

/// Paths in the tree that the repository's settings name: hooks, included files, programs.
fn named_by_settings(root: &Path, top: &OwnedFd) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut waiting = vec![PathBuf::from(".git/config"), PathBuf::from(".git/config.worktree")];
    while let Some(file) = waiting.pop() {
        let Some(text) = read_settings(top, &file) else { continue };
        for named in git::named_paths(&text) {
            // An included file is looked for beside the one that names it, everything else from the top.
            let base = if named.is_settings { file.parent().unwrap_or(Path::new("")) } else { Path::new("") };
            let path = root.join(base).join(&named.path);
            let Some(inside) = plain(&path).and_then(|path| path.strip_prefix(root).map(Path::to_owned).ok()) else {
                continue;
            };
            let counts = match look(top, &inside) {
                Found::Plain(_, kind) => named.is_directory || kind.is_file(),
                Found::Link => true,
                Found::Nothing => named.is_directory || named.is_settings,
            };
            if inside.as_os_str().is_empty() || !counts || found.contains(&inside) || found.len() >= MOST_NAMED {
                continue;
            }
            if named.is_settings {
                waiting.push(inside.clone());
            }
            found.push(inside);
        }
    }
    found
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

/// The text of a settings file of reasonable size; `None` for anything else.
pub(super) fn read_settings(top: &OwnedFd, relative: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(top, relative, flags, Mode::empty(), PLAIN).ok()?;
    let file = std::fs::File::from(file);
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MOST_CONFIG_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MOST_CONFIG_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn names(prepare: impl Fn(&Path)) -> Vec<String> {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        prepare(&root);
        let found = all(&Roots::resolve(&policy(&root)).unwrap());
        found.iter().map(|sensitive| sensitive.relative.display().to_string()).collect()
    }

    #[test]
    fn submodules_worktrees_and_what_settings_name_are_found() {
        let found = names(|root| {
            for path in [".git/modules/a/b", ".git/modules/a/b/modules/c", ".git/worktrees/w", ".husky", "tools"] {
                fs::create_dir_all(root.join(path)).unwrap();
            }
            for path in
                [".git/modules/a/b/HEAD", ".git/modules/a/b/modules/c/HEAD", ".git/worktrees/w/HEAD", "tools/smudge"]
            {
                fs::write(root.join(path), "").unwrap();
            }
            let config = "[core]\n\thooksPath = .husky\n[include]\n\tpath = ../shared.gitconfig\n\
                          [filter \"x\"]\n\tsmudge = tools/smudge %f\n[branch \"main\"]\n\tremote = .\n";
            fs::write(root.join(".git/config"), config).unwrap();
            fs::write(root.join("shared.gitconfig"), "[alias]\n\tx = !./tools/smudge\n").unwrap();
        });
        for expect in [
            ".git/commondir",
            ".git/modules/a/b/config",
            ".git/modules/a/b/modules/c/hooks",
            ".git/worktrees/w/commondir",
            ".husky",
            "shared.gitconfig",
            "tools/smudge",
        ] {
            assert!(found.iter().any(|name| name == expect), "{expect}: {found:?}");
        }
        assert!(found.iter().all(|name| !name.is_empty() && name != "config"), "{found:?}");
    }

    #[test]
    fn more_repositories_than_anybody_has_are_held_as_one() {
        let found = names(|root| {
            for n in 0..MOST_REPOSITORIES + 1 {
                fs::create_dir_all(root.join(format!(".git/modules/{n}"))).unwrap();
                fs::write(root.join(format!(".git/modules/{n}/HEAD")), "").unwrap();
            }
        });
        assert!(found.contains(&".git/modules".to_owned()) && !found.contains(&".git/modules/1/config".to_owned()));
    }

    #[test]
    fn links_lead_to_what_they_name() {
        let found = names(|root| {
            fs::create_dir_all(root.join(".git")).unwrap();
            fs::create_dir_all(root.join("githooks")).unwrap();
            fs::create_dir_all(root.join("dot/config")).unwrap();
            symlink("../githooks", root.join(".git/hooks")).unwrap();
            symlink("dot/config", root.join(".config")).unwrap();
            symlink("not-yet", root.join(".bashrc")).unwrap();
            symlink("/etc/passwd", root.join(".zshrc")).unwrap();
        });
        for expect in [".git/hooks", "githooks", "dot/config/fish", "not-yet", ".zshrc"] {
            assert!(found.iter().any(|name| name == expect), "{expect}: {found:?}");
        }
    }

    #[test]
    fn a_repository_without_a_directory_of_its_own_is_seen() {
        let found = names(|root| {
            fs::create_dir_all(root.join("objects")).unwrap();
            fs::create_dir_all(root.join("refs")).unwrap();
            fs::write(root.join("HEAD"), "").unwrap();
        });
        assert!(found.contains(&"config".to_owned()) && found.contains(&"hooks".to_owned()));
    }
}
