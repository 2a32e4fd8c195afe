//! The private directory of a run: writable for its token, gone when the run is.

use super::file;
use super::token::RestrictedToken;
use crate::error::SandboxError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Exists as long as this value.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create(token: &RestrictedToken) -> Result<Self, SandboxError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let base = fs::canonicalize(std::env::temp_dir())
            .map_err(SandboxError::io("find the directory for temporary files"))?;
        // Everything for the system, the user and RESTRICTED; nothing inherited from above; low integrity may write.
        let user = token.user();
        let description = format!("D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;{user})(A;OICI;FA;;;RC)S:(ML;OICI;NW;;;LW)");
        for _ in 0..16 {
            let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("palyra-run-{}-{count}-{nanos:08x}", std::process::id()));
            match file::create_directory(&path, &description) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(SandboxError::Io { action: "create a private directory", source }),
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(SandboxError::Io { action: "create a private directory", source })
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed even so is left to the host's own cleaning.
        let _removed = fs::remove_dir_all(&self.0);
    }
}
