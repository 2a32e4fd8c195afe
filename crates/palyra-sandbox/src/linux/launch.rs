//! What is executed: the files that were checked, whatever their names lead to by now.
//!
//! A command names its programs, and the kernel, a wrapper or bubblewrap would look these names up again. In the
//! system's directories that is the same file as before. In a workspace it is not: another run may have put a link or a
//! directory in its place a moment ago. So every name that somebody in the workspace could lead elsewhere is replaced
//! by one that nobody can: a copy of the checked file, sealed, in a place outside every root (Tier C) or behind a
//! descriptor (Tier B); or the file's real path, where that lies in the system. The first program of a Tier B run is
//! the file itself, executed by its descriptor, under a [`lease`] that keeps writers away until then.
//!
//! A program that gets another path still hears the name it was called by: a small program of our own ([`super::stub`])
//! passes it on, which bubblewrap cannot; Python finds its virtual environment by it.
//!
//! A script is different: its interpreter opens it by name. The interpreter is chosen here and not by the kernel, so
//! that whatever is put in the script's place is read by that interpreter and never executed; in Tier C its name leads
//! to a copy as well.

use super::stub_programs;
use super::tier_c::sealed;
use super::write_lease;
use crate::error::SandboxError;
use crate::executable::{Opened, ProgramFile, ResolvedExecutable};
use crate::policy::SandboxProcessRunnerPolicy;
use palyra_protocol::Digest;
use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags, StatVfsMountFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Larger programs are not copied but held by their descriptor or mount.
const MOST_COPIED_BYTES: u64 = 64 << 20;
/// Larger scripts are bound, not copied.
const MOST_SCRIPT_BYTES: u64 = 1 << 20;
/// Where copies lie in Tier C. No root can be the root directory itself, so it lies in none.
const COPIES: &str = "/.palyra";
/// What starts them under their names.
const STARTER: &str = "/.palyra/as";

/// The words of a command, with programs that nobody can exchange.
#[derive(Debug)]
pub(super) struct Launch {
    words: Vec<OsString>,
    /// Put in at the end, so that places stay what they were found to be.
    stand_ins: Vec<(usize, Vec<OsString>)>,
    /// Where the program is that starts others under their names.
    starter: Option<PathBuf>,
}

impl Launch {
    fn of(executable: &ResolvedExecutable) -> Self {
        let words = executable.command().iter().map(OsString::from).collect();
        Self { words, stand_ins: Vec::new(), starter: None }
    }

    /// Lets a word name another path, and the program there hear the word.
    fn stand_in(&mut self, file: &ProgramFile, path: &Path) -> Result<(), SandboxError> {
        let called = self.words.get(file.word).cloned().unwrap_or_default();
        let words: Vec<OsString> = match &self.starter {
            Some(starter) if path != Path::new(&called) => vec![starter.into(), path.into(), called],
            _ => vec![path.into()],
        };
        let is_changed = |word: &OsString| file.replaced.iter().any(|text| word.to_string_lossy().contains(text));
        if words.iter().any(is_changed) {
            let (name, reason) =
                (file.path.display().to_string(), "its words would be changed by what starts it".into());
            return Err(SandboxError::WrapperRefused { name, reason });
        }
        self.stand_ins.push((file.word, words));
        Ok(())
    }

    fn finish(mut self) -> Vec<OsString> {
        self.stand_ins.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, words) in self.stand_ins {
            self.words.splice(at..=at, words);
        }
        self.words
    }
}

/// The program that starts others under their names; `None` on a processor that it is not written for.
fn starter() -> Result<Option<(OwnedFd, u64)>, SandboxError> {
    let Some(program) = stub_programs::execute_as() else { return Ok(None) };
    let fault = |e: rustix::io::Errno| SandboxError::Io { action: "prepare a program", source: e.into() };
    let memory = executable_memory().map_err(fault)?;
    rustix::io::write(&memory, &program).map_err(fault)?;
    close_to_writing(&memory).map_err(fault)?;
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0)).map_err(fault)?;
    Ok(Some((memory, program.len() as u64)))
}

/// What Tier B executes.
#[derive(Debug)]
pub(super) struct ByDescriptor {
    /// The first program.
    pub(super) program: OwnedFd,
    /// Where it was found.
    pub(super) path: PathBuf,
    pub(super) argv: Vec<OsString>,
    /// What further programs are executed from.
    pub(super) inherited: Vec<OwnedFd>,
}

/// Opens everything that Tier B executes.
pub(super) fn by_descriptor(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
) -> Result<ByDescriptor, SandboxError> {
    let mut launch = Launch::of(executable);
    let mut program = None;
    let mut inherited = Vec::new();
    if executable.files().any(|file| file.word > 0 && !file.script && file.replaceable)
        && let Some((program, _)) = starter()?
    {
        launch.starter = Some(format!("/proc/self/fd/{}", program.as_raw_fd()).into());
        inherited.push(program);
    }
    for file in executable.files() {
        let opened = file.open()?;
        if file.script {
            continue;
        }
        if file.word == 0 {
            let held = if file.writable { leased(policy, file, opened)? } else { opened.into_file().into() };
            program = Some((held, file.path.clone()));
        } else if file.replaceable && file.writable {
            let content = copied_or_held(policy, file, opened)?;
            launch.stand_in(file, Path::new(&format!("/proc/self/fd/{}", content.as_raw_fd())))?;
            inherited.push(content);
        } else if file.replaceable {
            launch.stand_in(file, &file.path)?;
        }
    }
    let (program, path) = program.ok_or(SandboxError::EmptyCommand)?;
    Ok(ByDescriptor { program, path, argv: launch.finish(), inherited })
}

/// Whether a descriptor is one of our copies, and no file that a path leads to.
pub(super) fn is_copy(program: &OwnedFd) -> bool {
    rustix::fs::fcntl_get_seals(program).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

/// The file itself, kept from writers until it is executed; a copy where they cannot be kept away.
fn leased(policy: &SandboxProcessRunnerPolicy, file: &ProgramFile, opened: Opened) -> Result<OwnedFd, SandboxError> {
    match write_lease::take(opened.file()) {
        Ok(()) if opened.is_unchanged() => {
            file.prove(policy, opened.file())?;
            Ok(opened.into_file().into())
        }
        Ok(()) => Err(file.changed()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(file.changed()),
        Err(_) => copied_or_held(policy, file, opened),
    }
}

/// A copy; of a program that is too large for one, the file itself.
fn copied_or_held(
    policy: &SandboxProcessRunnerPolicy,
    file: &ProgramFile,
    opened: Opened,
) -> Result<OwnedFd, SandboxError> {
    if file.identity.size <= MOST_COPIED_BYTES {
        return copy(policy, file, &opened);
    }
    file.prove(policy, opened.file())?;
    Ok(opened.into_file().into())
}

/// What Tier C executes, and what it has to find in its tree.
#[derive(Debug)]
pub(super) struct ByPath {
    pub(super) argv: Vec<OsString>,
    /// What is put into the tree: a descriptor's content at a path.
    pub(super) copies: Vec<(OwnedFd, PathBuf)>,
    /// What is bound into it: a file at a path.
    pub(super) binds: Vec<(PathBuf, PathBuf)>,
    pub(super) proofs: Vec<Proof>,
}

/// What a path inside must be when the tree is built: read-only, and this.
#[derive(Debug)]
pub(super) struct Proof {
    path: PathBuf,
    expect: Expect,
}

#[derive(Debug)]
enum Expect {
    /// A file of this length: in a place of our own.
    Length(u64),
    /// This very text: in a place that others can reach.
    Text(Vec<u8>),
    /// This very file.
    File(u64, u64),
}

/// Prepares everything that Tier C executes.
pub(super) fn by_path(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
) -> Result<ByPath, SandboxError> {
    let mut launch = Launch::of(executable);
    let mut by_path = ByPath { argv: Vec::new(), copies: Vec::new(), binds: Vec::new(), proofs: Vec::new() };
    if executable.files().any(|file| !file.script && file.replaceable)
        && let Some((program, length)) = starter()?
    {
        launch.starter = Some(STARTER.into());
        by_path.copies.push((program, STARTER.into()));
        by_path.proofs.push(Proof { path: STARTER.into(), expect: Expect::Length(length) });
    }
    for (n, file) in executable.files().enumerate() {
        let opened = file.open()?;
        if file.script {
            if file.writable {
                by_path.script(file, &opened)?;
            }
        } else if file.replaceable && file.writable {
            let inside = Path::new(COPIES).join(n.to_string()).join(name_of(&launch, file));
            by_path.program(policy, file, &opened, &inside)?;
            launch.stand_in(file, &inside)?;
        } else if file.replaceable {
            launch.stand_in(file, &file.path)?;
        } else if file.word == 0
            && let Some(first) = launch.words.first_mut()
        {
            // Bubblewrap has no directory to find a relative name in, and its search path is not the command's.
            *first = file.called.clone().into();
        }
    }
    by_path.argv = launch.finish();
    Ok(by_path)
}

/// The name that a program is called by: some do different things under different names.
fn name_of(launch: &Launch, file: &ProgramFile) -> OsString {
    let called = launch.words.get(file.word).and_then(|word| Path::new(word).file_name());
    called.or(file.path.file_name()).unwrap_or(OsStr::new("program")).to_owned()
}

impl ByPath {
    fn program(
        &mut self,
        policy: &SandboxProcessRunnerPolicy,
        file: &ProgramFile,
        opened: &Opened,
        inside: &Path,
    ) -> Result<(), SandboxError> {
        if file.identity.size > MOST_COPIED_BYTES {
            file.prove(policy, opened.file())?;
            self.bind(file, inside);
            return Ok(());
        }
        self.copies.push((copy(policy, file, opened)?, inside.to_owned()));
        self.proofs.push(Proof { path: inside.to_owned(), expect: Expect::Length(file.identity.size) });
        Ok(())
    }

    fn script(&mut self, file: &ProgramFile, opened: &Opened) -> Result<(), SandboxError> {
        if file.identity.size > MOST_SCRIPT_BYTES {
            self.bind(file, &file.path);
            return Ok(());
        }
        let mut text = Vec::new();
        let mut reader = opened.file();
        reader.read_to_end(&mut text).map_err(SandboxError::io("read the script"))?;
        let is_same = file.sha256.is_none_or(|sha256| sha256 == Digest::of(&text));
        if !is_same || !opened.is_unchanged() || text.len() as u64 != file.identity.size {
            return Err(file.changed());
        }
        self.copies.push((sealed(&text)?, file.path.clone()));
        self.proofs.push(Proof { path: file.path.clone(), expect: Expect::Text(text) });
        Ok(())
    }

    fn bind(&mut self, file: &ProgramFile, inside: &Path) {
        self.binds.push((file.path.clone(), inside.to_owned()));
        let expect = Expect::File(file.identity.device, file.identity.inode);
        self.proofs.push(Proof { path: inside.to_owned(), expect });
    }
}

/// A copy of a program in memory that nobody can write to, not even we; proven to be what was looked at.
fn copy(policy: &SandboxProcessRunnerPolicy, file: &ProgramFile, opened: &Opened) -> Result<OwnedFd, SandboxError> {
    let fault = |e: rustix::io::Errno| SandboxError::Io { action: "copy the program", source: e.into() };
    let memory = executable_memory().map_err(fault)?;
    let mut offset = 0;
    while offset < file.identity.size {
        let left = usize::try_from(file.identity.size - offset).unwrap_or(usize::MAX);
        if rustix::fs::sendfile(&memory, opened.file(), Some(&mut offset), left).map_err(fault)? == 0 {
            return Err(file.changed());
        }
    }
    close_to_writing(&memory).map_err(fault)?;
    let memory = File::from(memory);
    file.prove(policy, &memory)?;
    if !opened.is_unchanged() {
        return Err(file.changed());
    }
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(0)).map_err(fault)?;
    Ok(memory.into())
}

/// A file in memory that can be executed.
fn executable_memory() -> Result<OwnedFd, rustix::io::Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels do not know the flag, and need none.
    rustix::fs::memfd_create("program", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("program", flags))
}

fn close_to_writing(memory: &OwnedFd) -> Result<(), rustix::io::Errno> {
    rustix::fs::fchmod(memory, Mode::from_raw_mode(0o555))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(memory, seals)
}

/// Looks at what bubblewrap's process `pid` has built and not yet moved into.
pub(super) fn prove(proofs: &[Proof], pid: i32) -> Result<(), SandboxError> {
    if proofs.is_empty() {
        return Ok(());
    }
    prove_below(proofs, &format!("/proc/{pid}/root/newroot"))
}

fn prove_below(proofs: &[Proof], root: &str) -> Result<(), SandboxError> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| SandboxError::Io { action: "look into the sandbox", source: e.into() })?;
    match proofs.iter().find(|proof| !holds(proof, &root).unwrap_or(false)) {
        None => Ok(()),
        Some(proof) => Err(SandboxError::ExecutableChanged { path: proof.path.clone() }),
    }
}

fn holds(proof: &Proof, root: &OwnedFd) -> io::Result<bool> {
    let inside = proof.path.strip_prefix("/").unwrap_or(&proof.path);
    let plain = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let reads = matches!(proof.expect, Expect::Text(_));
    let access = if reads { OFlags::RDONLY | OFlags::NONBLOCK } else { OFlags::PATH };
    let fd = rustix::fs::openat2(root, inside, access | OFlags::CLOEXEC, Mode::empty(), plain)?;
    let stat = rustix::fs::fstat(&fd)?;
    let read_only = rustix::fs::fstatvfs(&fd)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    let is_meant = match &proof.expect {
        Expect::Length(length) => u64::try_from(stat.st_size).is_ok_and(|size| size == *length),
        Expect::File(device, inode) => (stat.st_dev, stat.st_ino) == (*device, *inode),
        Expect::Text(text) => {
            let mut found = Vec::new();
            File::from(fd).take(text.len() as u64 + 1).read_to_end(&mut found)?;
            found == *text
        }
    };
    Ok(is_meant && read_only)
}
