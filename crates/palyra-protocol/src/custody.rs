//! Files that decide lie where no agent can write.
//!
//! The configuration, the rules and their cases, the access registry, and whatever else says what may happen: each of
//! their readers asks a [`Custody`] about every file, and opens the path that it is given back. The daemon knows which
//! directories agents can write; the readers do not have to.

use std::fmt;
use std::path::{Path, PathBuf};

/// Vouches for files that decide.
pub trait Custody: fmt::Debug + Send + Sync {
    /// The real path of a file or directory that decides, free of links; none if there is nothing.
    ///
    /// No agent can write or replace what is there, nor anything on the way to it; where there is nothing, no agent can
    /// put something. A directory is vouched for by itself: whoever reads a file in it asks about that file.
    ///
    /// # Errors
    /// An agent could, or it cannot be told.
    fn vouch(&self, path: &Path) -> Result<Option<PathBuf>, CustodyError>;
}

/// Why a file must not decide.
#[derive(Debug, thiserror::Error)]
pub enum CustodyError {
    /// It lies, or a link or directory on the way to it lies, where agents can write.
    #[error("agents could change `{}`: {}", path.display(), where_from(path, at, root))]
    InReach {
        /// What was asked about.
        path: PathBuf,
        /// What lies within reach: the thing itself, or a name on the way to it.
        at: PathBuf,
        /// The directory that agents can write.
        root: PathBuf,
    },
    /// It is a file with other names, which may lie where agents can write.
    #[error("agents could change `{}`: it is a file with {names} names, and another of them may lie where agents can write", path.display())]
    OtherNames {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        names: u64,
    },
    /// It cannot be told.
    #[error("`{}` cannot be looked at", path.display())]
    Unreadable {
        /// Where it was looked.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn where_from(path: &Path, at: &Path, root: &Path) -> String {
    let root = root.display();
    if at == path {
        format!("it lies in `{root}`, where they can write")
    } else {
        format!("the way to it leads through `{}` in `{root}`, where they can write", at.display())
    }
}

impl CustodyError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InReach { .. } | Self::OtherNames { .. } => "agents_could_write",
            Self::Unreadable { .. } => "unreadable",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InReach { .. } => {
                "keep it outside the workspace and every `write_roots` entry, and let no link on the way lead through them"
            }
            Self::OtherNames { .. } => "give it one name: copy it, and put the copy in its place",
            Self::Unreadable { .. } => "make it readable for the daemon's user",
        }
    }
}
