//! Secret files: files of the workspace that an agent's model must not see unasked.
//!
//! The list is data (`secret_files.txt`). A read of such a file is asked about, searches pass it by, and a process in
//! Tier C finds a notice in its place, whatever it is called by: the walls hold, not the words of a command.
//!
//! A file that git holds with the very same content is no secret to a run, which can read the repository. The index of
//! git is the agent's to write, so its word counts only where it names the digest of what the file holds: an agent
//! that has not read a file cannot name that. Nor is a file a secret to agents whose content a call of theirs wrote.
//!
//! Which files there are is found by a walk whose result is kept: a directory is read again when its times say that it
//! changed. This module must never take a file for harmless because something about it could not be read.

mod scan;

use super::Workspace;
use super::beneath::DirUse;
use super::error::FileError;
use super::git_index::GitIndex;
use super::path::ResolvedPath;
use super::path_list::{self, PathList, PathListError, comparable};
use palyra_protocol::Digest;
use rustix::fd::OwnedFd;
use scan::Scan;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

const BUILT_IN: &str = include_str!("secret_files.txt");
/// How much of a file is looked at that is judged by its content.
const PROBE_BYTES: u64 = 256 * 1024;
/// The largest file whose content is compared with git's.
const MAX_COMPARED_BYTES: u64 = 4 << 20;
/// The most secret files that a workspace may have.
pub const MAX_SECRET_FILES: usize = 256;
/// What a file holds that is a secret for it.
const TELLTALES: &[&[u8]] = &[b"PRIVATE KEY", b"_auth", b"_password", b"password", b"token", b"AGE-SECRET-KEY"];

/// Git's index, read when it is first needed.
type Index = OnceCell<Option<GitIndex>>;

/// A secret file of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// Relative to the workspace.
    pub path: String,
    /// Git's index names it, with another content.
    pub is_tracked: bool,
}

/// Which files count as secret.
#[derive(Debug)]
pub struct SecretRules {
    by_name: PathList,
    by_content: PathList,
}

/// The rules of a workspace, and what is known of its files.
#[derive(Debug)]
pub(crate) struct SecretFiles {
    rules: Arc<SecretRules>,
    scan: Mutex<Scan>,
    /// What calls wrote, by path: it is no secret to agents.
    written: Mutex<HashMap<String, Digest>>,
}

impl SecretRules {
    /// The built-in list and an operator's additions, which may take paths out.
    ///
    /// # Errors
    /// An addition is not a pattern.
    pub fn new<'a>(further: impl IntoIterator<Item = &'a str>) -> Result<Self, PathListError> {
        let lines: Vec<&str> = path_list::lines(BUILT_IN).chain(further).collect();
        let exceptions = || lines.iter().copied().filter(|line| line.starts_with('!'));
        let by_content = lines.iter().filter_map(|line| line.strip_prefix('~'));
        Ok(Self {
            by_name: PathList::new(lines.iter().copied().filter(|line| !line.starts_with('~')))?,
            by_content: PathList::new(by_content.chain(exceptions()))?,
        })
    }

    /// The built-in list alone, read once.
    pub(crate) fn built_in() -> Result<Arc<Self>, FileError> {
        static RULES: Mutex<Option<Arc<SecretRules>>> = Mutex::new(None);
        let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = &*rules {
            return Ok(Arc::clone(rules));
        }
        let read = Self::new([]).map_err(|error| FileError::InvalidPattern { reason: error.to_string() })?;
        Ok(Arc::clone(rules.insert(Arc::new(read))))
    }

    /// Whether a path may name a secret file, before anything is read.
    #[must_use]
    pub fn may_name(&self, path: &str) -> bool {
        let path = comparable(path);
        self.by_name.lists(&path) || self.by_content.lists(&path)
    }

    /// Whether nothing in a directory can be one.
    fn passes_by(&self, directory: &str) -> bool {
        self.by_name.excepts(&comparable(directory))
    }
}

impl SecretFiles {
    pub(crate) fn new(rules: Arc<SecretRules>) -> Self {
        Self { rules, scan: Mutex::default(), written: Mutex::default() }
    }
}

impl Workspace {
    /// The same workspace with other rules about secret files.
    #[must_use]
    pub fn with_secret_rules(mut self, rules: Arc<SecretRules>) -> Self {
        self.secrets = SecretFiles::new(rules);
        self
    }

    /// Whether a text may name a secret file: for finding candidates in it.
    #[must_use]
    pub fn may_name_secret(&self, text: &str) -> bool {
        self.secrets.rules.may_name(text)
    }

    /// Whether a file is secret. One that is not there is none; one that cannot be read is.
    #[must_use]
    pub fn is_secret(&self, path: &ResolvedPath) -> bool {
        let named = self.secrets.rules.may_name(path.as_str());
        (named && self.is_withheld(path.as_str(), &OnceCell::new())) || self.is_led_to(path.as_str())
    }

    /// Whether a link with the name of a secret file leads to a path, as far as is known.
    fn is_led_to(&self, path: &str) -> bool {
        self.secrets.scan.lock().unwrap_or_else(PoisonError::into_inner).is_linked_to(path)
    }

    /// Whether a path that a walk came by is that of a secret file.
    pub(super) fn walks_past_secret(&self, path: &str) -> bool {
        let may_be = self.secrets.rules.may_name(path) || self.is_led_to(path);
        may_be && self.resolve(path).is_ok_and(|path| self.is_secret(&path))
    }

    /// Remembers what a call wrote: as long as the file holds that, it is no secret to agents. A restart forgets it.
    pub fn written_by_call(&self, path: &str, content: Digest) {
        if !self.secrets.rules.may_name(path) {
            return;
        }
        let mut written = self.secrets.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() < MAX_SECRET_FILES || written.contains_key(path) {
            written.insert(path.to_owned(), content);
        }
    }

    /// Every secret file that is there now, by its path, also where another name leads to it.
    ///
    /// # Errors
    /// The workspace is too large to be looked through, or holds more of them than can be withheld.
    pub fn secret_files(&self) -> Result<Vec<SecretFile>, FileError> {
        self.in_place()?;
        let mut scan = self.secrets.scan.lock().unwrap_or_else(PoisonError::into_inner);
        scan.refresh(self, &self.secrets.rules)?;
        let index = OnceCell::new();
        let mut found: Vec<String> = scan.candidates().filter(|path| self.is_withheld(path, &index)).collect();
        found.extend(scan.linked().map(str::to_owned));
        found.sort_unstable();
        found.dedup();
        if found.len() > MAX_SECRET_FILES {
            let path = self.root().to_string_lossy().into_owned();
            return Err(FileError::TooLarge { path, limit: MAX_SECRET_FILES as u64, unit: "files that hold secrets" });
        }
        let is_tracked =
            |path: &str| index.get().and_then(Option::as_ref).is_some_and(|index| index.names(path.as_bytes()));
        Ok(found.into_iter().map(|path| SecretFile { is_tracked: is_tracked(&path), path }).collect())
    }

    /// Whether a file with such a name is one.
    fn is_withheld(&self, path: &str, index: &Index) -> bool {
        let Ok(resolved) = self.resolve(path) else { return false };
        if resolved.as_str() != path || !resolved.existed() {
            return false;
        }
        let Ok((file, stat)) = self.open_file(&resolved) else {
            // A directory is none; what cannot be opened may be one.
            return self.open_dir(path, DirUse::Lookup).is_err();
        };
        let by_name = self.secrets.rules.by_name.lists(&comparable(path));
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        (by_name || holds_telltale(file)) && !(size <= MAX_COMPARED_BYTES && self.is_known(&resolved, index))
    }

    /// Whether git holds the file with the same content, or a call wrote it.
    fn is_known(&self, path: &ResolvedPath, index: &Index) -> bool {
        let Ok((file, _)) = self.open_file(path) else { return false };
        let mut content = Vec::new();
        let read = File::from(file).take(MAX_COMPARED_BYTES + 1).read_to_end(&mut content);
        if read.is_err() || content.len() as u64 > MAX_COMPARED_BYTES {
            return false;
        }
        let written = self.secrets.written.lock().unwrap_or_else(PoisonError::into_inner).get(path.as_str()).copied();
        if written == Some(Digest::of(&content)) {
            return true;
        }
        let index = index.get_or_init(|| GitIndex::of(self).ok()).as_ref();
        index.is_some_and(|index| index.holds(path.as_str().as_bytes(), &content))
    }
}

fn holds_telltale(file: OwnedFd) -> bool {
    let mut content = Vec::new();
    if File::from(file).take(PROBE_BYTES).read_to_end(&mut content).is_err() {
        return true;
    }
    TELLTALES.iter().any(|telltale| content.windows(telltale.len()).any(|part| part.eq_ignore_ascii_case(telltale)))
}
