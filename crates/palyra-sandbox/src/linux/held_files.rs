//! Guarded paths that a run creates or replaces: renamed to `NAME.held` when it is over.
//!
//! What exists is bound read-only ([`super::guards`]). What does not exist cannot be: a mount needs something to lie
//! on, and an empty `.bashrc` in somebody's repository is worse than none. Overlays, placeholders for the time of the
//! run and Landlock were considered: the first are undefined when the user edits a file meanwhile, the second show up
//! in `git status`, the third cannot except a name from a directory. So when every process of the run is gone, and
//! before anybody hears of its end, a sensitive path that is new is renamed: `.envrc` becomes `.envrc.held`. Nothing is
//! lost, nothing is followed, and no program looks for it under that name. A new repository stays one: only hooks that
//! would run, and settings that may name a program, are set aside.
//!
//! The same happens to a file that has a second name somewhere and changed through it, and to what stands in place of a
//! link; the link is put back. What cannot be renamed is told: it is never passed over.
//!
//! All of it happens beneath the descriptors of the roots that the run had ([`super::tops`]), wherever those are by
//! now, and what is told are the names that things have now.
//!
//! Not covered: the time until the run ends, a daemon that is killed before, and repositories below the top of a root.

use super::guarded_paths::{self, Kind, Sensitive};
use super::opened_roots::{Top, Tops};
use super::settings;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

/// What was at a path when the run began.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A link with this target.
    Link(CString),
    /// A file with further names: its number and when it last changed.
    Shared(u64, (i64, i64)),
    /// Something else, of this kind.
    There(FileType),
}

#[derive(Debug)]
struct Watched {
    path: Sensitive,
    before: Before,
}

/// What to look at when the run is over.
#[derive(Debug)]
pub(super) struct HeldFiles {
    tops: Tops,
    watched: Vec<Watched>,
    /// Every sensitive path that there was, watched or held.
    known: HashSet<PathBuf>,
    /// The parts of a repository that the top of each root did not have, if it was none.
    others: Vec<(PathBuf, Vec<&'static str>)>,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Put {
    /// Set aside, by the names they have now.
    pub(super) moved: Vec<PathBuf>,
    /// Still there.
    pub(super) left: Vec<PathBuf>,
}

/// More hooks than anybody has.
const MOST_HOOKS: usize = 1000;

impl HeldFiles {
    /// Looks at the sensitive paths as they are.
    pub(super) fn watch(tops: Tops, sensitive: &[Sensitive]) -> Self {
        let mut watched = Vec::new();
        for path in sensitive {
            let Some(top) = tops.of(&path.root).map(|top| &top.directory) else { continue };
            let before = before(top, &path.relative);
            if path.kind == Kind::Hooks && before == Before::There(FileType::Directory) {
                watched.extend(shared_hooks(top, path));
            }
            // What is there and has one name is held by its mount.
            if !matches!(before, Before::There(_)) || path.kind == Kind::Way {
                watched.push(Watched { path: path.clone(), before });
            }
        }
        let lacks = |top: &Top| {
            let absent = |name: &&str| stat(&top.directory, Path::new(name)).is_none();
            (top.root.clone(), ["HEAD", "objects", "refs", "commondir"].into_iter().filter(absent).collect())
        };
        let others = tops.iter().filter(|top| !top.is_repository).map(lacks).collect();
        let known = sensitive.iter().map(Sensitive::path).collect();
        Self { tops, watched, known, others }
    }

    /// The roots that this works in.
    pub(super) fn tops(&self) -> &Tops {
        &self.tops
    }

    /// Sets aside what is there now and may lead to code. Every process of the run is gone.
    pub(super) fn put(&self) -> Put {
        let mut work = Work { tops: &self.tops, put: Put::default(), entered: BTreeMap::new(), reopened: Vec::new() };
        // First: in a directory that the run has closed nothing would be found.
        self.tops.iter().for_each(|top| drop(work.enter(&top.root, Path::new(""))));
        for watched in &self.watched {
            work.judge(&watched.path, &watched.before);
        }
        // Repositories that are new, as submodules and worktrees, have paths of their own.
        let is_new = |path: &&Sensitive| !self.known.contains(&path.path());
        for path in guarded_paths::of_inner_repositories(&self.tops).iter().filter(is_new) {
            work.judge(path, &Before::Nothing);
        }
        for (root, parts) in &self.others {
            work.take_apart(root, parts);
        }
        std::mem::take(&mut work.put)
    }
}

impl Sensitive {
    /// The path that it is known by.
    fn path(&self) -> PathBuf {
        self.root.join(&self.relative)
    }
}

fn stat(top: &OwnedFd, name: &Path) -> Option<Stat> {
    rustix::fs::statat(top, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn before(top: &OwnedFd, relative: &Path) -> Before {
    let Some(stat) = stat(top, relative) else { return Before::Nothing };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_symlink() {
        return rustix::fs::readlinkat(top, relative, Vec::new()).map_or(Before::There(kind), Before::Link);
    }
    if kind.is_file() && stat.st_nlink > 1 { Before::Shared(stat.st_ino, changed(&stat)) } else { Before::There(kind) }
}

/// Nobody but the kernel sets this time.
fn changed(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

/// Hooks that have a second name.
fn shared_hooks(top: &OwnedFd, hooks: &Sensitive) -> Vec<Watched> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(top, &hooks.relative, flags, Mode::empty(), guarded_paths::PLAIN);
    let Ok(entries) = opened.and_then(|directory| Dir::read_from(directory.as_fd())) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten().take(MOST_HOOKS) {
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
        let relative = hooks.relative.join(name);
        let before = before(top, &relative);
        if matches!(before, Before::Shared(..)) {
            let path = Sensitive { root: hooks.root.clone(), relative, kind: Kind::Forbidden };
            found.push(Watched { path, before });
        }
    }
    found
}

/// The end of a run, under way.
#[derive(Debug)]
struct Work<'a> {
    tops: &'a Tops,
    put: Put,
    /// Directories that were entered.
    entered: BTreeMap<PathBuf, Rc<OwnedFd>>,
    /// Those that had to be opened first, and how they were.
    reopened: Vec<(OwnedFd, Mode)>,
}

impl Work<'_> {
    fn judge(&mut self, path: &Sensitive, before: &Before) {
        let (Some(parent), Some(name)) = (path.relative.parent(), path.relative.file_name()) else { return };
        let Some(parent) = self.enter(&path.root, parent) else { return };
        let name = Path::new(name);
        let Some(now) = stat(&parent, name) else { return };
        let kind = FileType::from_raw_mode(now.st_mode);
        let wrong = match before {
            Before::Nothing => is_dangerous(&parent, name, path.kind, &now),
            Before::Link(target) => {
                !rustix::fs::readlinkat(&parent, name, Vec::new()).is_ok_and(|found| found == *target)
            }
            Before::Shared(inode, at) => now.st_ino == *inode && changed(&now) != *at,
            Before::There(was) => kind != *was,
        };
        if !wrong {
            return;
        }
        self.hold(path, &parent, name);
        if let Before::Link(target) = before {
            // Where something else has taken the name, that is told already.
            let _restored = rustix::fs::symlinkat(target, &parent, name);
        }
    }

    /// A top that became a repository, and may lead to code, loses one of the parts that it did not have.
    fn take_apart(&mut self, root: &Path, parts: &[&'static str]) {
        let Some(top) = self.enter(root, Path::new("")) else { return };
        let harmful = |name: &str, kind| {
            let name = Path::new(name);
            stat(&top, name).is_some_and(|now| is_dangerous(&top, name, kind, &now))
        };
        let harmless = !harmful("config", Kind::Settings)
            && !harmful("config.worktree", Kind::Settings)
            && !harmful("hooks", Kind::Hooks)
            && !harmful("commondir", Kind::Forbidden);
        if !guarded_paths::is_repository(&top) || harmless {
            return;
        }
        let new = parts.iter().find(|part| stat(&top, Path::new(part)).is_some());
        if let Some(part) = new {
            let path = Sensitive { root: root.to_owned(), relative: part.into(), kind: Kind::Forbidden };
            self.hold(&path, &top, Path::new(part));
        }
    }

    /// A directory of a root, without any link on the way. One of our own that the run has closed is opened until all
    /// is done.
    fn enter(&mut self, root: &Path, relative: &Path) -> Option<Rc<OwnedFd>> {
        let path = root.join(relative);
        if let Some(known) = self.entered.get(&path) {
            return Some(Rc::clone(known));
        }
        let opened = match (relative.parent(), relative.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = self.enter(root, parent)?;
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&parent, name, flags, Mode::empty()).ok()?
            }
            _ => self.tops.of(root)?.directory.try_clone().ok()?,
        };
        self.reopen(&opened);
        let opened = Rc::new(opened);
        self.entered.insert(path, Rc::clone(&opened));
        Some(opened)
    }

    fn reopen(&mut self, directory: &OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(directory) else { return };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::RWXU) || stat.st_uid != rustix::process::geteuid().as_raw() {
            return;
        }
        if let Ok(kept) = directory.try_clone()
            && set_mode(directory, mode | Mode::RWXU)
        {
            self.reopened.push((kept, mode));
        }
    }

    fn hold(&mut self, path: &Sensitive, parent: &OwnedFd, name: &Path) {
        let Some(top) = self.tops.of(&path.root) else { return };
        let path = top.now().join(&path.relative);
        match hold(parent, name) {
            Some(held) => self.put.moved.push(path.with_file_name(held)),
            None => self.put.left.push(path),
        }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        for (directory, mode) in self.reopened.drain(..).rev() {
            set_mode(&directory, mode);
        }
    }
}

/// Sets the permissions of an open directory, whatever its name is by now.
fn set_mode(directory: &OwnedFd, mode: Mode) -> bool {
    rustix::fs::chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode).is_ok()
}

/// Whether something that was not there may lead to code that runs later.
fn is_dangerous(parent: &OwnedFd, name: &Path, kind: Kind, now: &Stat) -> bool {
    let found = FileType::from_raw_mode(now.st_mode);
    // A file with a second name can be changed through that, whatever it says now.
    if found.is_file() && now.st_nlink > 1 {
        return true;
    }
    match kind {
        // A new directory is fine: what lies in it is looked at by itself. A file or a link leads elsewhere.
        Kind::Way => !found.is_dir(),
        Kind::Hooks => !has_only_samples(parent, name).unwrap_or(false),
        Kind::Settings => !settings::read(parent, name).is_some_and(|text| crate::git::is_harmless_config(&text)),
        Kind::Common => settings::read(parent, name).is_none_or(|text| text.trim_end() != "../.."),
        Kind::Back => !found.is_file(),
        Kind::Forbidden => true,
    }
}

fn has_only_samples(parent: &OwnedFd, name: &Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?;
    let mut entries = Dir::read_from(directory.as_fd()).ok()?;
    let harmless = |name: &[u8]| matches!(name, b"." | b"..") || name.ends_with(b".sample");
    let few = entries.by_ref().take(MOST_HOOKS).all(|entry| entry.is_ok_and(|e| harmless(e.file_name().to_bytes())));
    Some(few && entries.next().is_none())
}

/// Renames; tells the new name.
fn hold(parent: &OwnedFd, name: &Path) -> Option<String> {
    let name = name.to_str()?;
    let simple = std::iter::once(format!("{name}.held")).chain((2..10).map(|n| format!("{name}.held-{n}")));
    // All processes of the run are gone: nobody can take every name that the clock may give.
    let unforeseen = (0..16).map(|_| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        format!("{name}.held-{now:x}")
    });
    let taken =
        |held: &String| rustix::fs::renameat_with(parent, name, parent, held.as_str(), RenameFlags::NOREPLACE).is_ok();
    simple.chain(unforeseen).find(taken)
}

#[cfg(test)]
mod tests {
    use super::super::grants::Roots;
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    fn watch(root: &Path) -> HeldFiles {
        let tops = Tops::open(&Roots::resolve(&policy(root)).unwrap()).unwrap();
        let sensitive = guarded_paths::all(&tops).unwrap();
        HeldFiles::watch(tops, &sensitive)
    }

    fn after(before: impl Fn(&Path), run: impl Fn(&Path)) -> (TempDir, Vec<String>) {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        before(&root);
        let aside = watch(&root);
        run(&root);
        let put = aside.put();
        assert!(put.left.is_empty(), "{put:?}");
        let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
        (dir, put.moved.iter().map(name).collect())
    }

    #[test]
    fn what_is_new_is_held_and_what_was_there_stays() {
        let (dir, moved) = after(
            |root| fs::write(root.join(".envrc"), "").unwrap(),
            |root| {
                fs::write(root.join(".bashrc"), "evil").unwrap();
                fs::create_dir_all(root.join(".vscode/deep")).unwrap();
                symlink("elsewhere", root.join(".zshrc")).unwrap();
                fs::create_dir_all(root.join(".config/fish")).unwrap();
                fs::write(root.join(".bashrc.held"), "in the way").unwrap();
                fs::write(root.join("ordinary"), "").unwrap();
            },
        );
        assert_eq!(moved, [".bashrc.held-2", ".zshrc.held", ".config/fish.held", ".vscode.held"]);
        assert_eq!(fs::read(dir.path().join(".bashrc.held-2")).unwrap(), b"evil");
        assert!(dir.path().join(".envrc").exists() && dir.path().join("ordinary").exists());
    }

    #[test]
    fn what_stands_in_place_of_a_root_by_now_is_left_alone() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (root, moved, other) = (top.join("up/w"), top.join("moved"), top.join("other"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(other.join("w/.git")).unwrap();
        for name in [".bashrc", ".git/config"] {
            fs::write(other.join("w").join(name), EVIL).unwrap();
        }
        let aside = watch(&root);
        fs::write(root.join("target"), "evil").unwrap();
        symlink(root.join("target"), root.join(".bashrc")).unwrap();
        fs::create_dir_all(root.join(".git/modules/m")).unwrap();
        fs::write(root.join(".git/modules/m/HEAD"), "").unwrap();
        fs::write(root.join(".git/modules/m/config"), EVIL).unwrap();
        fs::rename(top.join("up"), &moved).unwrap();
        symlink(&other, top.join("up")).unwrap();
        let put = aside.put();
        assert!(put.left.is_empty(), "{put:?}");
        // Told by the names that they have now.
        let expect = [".bashrc.held", ".git/modules/m/config.held"];
        assert_eq!(put.moved, expect.map(|name| moved.join("w").join(name)));
        assert!(put.moved.iter().all(|path| path.symlink_metadata().is_ok()));
        assert!(other.join("w/.bashrc").exists() && other.join("w/.git/config").exists());
    }

    #[test]
    fn a_new_repository_stays_one_without_hooks_and_programs() {
        let init = |root: &Path| {
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::write(root.join(".git/hooks/pre-commit.sample"), "").unwrap();
            let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[user]\n\temail = a@b\n\
                          [remote \"origin\"]\n\turl = https://example.org/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";
            fs::write(root.join(".git/config"), config).unwrap();
        };
        let (_dir, moved) = after(|_| {}, init);
        assert!(moved.is_empty(), "{moved:?}");
        let (_dir, moved) = after(
            |_| {},
            |root| {
                init(root);
                fs::write(root.join(".git/hooks/pre-commit"), "evil").unwrap();
                fs::write(root.join(".git/config"), "[core]\n\tfsmonitor = evil\n").unwrap();
            },
        );
        assert_eq!(moved, [".git/hooks.held", ".git/config.held"]);
    }

    #[test]
    fn a_link_or_file_in_place_of_a_repository_is_held() {
        for make in [(|root: &Path| symlink("other", root.join(".git")).unwrap()) as fn(&Path), |root| {
            fs::write(root.join(".git"), "gitdir: other").unwrap();
        }] {
            let (_dir, moved) = after(|root| fs::create_dir_all(root.join("other/hooks")).unwrap(), make);
            assert_eq!(moved, [".git.held"]);
        }
    }

    const EVIL: &str = "[core]\n\tfsmonitor = evil\n";

    #[test]
    fn names_that_are_taken_and_directories_that_are_closed_do_not_help() {
        let (dir, moved) = after(
            |root| fs::create_dir(root.join(".config")).unwrap(),
            |root| {
                fs::write(root.join(".envrc"), "evil").unwrap();
                fs::write(root.join(".envrc.held"), "").unwrap();
                for n in 2..1000 {
                    fs::write(root.join(format!(".envrc.held-{n}")), "").unwrap();
                }
                fs::create_dir_all(root.join(".config/fish")).unwrap();
                fs::set_permissions(root.join(".config"), fs::Permissions::from_mode(0o000)).unwrap();
                fs::set_permissions(root, fs::Permissions::from_mode(0o555)).unwrap();
            },
        );
        assert_eq!(moved.len(), 2, "{moved:?}");
        assert!(!dir.path().join(".envrc").exists());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(dir.path()), mode(&dir.path().join(".config"))),
            (0o555, 0o000),
            "permissions are as they were"
        );
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path().join(".config"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!dir.path().join(".config/fish").exists());
    }

    #[test]
    fn a_file_with_a_second_name_is_held_when_it_is_new_and_when_it_changed() {
        let (_dir, moved) = after(
            |_| {},
            |root| {
                fs::create_dir(root.join(".git")).unwrap();
                fs::write(root.join(".git/config"), "[core]\n\tbare = false\n").unwrap();
                fs::hard_link(root.join(".git/config"), root.join("alias")).unwrap();
            },
        );
        assert_eq!(moved, [".git/config.held"]);
        let before = |root: &Path| {
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            for (name, alias) in [(".git/config", "alias"), (".git/hooks/pre-commit", "hook"), (".bashrc", "rc")] {
                fs::write(root.join(name), "").unwrap();
                fs::hard_link(root.join(name), root.join(alias)).unwrap();
            }
        };
        let (_dir, moved) = after(before, |_| {});
        assert!(moved.is_empty(), "{moved:?}");
        let (_dir, moved) = after(before, |root| {
            fs::write(root.join("alias"), EVIL).unwrap();
            fs::write(root.join("hook"), EVIL).unwrap();
        });
        assert_eq!(moved, [".git/hooks/pre-commit.held", ".git/config.held"]);
    }

    #[test]
    fn a_link_that_was_replaced_is_put_back() {
        let (dir, moved) = after(
            |root| {
                symlink("dotrc", root.join(".bashrc")).unwrap();
                fs::create_dir(root.join(".config")).unwrap();
            },
            |root| {
                fs::remove_file(root.join(".bashrc")).unwrap();
                fs::write(root.join(".bashrc"), "evil").unwrap();
                fs::write(root.join("dotrc"), "evil").unwrap();
                fs::rename(root.join(".config"), root.join("moved")).unwrap();
                fs::create_dir_all(root.join("moved/fish")).unwrap();
                symlink("moved", root.join(".config")).unwrap();
            },
        );
        let mut moved = moved;
        moved.sort();
        assert_eq!(moved, [".bashrc.held", ".config.held", "dotrc.held"]);
        assert_eq!(fs::read_link(dir.path().join(".bashrc")).unwrap(), Path::new("dotrc"));
    }

    #[test]
    fn git_is_not_led_elsewhere() {
        let init = |root: &Path| {
            fs::create_dir_all(root.join(".git/worktrees/old")).unwrap();
            fs::write(root.join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        };
        let (_dir, moved) = after(init, |root| {
            fs::write(root.join(".git/commondir"), "../evil").unwrap();
            for (name, common) in [("good", "../.."), ("bad", "../../../evil")] {
                fs::create_dir_all(root.join(".git/worktrees").join(name)).unwrap();
                fs::write(root.join(".git/worktrees").join(name).join("HEAD"), "").unwrap();
                fs::write(root.join(".git/worktrees").join(name).join("commondir"), common).unwrap();
                fs::write(root.join(".git/worktrees").join(name).join("gitdir"), "/w/.git").unwrap();
            }
            fs::create_dir_all(root.join(".git/modules/m")).unwrap();
            fs::write(root.join(".git/modules/m/HEAD"), "").unwrap();
            fs::write(root.join(".git/modules/m/config"), EVIL).unwrap();
        });
        let expect = [".git/commondir.held", ".git/modules/m/config.held", ".git/worktrees/bad/commondir.held"];
        assert_eq!(moved, expect);
    }

    #[test]
    fn a_repository_at_the_top_is_taken_apart_if_it_may_lead_to_code() {
        let bare = |root: &Path, config: &str| {
            fs::create_dir_all(root.join("objects")).unwrap();
            fs::create_dir_all(root.join("refs")).unwrap();
            fs::write(root.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(root.join("config"), config).unwrap();
        };
        let (_dir, moved) = after(|_| {}, |root| bare(root, "[core]\n\tbare = true\n"));
        assert!(moved.is_empty(), "{moved:?}");
        let (_dir, moved) = after(|root| fs::write(root.join("config"), "mine").unwrap(), |root| bare(root, EVIL));
        assert_eq!(moved, ["HEAD.held"]);
        let (_dir, moved) = after(
            |_| {},
            |root| {
                fs::write(root.join("HEAD"), "").unwrap();
                fs::write(root.join("commondir"), "evil").unwrap();
            },
        );
        assert_eq!(moved, ["HEAD.held"]);
    }
}
