//! How programs are hidden from a run: read-only overlays over the directories that hold them, with nothing where they
//! were.
//!
//! Each overlay has two layers: a small one of our own that takes names away (a whiteout) or puts a program in their
//! place that says why, above the directory itself. It is part of a view ([`super::view`]), so that it is made once and
//! entered by every run of the same kind. What is gone there is gone for every process of the run, whatever starts it
//! and by whatever path: the directory that holds it is not reachable but through the overlay. Files with credentials
//! are covered by an empty one.
//!
//! The alternatives stand in where a host gives no overlays: in Tier C bubblewrap covers each file by itself, which
//! costs a mount each; in Tier B Landlock grants everything around them ([`super::landlock`]). Where none of them
//! works, nothing runs.

use super::plan::{MountStep, TreeAccess, c_string};
use super::stub_programs;
use super::tier_c::sealed;
use crate::error::SandboxError;
use crate::hidden_files::{Hidden, HiddenIn, HiddenProgram};
use crate::layout;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

/// Where the upper layers are made: a directory that is covered for a moment. Any will do that nothing hidden lies in.
const PLACES: &[&str] = &["/tmp", "/var", "/mnt", "/srv", "/opt", "/home", "/run"];

/// The steps that hide these programs, and these files.
pub(super) fn steps(hidden: &Hidden, files: &[PathBuf]) -> Result<Vec<MountStep>, SandboxError> {
    let directories = hidden.directories.iter().map(|inside| inside.directory.as_path());
    let Some(place) = place(directories.chain(files.iter().map(PathBuf::as_path))) else {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "no directory to prepare overlays in");
        return Err(SandboxError::LayerUnavailable { layer: "hidden_programs", source });
    };
    let options = c"mode=755,size=1m,nr_inodes=4096".to_owned();
    let mut steps = vec![MountStep::Tmpfs { target: named(place)?, options }];
    let table = std::fs::read("/proc/self/mountinfo").map_err(SandboxError::io("read the table of mounts"))?;
    for (n, inside) in hidden.directories.iter().enumerate() {
        let layer = place.join(n.to_string());
        steps.push(MountStep::Directory(named(&layer)?));
        for program in &inside.programs {
            steps.push(gone(program, &layer.join(&program.name))?);
        }
        let (options, target) = (layers(&layer, &inside.directory)?, named(&inside.directory)?);
        let (mut copy, mut attach) = (Vec::new(), Vec::new());
        for mounted in mounted_in(inside, &table) {
            let (target, tree) = (named(&mounted)?, Arc::new(AtomicI32::new(-1)));
            copy.push(MountStep::Copy { source: target.clone(), tree: Arc::clone(&tree) });
            attach.push(MountStep::AttachCopy { tree, target });
        }
        steps.extend(copy);
        steps.push(MountStep::Overlay { options, target, access: TreeAccess::ReadOnly });
        steps.extend(attach);
    }
    if !files.is_empty() {
        let empty = place.join("empty");
        steps.push(MountStep::File(named(&empty)?));
        for file in files {
            steps.push(MountStep::Cover { source: named(&empty)?, target: named(file)? });
        }
    }
    steps.push(MountStep::Detach(named(place)?));
    Ok(steps)
}

/// A directory of the host that holds none of these.
pub(super) fn place<'a>(targets: impl Iterator<Item = &'a Path> + Clone) -> Option<&'static Path> {
    let holds_none = |place: &&Path| !targets.clone().any(|target| target.starts_with(place));
    PLACES.iter().map(Path::new).filter(holds_none).find(|place| place.is_dir() && !place.is_symlink())
}

/// What the host has mounted in a directory, outermost only: a layer shows none of it. What is mounted on a hidden name
/// goes with it.
fn mounted_in(inside: &HiddenIn, table: &[u8]) -> Vec<PathBuf> {
    let mut mounted: Vec<PathBuf> = Vec::new();
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    for point in points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point)))) {
        let Ok(below) = point.strip_prefix(&inside.directory) else { continue };
        let is_hidden = || inside.programs.iter().any(|program| below.starts_with(&program.name));
        if !below.as_os_str().is_empty() && !is_hidden() && !mounted.iter().any(|outer| point.starts_with(outer)) {
            mounted.push(point);
        }
    }
    mounted
}

/// A path of the table of mounts, in which some signs are written as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        let sign = (*byte == b'\\').then(|| text.get(at + 1..at + 4).and_then(octal)).flatten();
        bytes.push(sign.unwrap_or(*byte));
        at += if sign.is_some() { 4 } else { 1 };
    }
    bytes
}

/// What stands where a program was.
fn gone(program: &HiddenProgram, path: &Path) -> Result<MountStep, SandboxError> {
    match stub_programs::refusal(program.family).filter(|_| program.is_shell()) {
        Some(content) => Ok(MountStep::Program { path: named(path)?, content }),
        None => Ok(MountStep::Whiteout(named(path)?)),
    }
}

/// Something that bubblewrap puts in the place of a hidden file.
#[derive(Debug)]
pub(super) struct Cover {
    pub(super) target: PathBuf,
    /// What is there instead; `None`: nothing that can be read or executed.
    pub(super) content: Option<OwnedFd>,
}

/// What covers each hidden file by itself, where there are no overlays.
pub(super) fn covers(hidden: &Hidden) -> Result<Vec<Cover>, SandboxError> {
    let mut covers = Vec::new();
    for (target, program) in hidden.program_files() {
        let refusal = stub_programs::refusal(program.family).filter(|_| program.is_shell());
        covers.push(Cover { target, content: refusal.map(|program| sealed(&program)).transpose()? });
    }
    for target in hidden.files.iter().filter(|file| layout::is_system_path(file)) {
        covers.push(Cover { target: target.clone(), content: Some(sealed(&[])?) });
    }
    Ok(covers)
}

/// The options of an overlay of two layers. `userxattr` is what an ordinary user may have; without `xino` a file keeps
/// its number.
fn layers(upper: &Path, directory: &Path) -> Result<CString, SandboxError> {
    let mut options = OsString::from("lowerdir=");
    options.push(upper);
    options.push(":");
    options.push(escaped(directory));
    options.push(",userxattr,xino=off");
    c_string(options, "the options of an overlay")
}

/// A path in the options of an overlay, where some signs mean something.
pub(super) fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::with_capacity(path.as_os_str().len());
    for byte in path.as_os_str().as_bytes() {
        if b":,\\".contains(byte) {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    OsString::from_vec(bytes)
}

fn named(path: &Path) -> Result<CString, SandboxError> {
    c_string(path, "a hidden path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_holds_nothing_that_is_hidden() {
        let at = |targets: &[&str]| place(targets.iter().map(Path::new)).map(|place| place.display().to_string());
        assert_eq!(at(&["/usr/bin"]).as_deref(), Some("/tmp"));
        assert_ne!(at(&["/tmp/x/bin"]).as_deref(), Some("/tmp"));
        assert_eq!(at(PLACES), None);
    }

    #[test]
    fn what_the_host_mounted_in_a_directory_is_found() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:1 /x /usr/bin rw - ext4 x rw\n\
                      24 23 8:1 /y /usr/bin/a\\040b rw - ext4 x rw\n25 24 8:1 /y /usr/bin/a\\040b/c rw - ext4 x rw\n\
                      26 23 8:1 /z /usr/bin/sh rw - ext4 x rw\n27 22 8:1 /z /usr/binary/x rw - ext4 x rw\n";
        let programs = vec![HiddenProgram { name: "sh".into(), family: "sh", is_link: false }];
        let inside = HiddenIn { directory: "/usr/bin".into(), programs };
        assert_eq!(mounted_in(&inside, table), [PathBuf::from("/usr/bin/a b")]);
    }

    #[test]
    fn signs_that_mean_something_are_escaped() {
        assert_eq!(escaped(Path::new("/a:b,c\\d")), "/a\\:b\\,c\\\\d");
    }
}
