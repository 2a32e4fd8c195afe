//! Paths as the kernel knows them.
//!
//! The profile is compared with what the kernel calls a file: `/private/tmp`, the case that the name was created with,
//! no `/System/Volumes/Data`. A rule about any other spelling matches nothing, which for a protected path would be
//! fatal; so the kernel itself is asked.

use crate::error::SandboxError;
use crate::hidden_files::Hidden;
use crate::roots::Roots;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel's name of an existing file or directory.
pub(super) fn of_kernel(path: &Path) -> io::Result<PathBuf> {
    // For watching only: works without the right to read it.
    let flags = OFlags::from_bits_retain(libc::O_EVTONLY as _) | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let name = rustix::fs::getpath(&opened)?;
    Ok(PathBuf::from(OsStr::from_bytes(name.as_bytes())))
}

/// What is hidden, under the kernel's names. One that went away meanwhile needs no rule.
pub(super) fn hidden(hidden: &Hidden) -> Result<Vec<PathBuf>, SandboxError> {
    let mut named = Vec::new();
    for path in hidden.program_files().map(|(path, _)| path).chain(hidden.files.iter().cloned()) {
        match of_kernel(&path) {
            Ok(name) => named.push(name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(SandboxError::LayerUnavailable { layer: "hidden_programs", source }),
        }
    }
    Ok(named)
}

/// The same roots under the kernel's names.
pub(super) fn roots(roots: &Roots) -> Result<Roots, SandboxError> {
    let name = |path: &PathBuf| {
        of_kernel(path).map_err(|source| SandboxError::WorkspaceUnavailable { path: path.clone(), source })
    };
    let named = Roots {
        workspace: name(&roots.workspace)?,
        workspace_access: roots.workspace_access,
        read: roots.read.iter().map(name).collect::<Result<_, _>>()?,
        write: roots.write.iter().map(name).collect::<Result<_, _>>()?,
        protected: roots.protected.iter().map(|path| protected(path)).collect::<Result<_, _>>()?,
    };
    // Once more: names that differed in case may turn out to be one.
    named.check()?;
    Ok(named)
}

/// A protected path; one that is not there yet keeps its name below the nearest parent that is. Anything else that goes
/// wrong is a refusal: a rule under a wrong name protects nothing.
fn protected(path: &Path) -> Result<PathBuf, SandboxError> {
    match of_kernel(path) {
        Ok(named) => Ok(named),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(protected(parent)?.join(name)),
            _ => Ok(path.to_owned()),
        },
        Err(source) => Err(SandboxError::LayerUnavailable { layer: "protected_paths", source }),
    }
}
