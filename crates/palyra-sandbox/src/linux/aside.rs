//! Guarded paths that a run creates: set aside when it is over.
//!
//! What exists is bound read-only ([`super::guards`]). What does not exist cannot be: a mount needs something to lie on, and
//! an empty `.bashrc` in somebody's repository is worse than none. Overlays, placeholders for the time of the run and Landlock
//! were considered: the first are undefined when the user edits a file meanwhile, the second show up in `git status`, the
//! third cannot except a name from a directory. So when every process of the run is gone, and before anybody hears of its
//! end, a guarded path that is new is renamed: `.envrc` becomes `.envrc.held`. Nothing is lost, nothing is followed, and no program
//! looks for it under that name. A new repository stays one: only hooks that would run, and settings that may
//! name a program, are set aside.
//!
//! Not covered: the time until the run ends, a daemon that is killed before, and repositories below the top of a root.

use super::grants::Roots;
use crate::layout;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The guarded paths of one root that are not there when a run begins.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    absent: Vec<&'static str>,
}

/// What to look for when the run is over.
#[derive(Debug)]
pub(super) struct Aside(Vec<Root>);

const PLAIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// More hooks than anybody has.
const MOST_HOOKS: usize = 1000;
const MOST_CONFIG_BYTES: u64 = 64 << 10;

impl Aside {
    /// Looks which guarded paths are not there yet.
    pub(super) fn watch(roots: &Roots) -> Self {
        let root = |path: &PathBuf| {
            let top = open_directory(path)?;
            let absent = |name: &&str| rustix::fs::statat(&top, *name, AtFlags::SYMLINK_NOFOLLOW).is_err();
            // First the directories on the way: what lies behind a new link is set aside with it.
            let names = [".git", ".config"].into_iter().chain(layout::GUARDED_IN_WORKSPACE.iter().copied());
            Some(Root { path: path.clone(), absent: names.filter(absent).collect() })
        };
        Self(roots.writable().filter_map(root).collect())
    }

    /// Sets aside what is there now and may lead to code; tells the new names. Every process of the run is gone.
    pub(super) fn put(&self) -> Vec<PathBuf> {
        let mut moved = Vec::new();
        for root in &self.0 {
            let Some(top) = open_directory(&root.path) else { continue };
            for relative in &root.absent {
                let (directory, name) = relative.rsplit_once('/').unwrap_or(("", relative));
                let parent = if directory.is_empty() { top.try_clone().ok() } else { open_plain(&top, directory) };
                let Some(parent) = parent else { continue };
                if is_dangerous(&parent, relative, name)
                    && let Some(held) = hold(&parent, name)
                {
                    moved.push(root.path.join(directory).join(held));
                }
            }
        }
        moved
    }
}

fn open_directory(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn open_plain(top: &OwnedFd, relative: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(top, relative, flags, Mode::empty(), PLAIN).ok()
}

/// Whether a path that was not there is there now, and may lead to code that runs later.
fn is_dangerous(parent: &OwnedFd, relative: &str, name: &str) -> bool {
    let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let kind = FileType::from_raw_mode(stat.st_mode);
    match relative {
        // A new directory is fine: what lies in it is looked at by itself. A file or a link leads elsewhere.
        ".git" | ".config" => !kind.is_dir(),
        ".git/hooks" => !has_only_samples(parent, name).unwrap_or(false),
        ".git/config" => !has_only_harmless_settings(parent, name).unwrap_or(false),
        _ => true,
    }
}

fn has_only_samples(parent: &OwnedFd, name: &str) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?;
    let mut entries = Dir::read_from(directory.as_fd()).ok()?;
    let harmless = |name: &[u8]| matches!(name, b"." | b"..") || name.ends_with(b".sample");
    let few = entries.by_ref().take(MOST_HOOKS).all(|entry| entry.is_ok_and(|e| harmless(e.file_name().to_bytes())));
    Some(few && entries.next().is_none())
}

fn has_only_harmless_settings(parent: &OwnedFd, name: &str) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MOST_CONFIG_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MOST_CONFIG_BYTES).read_to_string(&mut text).ok()?;
    Some(crate::git::is_harmless_config(&text))
}

/// Renames; tells the new name.
fn hold(parent: &OwnedFd, name: &str) -> Option<String> {
    (1..1000).find_map(|n| {
        let held = if n == 1 { format!("{name}.held") } else { format!("{name}.held-{n}") };
        rustix::fs::renameat_with(parent, name, parent, held.as_str(), RenameFlags::NOREPLACE).is_ok().then_some(held)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn after(before: impl Fn(&Path), run: impl Fn(&Path)) -> (TempDir, Vec<String>) {
        let dir = TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        before(&root);
        let aside = Aside::watch(&Roots::resolve(&policy(&root)).unwrap());
        run(&root);
        let moved = aside.put().iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
        (dir, moved)
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
}
