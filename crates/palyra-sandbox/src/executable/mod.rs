//! What would really run.
//!
//! A decision about `git` means nothing when `git` is a symlink to `bash`. [`resolve_executable`] follows a command to
//! the files that the kernel would execute: through the search path, symlinks, the shebang, and wrappers such as `env`
//! and `timeout` where they can be read; it recognises shells and interpreters on the way and refuses those that no
//! operator allowed. That is for people and rules: what a run cannot execute is gone from its file tree
//! ([`crate::hidden`]). The result carries the identity of each of these files and the command as the kernel would see
//! it, scripts handed to their interpreters; the runner refuses when one of them has changed since, and executes these
//! files whatever their names lead to by then.
//!
//! It only looks; it must never execute anything. It cannot judge what a compiled program in the workspace does: an
//! operator who wants that decided names `allowed_executables`.

mod content;
mod copies;
mod elf;
mod file;
mod inventory;
mod names;
mod opened;
mod resolver;
mod walk;
mod wrappers;

use crate::error::SandboxError;
use crate::explain::ProgramStep;
use crate::policy::SandboxProcessRunnerPolicy;
pub use file::FileIdentity;
#[cfg(not(windows))]
pub(crate) use inventory::{Installed, Inventory, inventory};
#[cfg(target_os = "linux")]
pub(crate) use opened::Opened;
use palyra_protocol::{Digest, DigestBuilder};
use resolver::Resolver;
use std::path::{Path, PathBuf};
pub(crate) use walk::walk;
pub(crate) use wrappers::commands;

/// A command that was looked at and may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedExecutable {
    /// The command with every script replaced by its interpreter's command line.
    command: Vec<String>,
    /// Every file that would run, in the order in which it was found. Never empty.
    first: ProgramFile,
    further: Vec<ProgramFile>,
}

/// One of the files that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramFile {
    /// The file itself: absolute, free of symlinks.
    pub(crate) path: PathBuf,
    /// The path by which it was found, symlinks and all: programs such as `cargo` look at the name they are called by.
    pub(crate) called: PathBuf,
    /// Which file it was when it was looked at.
    pub(crate) identity: FileIdentity,
    /// Where in the command it is named.
    pub(crate) word: usize,
    /// Whether it is read by an interpreter, not executed by the kernel.
    pub(crate) script: bool,
    /// Whether a process in the workspace could lead the name by which it is called elsewhere.
    pub(crate) replaceable: bool,
    /// Whether such a process could write the file itself, or move it away.
    pub(crate) writable: bool,
    /// What such a file holds; none of one that is too large to be read each time, which its identity stands for.
    pub(crate) sha256: Option<Digest>,
    /// What the program that starts it replaces in its words, so that nothing of it may be put there.
    pub(crate) replaced: Vec<String>,
    /// What it is a copy of, if of anything known.
    recognised: Option<String>,
    /// What it is to the command: `program`, `script`, `wrapper`, `interpreter python`.
    role: String,
}

/// What is known of a program's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramContent {
    /// What is at its path runs: no process of a run can change it.
    AsItIs,
    /// This runs, whatever is at its path by now.
    Digest(Digest),
    /// It was not read.
    Unknown,
}

impl ResolvedExecutable {
    /// The file that the command names: absolute, free of symlinks.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.first.path
    }

    /// The path by which it was found.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    pub(crate) fn called(&self) -> &Path {
        &self.first.called
    }

    /// Which file it was when it was looked at.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.first.identity
    }

    /// Every file that would run, in order: the program, its interpreter or the program that it wraps.
    pub fn programs(&self) -> impl Iterator<Item = &Path> {
        self.files().map(|file| file.path.as_path())
    }

    /// The same files, with all that is known of them.
    pub(crate) fn files(&self) -> impl Iterator<Item = &ProgramFile> {
        std::iter::once(&self.first).chain(&self.further)
    }

    /// What those of the files hold that a process in the workspace could rewrite; none where there is no such file.
    #[must_use]
    pub fn rewritable(&self) -> Option<Digest> {
        let mut files = self.files().filter(|file| file.writable).peekable();
        files.peek()?;
        let told = files.fold(DigestBuilder::new("palyra.programs.v1"), |told, file| {
            let told = told.field(file.path.as_os_str().as_encoded_bytes());
            let FileIdentity { device, inode, size, modified_ns, changed_ns } = file.identity;
            match &file.sha256 {
                Some(content) => told.field(b"content").field(content.as_bytes()),
                None => [i128::from(device), inode.into(), size.into(), modified_ns, changed_ns]
                    .iter()
                    .fold(told.field(b"identity"), |told, number| told.field(&number.to_be_bytes())),
            }
        });
        Some(told.finish())
    }

    /// The same files, each with the digest of what will run where a process in the workspace could rewrite the file
    /// meanwhile. [`ProgramContent::AsItIs`]: none could.
    #[must_use]
    pub fn contents(&self) -> Vec<(PathBuf, ProgramContent)> {
        let content = |file: &ProgramFile| match (file.writable, file.sha256) {
            (false, _) => ProgramContent::AsItIs,
            (true, Some(digest)) => ProgramContent::Digest(digest),
            (true, None) => ProgramContent::Unknown,
        };
        self.files().map(|file| (file.path.clone(), content(file))).collect()
    }

    /// The same files, each with what it is.
    #[must_use]
    pub fn chain(&self) -> Vec<ProgramStep> {
        self.files().map(|file| ProgramStep { path: file.path.clone(), role: file.role.clone() }).collect()
    }

    /// What the kernel is given: the command with scripts handed to their interpreters.
    #[must_use]
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Whether the kernel would hand it to an interpreter.
    #[must_use]
    pub fn is_script(&self) -> bool {
        self.first.script
    }
}

#[cfg(target_os = "linux")]
impl ProgramFile {
    /// Opens the file again; refuses when it is not the one that was looked at.
    pub(crate) fn open(&self) -> Result<Opened, SandboxError> {
        let opened = Opened::at(&self.path).map_err(|_| self.changed())?;
        if opened.identity() == self.identity { Ok(opened) } else { Err(self.changed()) }
    }

    /// Refuses a file, or a copy of it, that is not what was looked at after all: a file that was written to within one
    /// step of its file system's clock has kept its identity.
    pub(crate) fn prove(
        &self,
        policy: &SandboxProcessRunnerPolicy,
        content: &std::fs::File,
    ) -> Result<(), SandboxError> {
        let search_path = crate::environment::search_path(policy);
        let now = copies::recognise(content, self.identity, &search_path).map(|original| original.name);
        let is_program = content::is_program_file(content).map_err(|_| self.changed())?;
        let holds = match self.sha256 {
            Some(_) => opened::sha256(content).map_err(|_| self.changed())?,
            None => None,
        };
        if is_program && now == self.recognised && holds == self.sha256 { Ok(()) } else { Err(self.changed()) }
    }

    pub(crate) fn changed(&self) -> SandboxError {
        SandboxError::ExecutableChanged { path: self.path.clone() }
    }
}

/// Finds the program that `argv` would run from `working_directory`, and refuses what the policy does not allow.
///
/// # Errors
/// When there is no such program, or the policy does not allow it.
pub fn resolve_executable(
    policy: &SandboxProcessRunnerPolicy,
    argv: &[String],
    working_directory: &Path,
) -> Result<ResolvedExecutable, SandboxError> {
    crate::arguments::check_arguments(policy, argv, working_directory)?;
    Resolver::new(policy, working_directory).resolve(argv)
}

/// Tells which installed interpreters a policy allows.
#[cfg(not(windows))]
pub(crate) fn allowed_of(policy: &SandboxProcessRunnerPolicy) -> impl Fn(&Installed) -> bool {
    let entries: Vec<(&str, Option<PathBuf>)> = Resolver::new(policy, Path::new("/")).allowed_files().collect();
    move |program| {
        entries.iter().any(|(entry, leads_to)| {
            names::means_family(entry, program.family)
                || base_name(&program.path) == *entry
                || leads_to.as_deref() == Some(&*program.real)
        })
    }
}

fn base_name(path: &Path) -> &str {
    file::known_as(path)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
