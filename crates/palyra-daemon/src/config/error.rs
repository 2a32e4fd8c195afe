//! Why a configuration cannot be used.

use super::text::MAX_FILE_BYTES;
use palyra_protocol::CustodyError;
use std::path::PathBuf;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing that a configuration could be in.
    #[error("`{}` is {what}; name a file of at most {} KiB", path.display(), MAX_FILE_BYTES >> 10)]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Tools could reach the daemon's keys.
    #[error("the workspace `{}` and the daemon's state in `{}` overlap, so tools could reach its keys; choose a project directory: `--workspace DIR`", workspace.display(), state.display())]
    Overlap {
        /// Where tools would work.
        workspace: PathBuf,
        /// Where the state is.
        state: PathBuf,
    },
    /// An agent could write something that decides.
    #[error("{what}: {source}; {}", source.hint())]
    InReach {
        /// What decides.
        what: &'static str,
        /// Where an agent could write.
        source: CustodyError,
    },
    /// The file is not understood.
    #[error("`{}`, line {line}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong, and the nearest thing that would be right.
        message: String,
    },
    /// A value makes no sense.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
}

impl ConfigError {
    /// A value that makes no sense.
    pub(super) fn value(key: &'static str, message: impl Into<String>) -> Self {
        Self::Value { key, message: message.into() }
    }
}
