//! Tier C: the command line of bubblewrap, and whether it is there.
//!
//! [`arguments`] is pure: the same view of the host gives the same words. They are handed over in a sealed file, not on
//! the command line, where every user of the machine could read the environment in them. Nothing here may leave a layer
//! out because an older bubblewrap does not know it: that is a refusal.

use super::grants::{Access, Roots};
use super::guards::{Guard, Hold};
use super::parts::Part;
use super::walls::Cover;
use crate::error::SandboxError;
use crate::executable::FileIdentity;
use crate::layout;
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The oldest version that knows every option used here (`--disable-userns`, `--size`, `--perms`).
const OLDEST: (u32, u32) = (0, 8);
const CANDIDATES: &[&str] =
    &["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap"];
/// The private `/tmp` and `/dev/shm` hold no more than this, nor more than the memory limit.
const TEMPORARY_BYTES: u64 = 512 << 20;
/// A file of `/etc` larger than this is left out.
const MOST_COPIED_BYTES: u64 = 1 << 20;

/// The file that is written last.
pub(super) const GATE_FILE: &str = "/etc/group";

/// An installed bubblewrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bubblewrap {
    pub(super) path: PathBuf,
    pub(super) version: (u32, u32),
    pub(super) set_uid: bool,
}

pub(super) const INSTALL: &str =
    "apt-get install bubblewrap   (Fedora: dnf install bubblewrap, Arch: pacman -S bubblewrap)";

/// Finds bubblewrap. Its version is asked once per file, not per call.
pub(super) fn find() -> Result<Bubblewrap, SandboxError> {
    static KNOWN: Mutex<Option<(FileIdentity, Bubblewrap)>> = Mutex::new(None);
    let (path, metadata) = CANDIDATES
        .iter()
        .find_map(|path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| (PathBuf::from(path), m)))
        .ok_or_else(|| SandboxError::BackendMissing { backend: "bwrap", fix: INSTALL.into() })?;
    let identity = FileIdentity::of(&metadata);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, found)) = known.as_ref()
        && *of == identity
        && found.path == path
    {
        return Ok(found.clone());
    }
    let version = ask_version(&path)?;
    let set_uid = std::os::unix::fs::MetadataExt::mode(&metadata) & 0o4000 != 0;
    let found = Bubblewrap { path, version, set_uid };
    if version < OLDEST {
        return Err(SandboxError::BackendBlocked {
            backend: "bwrap",
            detail: format!("version {}.{} is too old", version.0, version.1),
            fix: format!("install bubblewrap {}.{} or newer", OLDEST.0, OLDEST.1),
        });
    }
    *known = Some((identity, found.clone()));
    Ok(found)
}

fn ask_version(path: &Path) -> Result<(u32, u32), SandboxError> {
    let output = Command::new(path)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SandboxError::StartFailed { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).ok_or_else(|| SandboxError::BackendBlocked {
        backend: "bwrap",
        detail: format!("it did not tell its version: `{}`", text.trim()),
        fix: INSTALL.into(),
    })
}

/// `bubblewrap 0.8.0` → (0, 8).
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Descriptors that bubblewrap reads from and writes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptors<'a> {
    pub(super) seccomp: RawFd,
    pub(super) status: RawFd,
    /// The file that it waits for when everything is built.
    pub(super) gate: Option<RawFd>,
    /// Small files that are copied in, and where to.
    pub(super) files: &'a [(RawFd, &'static str)],
    /// Programs and scripts as they were checked, and where to.
    pub(super) copies: &'a [(RawFd, &'a Path)],
    /// Git's settings for the home directory.
    pub(super) git: Option<RawFd>,
    /// Files that only this run has, where to, and their permissions.
    pub(super) private: &'a [(RawFd, &'a Path, &'static str)],
}

/// What the words are made from.
#[derive(Debug)]
pub(super) struct Blueprint<'a> {
    pub(super) policy: &'a SandboxProcessRunnerPolicy,
    pub(super) roots: &'a Roots,
    /// Those of the read roots whose changes go to a layer of the run's own.
    pub(super) filled: &'a [PathBuf],
    /// The home directory.
    pub(super) home: &'a Path,
    /// Programs that are too large to be copied, and where to.
    pub(super) binds: &'a [(PathBuf, PathBuf)],
    /// The parts of the workspace that it sees; `None`: all of it.
    pub(super) parts: Option<&'a [Part]>,
    /// What stands in the place of hidden files that are still there.
    pub(super) covers: &'a [Cover],
    pub(super) working_directory: &'a Path,
    pub(super) environment: &'a BTreeMap<OsString, OsString>,
    pub(super) descriptors: Descriptors<'a>,
}

/// Collects words.
struct Words(Vec<OsString>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&OsStr; N]) {
        self.0.extend(words.into_iter().map(OsStr::to_owned));
    }

    fn flags(&mut self, line: &str) {
        self.0.extend(line.split(' ').map(OsString::from));
    }

    fn bind(&mut self, option: &str, source: &Path, target: &Path) {
        self.add([option.as_ref(), source.as_ref(), target.as_ref()]);
    }
}

/// Everything but the command itself.
pub(super) fn arguments(blueprint: &Blueprint<'_>, guarded: &[Guard]) -> Vec<OsString> {
    let mut words = Words(Vec::with_capacity(256));
    // User explicitly: `--unshare-all` alone only tries.
    words.flags(
        "--unshare-user --unshare-all --disable-userns --die-with-parent --new-session --cap-drop ALL --clearenv",
    );
    if shares_network(blueprint.policy.egress) {
        words.flags("--share-net");
    }
    words.flags("--hostname sandbox");
    system(&mut words, blueprint.roots);
    own_file_systems(&mut words, blueprint);
    workspace(&mut words, blueprint, guarded);
    // After every mount: it reads the file to its end, which comes when the daemon has seen that all is well.
    if let Some(gate) = blueprint.descriptors.gate {
        words.flags(&format!("--perms 0444 --file {gate} {GATE_FILE}"));
    }
    // Last: the root of the new tree was writable so far.
    words.flags("--remount-ro /");
    words.add(["--chdir".as_ref(), blueprint.working_directory.as_ref()]);
    for (name, value) in blueprint.environment {
        words.add(["--setenv".as_ref(), name, value]);
    }
    words.flags(&format!(
        "--seccomp {} --json-status-fd {}",
        blueprint.descriptors.seccomp, blueprint.descriptors.status
    ));
    words.0
}

/// Whether a mode leaves the host's network in place.
pub(super) fn shares_network(egress: EgressEnforcementMode) -> bool {
    match egress {
        EgressEnforcementMode::None | EgressEnforcementMode::Preflight => true,
        EgressEnforcementMode::Strict => false,
    }
}

/// The read-only system: what the layout lists and the host has. Nothing that is or holds a protected path.
fn system(words: &mut Words, roots: &Roots) {
    let exposes = |path: &Path| roots.protected.iter().any(|protected| path.starts_with(protected));
    for directory in layout::SYSTEM_DIRECTORIES.iter().map(Path::new).filter(|path| !exposes(path)) {
        match fs::read_link(directory) {
            Ok(target) => words.add(["--symlink".as_ref(), target.as_ref(), directory.as_ref()]),
            Err(_) if directory.is_dir() => words.bind("--ro-bind", directory, directory),
            Err(_) => {}
        }
    }
    for entry in layout::ETC_DIRECTORIES.iter().map(Path::new).filter(|path| path.is_dir() && !exposes(path)) {
        words.bind("--ro-bind", entry, entry);
    }
}

/// The files of `/etc` that are copied in. The daemon opens them, so what it copies is what it chose: nothing that is
/// not open to every user of the machine, since the daemon may be root and the copies are open to the run.
pub(super) fn etc_files(roots: &Roots) -> Vec<(OwnedFd, &'static str)> {
    let mut files = Vec::new();
    for name in layout::ETC_FILES {
        let Ok(file) = fs::File::open(name) else { continue };
        let open_to_all = |metadata: &fs::Metadata| std::os::unix::fs::MetadataExt::mode(metadata) & 0o004 != 0;
        let small = |metadata: &fs::Metadata| metadata.is_file() && metadata.len() <= MOST_COPIED_BYTES;
        let suits = file.metadata().is_ok_and(|metadata| small(&metadata) && open_to_all(&metadata));
        let exposes = || fs::canonicalize(name).is_ok_and(|real| roots.protected.iter().any(|p| real.starts_with(p)));
        if suits && !exposes() {
            files.push((file.into(), *name));
        }
    }
    files
}

fn own_file_systems(words: &mut Words, blueprint: &Blueprint<'_>) {
    let size = TEMPORARY_BYTES.min(blueprint.policy.memory_limit_bytes).max(1 << 20);
    for (fd, target) in blueprint.descriptors.files {
        words.flags(&format!("--perms 0444 --file {fd} {target}"));
    }
    // The host's own table of switches, read-only: under some kernels a process in here could otherwise write it.
    words.flags("--proc /proc --ro-bind /proc/sys /proc/sys --dev /dev");
    words.flags(&format!("--perms 1777 --size {size} --tmpfs /dev/shm --perms 1777 --size {size} --tmpfs /tmp"));
    if blueprint.policy.home.path.is_some() {
        words.flags(&format!("--perms 0755 --size {size} --tmpfs"));
        words.add([blueprint.home.as_ref()]);
    }
    if let Some(git) = blueprint.descriptors.git {
        words.flags(&format!("--perms 0644 --file {git}"));
        words.add([blueprint.home.join(".gitconfig").as_ref()]);
    }
    // What remains writable in `/dev` would be memory that nothing limits.
    words.flags("--remount-ro /dev");
}

fn workspace(words: &mut Words, blueprint: &Blueprint<'_>, guarded: &[Guard]) {
    let roots = blueprint.roots;
    let mut binds: Vec<(&Path, &str)> = Vec::new();
    let read_as = |root: &PathBuf| if blueprint.filled.contains(root) { "--bind" } else { "--ro-bind" };
    binds.extend(roots.read.iter().map(|root| (root.as_path(), read_as(root))));
    binds.extend(roots.write.iter().map(|root| (root.as_path(), "--bind")));
    binds.push((&roots.workspace, if roots.workspace_access == Access::Write { "--bind" } else { "--ro-bind" }));
    // Outer before inner, so that an inner root is bound on top.
    binds.sort();
    for (root, option) in binds {
        match blueprint.parts.filter(|_| *root == *roots.workspace) {
            Some(parts) => parts_of(words, root, parts),
            None => words.bind(option, root, root),
        }
    }
    for Cover { target, content } in blueprint.covers {
        match content {
            Some(content) => {
                words.flags(&format!("--perms 0555 --ro-bind-data {}", content.as_raw_fd()));
                words.add([target.as_ref()]);
            }
            None => words.bind("--ro-bind", Path::new("/dev/null"), target),
        }
    }
    for guard in guarded {
        let option = match guard.hold {
            Hold::Pinned => "--bind",
            Hold::ReadOnly => "--ro-bind",
        };
        words.bind(option, &guard.path, &guard.path);
    }
    // A program that lies where others may write is not executed there but from a copy that nobody can change or move;
    // a script is covered by its copy.
    for (source, inside) in blueprint.binds {
        words.bind("--ro-bind", source, inside);
    }
    for (content, inside) in blueprint.descriptors.copies {
        words.flags(&format!("--perms 0555 --ro-bind-data {content}"));
        words.add([inside.as_ref()]);
    }
    for (content, inside, mode) in blueprint.descriptors.private {
        words.flags(&format!("--perms {mode} --ro-bind-data {content}"));
        words.add([inside.as_ref()]);
    }
    let shown = |path: &Path| roots.contain(path) || layout::is_system_path(path);
    for protected in roots.protected.iter().filter(|path| shown(path)) {
        if protected.is_dir() {
            words.add(["--perms".as_ref(), "0000".as_ref(), "--size".as_ref(), "4096".as_ref()]);
            words.add(["--tmpfs".as_ref(), protected.as_ref()]);
            words.add(["--remount-ro".as_ref(), protected.as_ref()]);
        } else if protected.exists() {
            words.bind("--ro-bind", Path::new("/dev/null"), protected);
        }
    }
}

/// The workspace with nothing in it but these parts. What is not there is left out; what was bound is proven before the
/// command begins.
fn parts_of(words: &mut Words, workspace: &Path, parts: &[Part]) {
    words.flags("--perms 0755 --size 65536 --tmpfs");
    words.add([workspace.as_ref()]);
    for part in parts {
        let path = part.path_in(workspace);
        words.bind(if part.is_writable { "--bind-try" } else { "--ro-bind-try" }, &path, &path);
    }
    // Only what surrounds the parts, unless one of them is all of it.
    if parts.iter().all(|part| part.path_in(workspace) != workspace) {
        words.add(["--remount-ro".as_ref(), workspace.as_ref()]);
    }
}

/// A user table with one line, so that programs that ask who they are get an answer and learn no other name.
pub(super) fn passwd(uid: u32, gid: u32, home: &Path) -> (String, String) {
    let home = home.display();
    let users = format!(
        "sandbox:x:{uid}:{gid}:sandbox:{home}:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    (users, format!("sandbox:x:{gid}:\nnogroup:x:65534:\n"))
}

/// What bubblewrap says about the command, in `--json-status-fd`: the exit code is there only if the command was
/// started.
pub(super) fn reported_exit(status: &str) -> Option<i32> {
    let after = status.split("\"exit-code\"").nth(1)?;
    let digits: String = after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests;
