//! What the daemon was last started with, kept in its state directory.
//!
//! A daemon is also started by whoever needs it: an MCP client after a reboot, in an environment of its own. Such a
//! start must not be a way around the operator's configuration, so it repeats the last one. The daemon writes this once
//! it serves; whoever starts it reads it.

use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The file.
const FILE: &str = "last-start.json";

/// What a start was given, or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastStart {
    /// The configuration file that was read; none when there was none.
    pub config: Option<PathBuf>,
    /// The directory that tools worked in.
    pub workspace: PathBuf,
    /// The workspace was named, and not merely where the daemon was started.
    pub workspace_given: bool,
    /// The port that was asked for.
    pub http_port: Option<u16>,
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum LastStartError {
    /// The file cannot be read or written.
    #[error("`{}` cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("`{}` does not say what the daemon was last started with", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl LastStart {
    /// The last start of the daemon in this state directory; nothing if there was none.
    ///
    /// # Errors
    /// There was one, and what it was given cannot be told.
    pub fn read(state_dir: &Path) -> Result<Option<Self>, LastStartError> {
        let path = state_dir.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(start) => Ok(Some(start)),
                Err(source) => Err(LastStartError::Malformed { path, source }),
            },
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LastStartError::Io { path, source }),
        }
    }

    /// Remembers this start; a crash leaves the one before or this one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, state_dir: &Path) -> Result<(), LastStartError> {
        let path = state_dir.join(FILE);
        let fresh = state_dir.join(format!("{FILE}.new"));
        let written = serde_json::to_vec_pretty(self).map_err(std::io::Error::other).and_then(|bytes| {
            let mut file = std::fs::File::create(&fresh)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)
        });
        written.map_err(|source| LastStartError::Io { path, source })
    }
}
