//! How much a run has written so far: counted while it runs, so that it cannot fill the disk before its end is looked at.
//!
//! The count is approximate: the run goes on writing meanwhile, and a file that it has opened and removed is not seen.
//! What counts is counted exactly when the run has ended ([`super::scan`]).

use super::collect::Limits;
use super::error::{EffectError, at};
use super::store::View;
use super::sys::{kind_of, look, names, open_dir};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FileType;
use rustix::io::Errno;

/// What is in the upper layer of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
}

impl Usage {
    /// The error that the run ends with, if this is more than it may write.
    #[must_use]
    pub fn beyond(&self, limits: Limits) -> Option<EffectError> {
        if self.bytes > limits.max_bytes {
            return Some(EffectError::TooManyBytes { limit: limits.max_bytes });
        }
        (self.files > limits.max_files).then_some(EffectError::TooManyFiles { limit: limits.max_files })
    }
}

impl View {
    /// Counts what the run has written so far; stops counting when it is more than the limits.
    ///
    /// # Errors
    /// The host failed.
    pub fn usage(&self, limits: Limits) -> Result<Usage, EffectError> {
        let upper = open_dir(self.directory().as_fd(), b"upper").map_err(at(b"upper"))?;
        let mut usage = Usage::default();
        count(&upper, limits, &mut usage)?;
        Ok(usage)
    }
}

fn count(directory: &OwnedFd, limits: Limits, usage: &mut Usage) -> Result<(), EffectError> {
    for name in names(directory, b"the view")? {
        let Some(stat) = look(directory.as_fd(), name.to_bytes())? else { continue };
        usage.files += 1;
        match kind_of(&stat) {
            FileType::RegularFile => {
                usage.bytes = usage.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
            }
            FileType::Directory => match open_dir(directory.as_fd(), name.to_bytes()) {
                Ok(below) => count(&below, limits, usage)?,
                // The run removed it, or closed it: it is counted when the run has ended.
                Err(Errno::NOENT | Errno::ACCESS | Errno::LOOP | Errno::NOTDIR) => {}
                Err(errno) => return Err(EffectError::at(name.to_bytes(), errno)),
            },
            _ => {}
        }
        if usage.beyond(limits).is_some() {
            return Ok(());
        }
    }
    Ok(())
}
