//! The shells and interpreters of this host: every name under which one can be executed.
//!
//! The directories that hold programs are read once, and again when one of them changes. A program counts by its name;
//! whatever else leads to the same file counts too (links, hard links), and so does a copy under another name, known by
//! its build id or its code ([`super::elf`]). The directory of the file that a link leads to is read as well: hiding
//! `/usr/bin/java` alone would leave the one in `/usr/lib/jvm`. A script is no interpreter: without its own it does not
//! run.

use super::elf::Prints;
use super::file::{self, FileIdentity};
use super::names;
use crate::layout;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// One name of an installed interpreter.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The name, in a directory that is reached by no link. It may be a link itself.
    pub(crate) path: PathBuf,
    /// The file that it leads to.
    pub(crate) real: PathBuf,
    pub(crate) family: &'static str,
    pub(super) identity: FileIdentity,
    pub(super) prints: Prints,
}

/// What is installed.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// No two inventories have the same.
    #[cfg_attr(windows, expect(dead_code, reason = "nothing is hidden on Windows, so nothing hangs on it"))]
    pub(crate) number: u64,
    pub(crate) programs: Vec<Installed>,
    searched: String,
    /// The directories that were read, and what each was then.
    stamps: Vec<(PathBuf, Stamp)>,
}

/// What a directory was when it was read: another one, or a changed one, has another stamp.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamp(directory: &Path) -> Stamp {
    let metadata = fs::metadata(directory).ok()?;
    let (device, inode) = number_of(&metadata);
    Some((metadata.modified().ok()?, device, inode))
}

#[cfg(unix)]
fn number_of(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn number_of(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// What is installed now in the directories of this search path and those that hold programs besides.
pub(crate) fn inventory(search_path: &str) -> Arc<Inventory> {
    static KNOWN: Mutex<Vec<Arc<Inventory>>> = Mutex::new(Vec::new());
    const MOST_KNOWN: usize = 4;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = known.iter().position(|inventory| inventory.searched == search_path) {
        if known[at].stamps.iter().all(|(directory, then)| stamp(directory) == *then) {
            return Arc::clone(&known[at]);
        }
        known.remove(at);
    }
    let fresh = Arc::new(Scan::of(search_path));
    if known.len() >= MOST_KNOWN {
        known.remove(0);
    }
    known.push(Arc::clone(&fresh));
    fresh
}

/// A name in one of the directories.
struct Entry {
    path: PathBuf,
    /// Device and inode of the file that it leads to.
    number: (u64, u64),
    is_link: bool,
    family: Option<&'static str>,
}

/// One reading of the directories.
#[derive(Default)]
struct Scan {
    stamps: Vec<(PathBuf, Stamp)>,
    entries: Vec<Entry>,
}

impl Scan {
    fn of(search_path: &str) -> Inventory {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let mut scan = Self::default();
        for directory in layout::pattern_directories() {
            scan.stamps.push((directory.clone(), stamp(&directory)));
        }
        let searched = std::env::split_paths(search_path).filter(|directory| directory.is_absolute());
        let mut waiting: Vec<PathBuf> = searched.chain(layout::program_directories()).collect();
        let mut read = HashSet::new();
        while let Some(directory) = waiting.pop() {
            let Ok(directory) = fs::canonicalize(directory) else { continue };
            if read.insert(directory.clone()) {
                waiting.extend(scan.read(directory));
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Inventory { number, programs: scan.programs(), searched: search_path.to_owned(), stamps: scan.stamps }
    }

    /// Reads a directory; tells the directories that its links to interpreters lead to.
    fn read(&mut self, directory: PathBuf) -> Vec<PathBuf> {
        // Before it is read: what is put there meanwhile changes it again.
        self.stamps.push((directory.clone(), stamp(&directory)));
        let mut behind = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(metadata) = fs::metadata(&path).ok().filter(file::may_execute) else { continue };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let family = names::family_of(file::known_as(&path));
            if is_link && family.is_some() {
                behind.extend(fs::canonicalize(&path).ok().and_then(|real| Some(real.parent()?.to_owned())));
            }
            self.entries.push(Entry { number: number_of(&metadata), path, is_link, family });
        }
        behind
    }

    /// Every name of every interpreter.
    fn programs(&mut self) -> Vec<Installed> {
        let (mut programs, mut others): (Vec<Installed>, Vec<Entry>) = Default::default();
        let mut by_number = HashMap::new();
        for entry in std::mem::take(&mut self.entries) {
            match entry.family {
                Some(family) => programs.extend(Installed::at(&entry.path, family).inspect(|program| {
                    by_number.insert(entry.number, (family, names::family_of(file::known_as(&program.real)).is_some()));
                })),
                None => others.push(entry),
            }
        }
        // One file under many names, most of which are no interpreter's: there the names go and the file stays.
        let shared: HashSet<_> = others.iter().filter(|other| other.is_link).map(|other| other.number).collect();
        by_number.retain(|number, (_, is_named)| cfg!(unix) && (*is_named || !shared.contains(number)));
        let number = |program: &Installed| (program.identity.device, program.identity.inode);
        let whole: Vec<&Installed> =
            programs.iter().filter(|program| by_number.contains_key(&number(program))).collect();
        let mut found = Vec::new();
        for other in &others {
            let same_file = by_number.get(&other.number).map(|(family, _)| *family);
            let family = same_file.or_else(|| copied(other, &whole));
            found.extend(family.and_then(|family| Installed::at(&other.path, family)));
        }
        programs.extend(found);
        programs
    }
}

/// The family of the interpreter that an ordinary file is a copy of.
fn copied(entry: &Entry, programs: &[&Installed]) -> Option<&'static str> {
    let file = (!entry.is_link).then(|| File::open(&entry.path).ok()).flatten()?;
    let prints = Prints::of(&file);
    programs.iter().find(|program| program.prints.agree(&prints)).map(|program| program.family)
}

impl Installed {
    fn at(path: &Path, family: &'static str) -> Option<Self> {
        let real = fs::canonicalize(path).ok().filter(|real| real.is_file())?;
        let (identity, prints) = match File::open(&real) {
            Ok(file) => (FileIdentity::of_file(&file).ok()?, Prints::of(&file)),
            // It can be executed and not read: known by its name alone.
            Err(_) => (FileIdentity::of_path(&real)?, Prints::default()),
        };
        Some(Self { path: path.to_owned(), real, family, identity, prints })
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use tempfile::TempDir;

    fn names(directory: &Path) -> Vec<String> {
        let found = inventory(directory.to_str().unwrap());
        let below = found.programs.iter().filter(|program| program.path.starts_with(directory));
        let mut names: Vec<_> = below.map(|program| file::known_as(&program.path).to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_interpreter_is_found_under_every_name_and_behind_its_links() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (bin, lib) = (top.join("bin"), top.join("lib"));
        for path in [&bin, &lib] {
            fs::create_dir(path).unwrap();
        }
        fs::copy("/bin/bash", bin.join("bash")).unwrap();
        fs::hard_link(bin.join("bash"), bin.join("twin")).unwrap();
        let longer = [&fs::read("/bin/bash").unwrap()[..], b"x"].concat();
        fs::write(bin.join("copy"), longer).unwrap();
        fs::set_permissions(bin.join("copy"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("bash", bin.join("link")).unwrap();
        fs::copy("/bin/true", lib.join("python3.9")).unwrap();
        fs::copy("/bin/false", lib.join("perl")).unwrap();
        symlink("../lib/python3.9", bin.join("python3")).unwrap();
        fs::copy("/bin/cat", bin.join("cat")).unwrap();
        fs::write(bin.join("ruby"), "not executable").unwrap();
        let script = bin.join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(names(&bin), ["bash", "copy", "link", "python3", "twin"]);
        assert_eq!(names(&lib), ["perl", "python3.9"]);
    }

    #[test]
    fn of_one_file_with_many_names_the_interpreters_names_are_found() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::copy("/bin/true", top.join("tools")).unwrap();
        for name in ["lli", "opt", "clang"] {
            symlink("tools", top.join(name)).unwrap();
        }
        assert_eq!(names(&top), ["lli"]);
    }

    #[test]
    fn a_changed_directory_is_read_again_and_another_is_not() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let path = top.to_str().unwrap();
        let first = inventory(path);
        assert!(Arc::ptr_eq(&first, &inventory(path)));
        let before = stamp(&top);
        while stamp(&top) == before {
            fs::write(top.join("new"), "").unwrap();
            fs::remove_file(top.join("new")).unwrap();
        }
        fs::copy("/bin/true", top.join("perl")).unwrap();
        assert_eq!(names(&top), ["perl"]);
        assert_ne!(inventory(path).number, first.number);
    }
}
