//! A directory of an operator's rules: what is read, under which names, and what is refused before anything is parsed.
//!
//! Directly in it are `*.cedar` (rules), `groups.toml` (who belongs to what) and `*.cases.toml`; further cases may be
//! in `cases/`. Files that could be mistaken for rules and are not read are refused: silence would be a false comfort.
//! Hidden files and anything that is neither Cedar nor TOML is left alone. Everything has a limit.

use crate::error::{Flaw, FlawKind, PolicyError};
use crate::source::{DEFAULT_NAME, MAX_SOURCE_BYTES, PolicySource, Position};
use palyra_protocol::{Custody, CustodyError, Digest, DigestBuilder};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The most files of one set.
pub const MAX_FILES: usize = 1_000;
/// The most bytes of one set.
pub const MAX_SET_BYTES: usize = 64 * 1024 * 1024;

/// One file of a set, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its path relative to the directory: `team.cedar`, `cases/team.toml`.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The files of one set, sorted by what they are.
#[derive(Debug, Clone)]
pub struct PolicyFiles {
    pub(crate) rules: Vec<PolicySource>,
    pub(crate) cases: Vec<PolicySource>,
    pub(crate) groups: Option<PolicySource>,
    digest: Digest,
}

/// What a file's name makes of it.
enum Part {
    Rules,
    Cases,
    Groups,
    Nothing,
    Misplaced(&'static str),
}

impl Part {
    fn of(name: &str) -> Self {
        let (directory, file) = name.rsplit_once('/').unwrap_or(("", name));
        let (cedar, toml) = (file.ends_with(".cedar"), file.ends_with(".toml"));
        match directory {
            _ if file.starts_with('.') || !(cedar || toml) => Self::Nothing,
            "" if file == DEFAULT_NAME => {
                Self::Misplaced("this name is that of the rules Palyra ships; choose another")
            }
            "" if cedar => Self::Rules,
            "" if file == "groups.toml" => Self::Groups,
            "" if file.ends_with(".cases.toml") => Self::Cases,
            "" => Self::Misplaced("only `groups.toml` and `*.cases.toml` are read here; put cases into `cases/`"),
            "cases" if toml => Self::Cases,
            "cases" => Self::Misplaced("rules are not read from `cases/`; put them beside it"),
            _ => Self::Misplaced("further directories are not read; put rules directly into the policy directory"),
        }
    }
}

impl PolicyFiles {
    /// No files at all: only the rules that Palyra ships with.
    #[must_use]
    pub fn none() -> Self {
        Self { rules: Vec::new(), cases: Vec::new(), groups: None, digest: digest(&[]) }
    }

    /// Reads a directory. Where there is a custody, it vouches for the directory and for each file in it, and the files
    /// are opened by the paths that it gives.
    ///
    /// # Errors
    /// Anything in it that cannot be read, that an agent could write, or that would seem to be a rule and is none: all
    /// are reported.
    pub fn read(directory: &Path, custody: Option<&dyn Custody>) -> Result<Self, PolicyError> {
        let mut found = Found { custody, files: Vec::new(), flaws: Vec::new(), bytes: 0 };
        found.list(directory, "");
        found.list(directory, "cases");
        if !found.flaws.is_empty() {
            return Err(PolicyError::Flawed(found.flaws));
        }
        Self::new(found.files)
    }

    /// Takes files that somebody sent.
    ///
    /// # Errors
    /// There are too many, they are too large, not text, or in the wrong place.
    pub fn new(mut files: Vec<PolicyFile>) -> Result<Self, PolicyError> {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let mut flaws = Vec::new();
        let total: usize = files.iter().map(|file| file.bytes.len()).sum();
        if files.len() > MAX_FILES || total > MAX_SET_BYTES {
            let most = MAX_SET_BYTES / 1024 / 1024;
            let message = format!("a set has at most {MAX_FILES} files of together {most} MiB");
            return Err(PolicyError::Flawed(vec![flaw(".", FlawKind::TooLarge, message)]));
        }
        let mut set = Self { digest: digest(&files), ..Self::none() };
        for file in files {
            match set.add(file) {
                Ok(()) => {}
                Err(found) => flaws.push(*found),
            }
        }
        if flaws.is_empty() { Ok(set) } else { Err(PolicyError::Flawed(flaws)) }
    }

    fn add(&mut self, file: PolicyFile) -> Result<(), Box<Flaw>> {
        let part = Part::of(&file.name);
        if let Part::Misplaced(why) = part {
            return Err(Box::new(flaw(&file.name, FlawKind::Misplaced, why.to_owned())));
        }
        if matches!(part, Part::Nothing) {
            return Ok(());
        }
        let text = text(&file)?;
        let source = PolicySource::new(file.name, text);
        match part {
            Part::Rules => self.rules.push(source),
            Part::Cases => self.cases.push(source),
            Part::Groups => self.groups = Some(source),
            Part::Nothing | Part::Misplaced(_) => {}
        }
        Ok(())
    }

    /// The files again, as they were read.
    #[must_use]
    pub fn files(&self) -> Vec<PolicyFile> {
        let all = self.rules.iter().chain(&self.cases).chain(&self.groups);
        all.map(|source| PolicyFile { name: source.name.clone(), bytes: source.text.clone().into_bytes() }).collect()
    }

    /// What the files are, byte by byte: names a set even when it cannot be read as one.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

fn digest(files: &[PolicyFile]) -> Digest {
    let read = files.iter().filter(|file| !matches!(Part::of(&file.name), Part::Nothing));
    let builder = DigestBuilder::new("palyra.policy-files.v1");
    read.fold(builder, |digest, file| digest.field(file.name.as_bytes()).field(&file.bytes)).finish()
}

fn text(file: &PolicyFile) -> Result<String, Box<Flaw>> {
    if file.bytes.len() > MAX_SOURCE_BYTES {
        let message = format!("the file is larger than {} MiB", MAX_SOURCE_BYTES / 1024 / 1024);
        return Err(Box::new(flaw(&file.name, FlawKind::TooLarge, message)));
    }
    String::from_utf8(file.bytes.clone()).map_err(|error| {
        let valid = &file.bytes[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        let at = Position { source: file.name.clone(), line, column: 1 };
        let message = format!("the file is not UTF-8: byte {} does not belong", valid.len());
        Box::new(Flaw { at, ..flaw(&file.name, FlawKind::Unreadable, message) })
    })
}

fn flaw(name: &str, kind: FlawKind, message: String) -> Flaw {
    let at = Position { source: name.to_owned(), line: 1, column: 1 };
    Flaw { kind, at, excerpt: String::new(), message, help: None }
}

/// What a directory held.
struct Found<'c> {
    custody: Option<&'c dyn Custody>,
    files: Vec<PolicyFile>,
    flaws: Vec<Flaw>,
    bytes: usize,
}

impl Found<'_> {
    fn list(&mut self, root: &Path, below: &str) {
        let directory = if below.is_empty() { root.to_owned() } else { root.join(below) };
        let shown = if below.is_empty() { directory.display().to_string() } else { below.to_owned() };
        let Some(directory) = self.vouched(&directory, &shown, below.is_empty()) else { return };
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound && !below.is_empty() => return,
            Err(error) => return self.unreadable(&shown, &error),
        };
        for entry in entries {
            match entry {
                Ok(entry) => match entry.file_name().into_string() {
                    Ok(file) => self.entry(&entry.path(), below, &file),
                    Err(odd) => {
                        let message = "the file's name is not UTF-8".to_owned();
                        self.flaws.push(flaw(&odd.to_string_lossy(), FlawKind::Unreadable, message));
                    }
                },
                Err(error) => self.unreadable(&shown, &error),
            }
        }
    }

    fn entry(&mut self, path: &Path, below: &str, file: &str) {
        let name = if below.is_empty() { file.to_owned() } else { format!("{below}/{file}") };
        if file.starts_with('.') {
            return;
        }
        // Links are followed: that is how configuration is mounted in many places. A loop of them ends here as an
        // error.
        let Some(path) = &self.vouched(path, &name, true) else { return };
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => return self.unreadable(&name, &error),
        };
        if metadata.is_dir() {
            if name != "cases" {
                let message =
                    "further directories are not read; put rules directly into the policy directory".to_owned();
                self.flaws.push(flaw(&name, FlawKind::Misplaced, message));
            }
            return;
        }
        if matches!(Part::of(&name), Part::Nothing) {
            return;
        }
        if !metadata.is_file() {
            let message = "this is not a file: a pipe, a socket or a device holds no rules".to_owned();
            self.flaws.push(flaw(&name, FlawKind::Unreadable, message));
            return;
        }
        self.content(path, name);
    }

    fn content(&mut self, path: &Path, name: String) {
        if self.files.len() >= MAX_FILES || self.bytes > MAX_SET_BYTES {
            let message =
                format!("a set has at most {MAX_FILES} files of together {} MiB", MAX_SET_BYTES / 1024 / 1024);
            if self.flaws.last().is_none_or(|last| last.message != message) {
                self.flaws.push(flaw(&name, FlawKind::TooLarge, message));
            }
            return;
        }
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes));
        match read {
            Ok(count) => {
                self.bytes += count;
                self.files.push(PolicyFile { name, bytes });
            }
            Err(error) => self.unreadable(&name, &error),
        }
    }

    /// The path to open instead of this one. A flaw where an agent could write it; also where it is not there and
    /// `must_be`.
    fn vouched(&mut self, path: &Path, name: &str, must_be: bool) -> Option<PathBuf> {
        let Some(custody) = self.custody else { return Some(path.to_owned()) };
        match custody.vouch(path) {
            Ok(Some(real)) => return Some(real),
            Ok(None) if !must_be => {}
            Ok(None) => self.unreadable(name, &ErrorKind::NotFound.into()),
            Err(CustodyError::Unreadable { source, .. }) => self.unreadable(name, &source),
            Err(error) => {
                let help = Some(error.hint().to_owned());
                self.flaws.push(Flaw { help, ..flaw(name, FlawKind::InReach, error.to_string()) });
            }
        }
        None
    }

    fn unreadable(&mut self, name: &str, error: &std::io::Error) {
        let message = match error.kind() {
            ErrorKind::NotFound => "it is not there, or vanished while the set was read".to_owned(),
            _ => format!("it cannot be read: {error}"),
        };
        self.flaws.push(flaw(name, FlawKind::Unreadable, message));
    }
}
