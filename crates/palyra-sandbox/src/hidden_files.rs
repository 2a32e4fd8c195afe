//! What of the system is hidden from a run: interpreters that are not allowed, and files with the host's
//! credentials.
//!
//! A command line says little about what will be executed: a Makefile, a build script or an option of an ordinary
//! program starts what it likes. So an interpreter that is not allowed is not refused by reading arguments. It is gone:
//! every name of it in the directories that hold programs, for every process of the run, however it is started. The
//! promise is "these programs are gone", not "nothing interprets": a copy in the workspace, an interpreter that is
//! compiled anew, and a program with a language of its own that is on no list are not covered.
//!
//! This file says what is hidden; each platform says how.

use crate::executable::{Inventory, allowed_of, inventory};
use crate::layout;
use crate::outcome::{CapturedStream, MissingPrograms, ProcessExit};
use crate::policy::SandboxProcessRunnerPolicy;
use crate::roots::Roots;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is hidden from a run.
#[derive(Debug)]
pub(crate) struct Hidden {
    /// No two have the same.
    #[cfg(target_os = "linux")]
    pub(crate) number: u64,
    /// Programs, by the directory that holds them. Outer directories come first.
    pub(crate) directories: Vec<HiddenIn>,
    /// Files with credentials that exist on this host.
    pub(crate) files: Vec<PathBuf>,
}

/// The hidden programs of one directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HiddenIn {
    /// Reached by no link.
    pub(crate) directory: PathBuf,
    pub(crate) programs: Vec<HiddenProgram>,
}

/// One hidden name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HiddenProgram {
    pub(crate) name: String,
    pub(crate) family: &'static str,
    /// Whether it is a link, and what it leads to is hidden or kept under its own name.
    pub(crate) is_link: bool,
}

#[cfg(target_os = "linux")]
impl HiddenProgram {
    /// Whether a program that says why is put in its place: nobody asks whether a system has a shell before starting
    /// one.
    pub(crate) fn is_shell(&self) -> bool {
        ["sh", "bash"].contains(&self.family)
    }
}

/// What decides which programs are hidden.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    inventory: u64,
    allowed: Vec<String>,
    read: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Hidden {
    /// What is hidden from a run under this policy. Found once for each kind of run, until what is installed changes.
    pub(crate) fn of(policy: &SandboxProcessRunnerPolicy, roots: &Roots) -> Arc<Self> {
        static KNOWN: Mutex<Vec<(Key, Arc<Hidden>)>> = Mutex::new(Vec::new());
        const MOST_KNOWN: usize = 16;
        let inventory = inventory(&crate::environment::search_path(policy));
        // Roots matter only where the search path leads into one.
        let matters = |root: &&PathBuf| inventory.programs.iter().any(|program| program.path.starts_with(root));
        let key = Key {
            inventory: inventory.number,
            allowed: policy.allow_interpreters.clone(),
            read: roots.read.iter().filter(matters).cloned().collect(),
            writable: roots.writable().filter(matters).cloned().collect(),
            files: credential_files(),
        };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hidden)) = known.iter().find(|(of, _)| *of == key) {
            return Arc::clone(hidden);
        }
        let hidden = Arc::new(Self::find(policy, &inventory, &key));
        if known.len() >= MOST_KNOWN {
            known.remove(0);
        }
        known.push((key, Arc::clone(&hidden)));
        hidden
    }

    fn find(policy: &SandboxProcessRunnerPolicy, inventory: &Inventory, key: &Key) -> Self {
        #[cfg(target_os = "linux")]
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let is_allowed = allowed_of(policy);
        let allowed: Vec<bool> = inventory.programs.iter().map(is_allowed).collect();
        // A file that an allowed name leads to stays, whatever else it is called.
        let kept: HashSet<&Path> =
            inventory.programs.iter().zip(&allowed).filter(|(_, yes)| **yes).map(|(p, _)| p.real.as_path()).collect();
        let mut by_directory: BTreeMap<&Path, Vec<HiddenProgram>> = BTreeMap::new();
        for (program, _) in inventory.programs.iter().zip(&allowed).filter(|(_, yes)| !**yes) {
            let is_link = program.path != program.real;
            let place = program.path.parent().zip(program.path.file_name().and_then(|name| name.to_str()));
            let Some((directory, name)) = place.filter(|(directory, _)| key.shows(directory)) else { continue };
            if is_link || !kept.contains(program.real.as_path()) {
                let program = HiddenProgram { name: name.to_owned(), family: program.family, is_link };
                by_directory.entry(directory).or_default().push(program);
            }
        }
        let in_directory = |(directory, mut programs): (&Path, Vec<HiddenProgram>)| {
            programs.sort_by(|a, b| a.name.cmp(&b.name));
            HiddenIn { directory: directory.to_owned(), programs }
        };
        Self {
            #[cfg(target_os = "linux")]
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            directories: by_directory.into_iter().map(in_directory).collect(),
            files: key.files.clone(),
        }
    }

    /// Whether there is nothing to hide.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.files.is_empty()
    }

    fn programs(&self) -> impl Iterator<Item = (&Path, &HiddenProgram)> {
        self.directories.iter().flat_map(|inside| inside.programs.iter().map(|program| (&*inside.directory, program)))
    }

    /// The hidden programs that are files themselves: without them the links to them lead nowhere.
    pub(crate) fn program_files(&self) -> impl Iterator<Item = (PathBuf, &HiddenProgram)> {
        let files = self.programs().filter(|(_, program)| !program.is_link);
        files.map(|(directory, program)| (directory.join(&program.name), program))
    }

    /// The hidden names, each once.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.programs().map(|(_, program)| program.name.as_str()).collect()
    }

    /// What is gone, for people.
    pub(crate) fn describe(&self) -> String {
        let names = self.programs().count();
        let families: BTreeSet<&str> = self.programs().map(|(_, program)| program.family).collect();
        let families: Vec<&str> = families.into_iter().collect();
        let files = match self.files.len() {
            0 => String::new(),
            count => format!("; {count} file(s) with credentials empty"),
        };
        match names {
            0 => format!("no interpreter here is not allowed{files}"),
            _ => format!("{names} name(s) gone: {}{files}", families.join(", ")),
        }
    }

    /// What a run that failed seems to have lacked. A guess: from how it ended and what it wrote.
    pub(crate) fn missed(
        &self,
        exit: ProcessExit,
        stdout: &CapturedStream,
        stderr: &CapturedStream,
    ) -> Option<MissingPrograms> {
        /// What shells and `env` end with when a program is not there, or cannot be executed.
        const NOT_STARTED: [ProcessExit; 2] = [ProcessExit::Code(126), ProcessExit::Code(127)];
        /// No more names than anybody would read.
        const MOST: usize = 4;
        let hidden = self.names();
        if exit.success() || hidden.is_empty() {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        for stream in [stderr, stdout] {
            for name in named_as_missing(&stream.bytes) {
                if hidden.contains(name.as_str()) && !names.contains(&name) && names.len() < MOST {
                    names.push(name);
                }
            }
        }
        let certain = !names.is_empty();
        (certain || NOT_STARTED.contains(&exit)).then_some(MissingPrograms { names, hidden: hidden.len() })
    }
}

impl Key {
    /// Whether a run sees a directory and cannot write to it: what it can write to it can also rename.
    fn shows(&self, directory: &Path) -> bool {
        let lies_in = |roots: &[PathBuf]| roots.iter().any(|root| directory.starts_with(root));
        (layout::is_system_path(directory) || lies_in(&self.read)) && !lies_in(&self.writable)
    }
}

/// The files with credentials that exist and that a run could see, free of links.
fn credential_files() -> Vec<PathBuf> {
    let there = layout::CREDENTIAL_FILES.iter().filter_map(|path| fs::canonicalize(path).ok());
    let shown = |path: &PathBuf| path.is_file() && (layout::is_system_path(path) || path.starts_with("/etc"));
    let files: BTreeSet<PathBuf> = there.filter(shown).collect();
    files.into_iter().collect()
}

/// How programs say that another one could not be started.
const COMPLAINTS: &[&str] =
    &["No such file", "not found", "ENOENT", "cannot run", "cannot exec", "Permission denied", "is not allowed here"];
/// The end of what a program wrote is where it says why it failed.
const LAST_BYTES: usize = 64 << 10;

/// The words of complaining lines, without the directories before them.
fn named_as_missing(written: &[u8]) -> Vec<String> {
    let end = String::from_utf8_lossy(&written[written.len().saturating_sub(LAST_BYTES)..]);
    let complains = |line: &&str| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let words = |line: &str| line.split(|c| !is_part(c)).map(base).map(str::to_owned).collect::<Vec<_>>();
    end.lines().filter(complains).flat_map(words).filter(|word| !word.is_empty()).collect()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::testing::policy;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn hidden(policy: &SandboxProcessRunnerPolicy) -> Arc<Hidden> {
        Hidden::of(policy, &Roots::resolve(policy).unwrap())
    }

    #[test]
    fn what_is_not_allowed_is_hidden_and_a_shell_includes_what_is_less() {
        let dir = TempDir::new().unwrap();
        let mut policy = policy(dir.path());
        let all = hidden(&policy);
        for name in ["sh", "dash", "bash", "rbash", "python3", "perl", "awk", "mawk"] {
            assert!(all.names().contains(name), "{name}: {all:?}");
        }
        for name in ["ls", "cat", "env", "xargs", "git", "which", "egrep", "bwrap"] {
            assert!(!all.names().contains(name), "{name}: {all:?}");
        }
        assert!(Arc::ptr_eq(&all, &hidden(&policy)), "it is found once");
        policy.allow_interpreters = vec!["bash".into()];
        let names = hidden(&policy);
        let names = names.names();
        for name in ["sh", "dash", "bash", "awk", "mawk"] {
            assert!(!names.contains(name), "{name}: {names:?}");
        }
        assert!(names.contains("python3") && names.contains("perl"));
        policy.allow_interpreters = vec!["python3".into()];
        let names = hidden(&policy);
        assert!(!names.names().contains("python3") && names.names().contains("bash"));
    }

    #[test]
    fn a_file_that_an_allowed_name_leads_to_stays() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (bin, workspace) = (top.join("bin"), top.join("w"));
        for path in [&bin, &workspace] {
            fs::create_dir(path).unwrap();
        }
        fs::copy("/bin/true", bin.join("busybox")).unwrap();
        for name in ["sh", "vi"] {
            symlink("busybox", bin.join(name)).unwrap();
        }
        let inventory = inventory(bin.to_str().unwrap());
        let mut policy = policy(&workspace);
        let mut find = |allowed: &[&str]| {
            policy.allow_interpreters = allowed.iter().map(|name| (*name).to_owned()).collect();
            let key = Key { inventory: 0, allowed: vec![], read: vec![bin.clone()], writable: vec![], files: vec![] };
            let found = Hidden::find(&policy, &inventory, &key);
            let here = found.directories.iter().find(|inside| inside.directory == bin);
            here.map_or_else(Vec::new, |inside| inside.programs.iter().map(|p| p.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(find(&[]), ["busybox", "sh", "vi"]);
        assert_eq!(find(&["sh"]), ["vi"]);
    }

    #[test]
    fn a_run_that_lacked_a_hidden_program_is_told_which() {
        let dir = TempDir::new().unwrap();
        let hidden = hidden(&policy(dir.path()));
        let stream = |text: &str| CapturedStream { bytes: text.into(), ..CapturedStream::default() };
        let missed = |code: i32, text: &str| {
            let missed = hidden.missed(ProcessExit::Code(code), &stream(""), &stream(text));
            missed.map(|missed| missed.names.join(" "))
        };
        for (code, text, expect) in [
            (2, "make: /bin/sh: No such file or directory\nmake: *** [Makefile:2: x] Error 127\n", Some("sh")),
            (127, "env: \u{2018}python3\u{2019}: No such file or directory\n", Some("python3")),
            (1, "Error: spawn sh ENOENT\n", Some("sh")),
            (1, "palyra: `bash` is not allowed here\n", Some("bash")),
            (127, "", Some("")),
            (126, "something else\n", Some("")),
            (1, "cat: x: No such file or directory\n", None),
            (1, "the shell sh is fine\n", None),
            (0, "/bin/sh: not found\n", None),
        ] {
            assert_eq!(missed(code, text).as_deref(), expect, "{code} {text}");
        }
    }
}
