//! What can go wrong with an effect, by whose fault.

use palyra_protocol::EffectPathError;
use rustix::io::Errno;

/// Why an effect could not be collected, applied or undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EffectError {
    // The run's fault.
    /// The run wrote more entries than its quota.
    #[error("the run changed more than {limit} files; nothing was applied")]
    TooManyFiles {
        /// The quota.
        limit: u64,
    },
    /// The run wrote more bytes than its quota.
    #[error("the run wrote more than {limit} bytes; nothing was applied")]
    TooManyBytes {
        /// The quota.
        limit: u64,
    },
    /// The run made directories deeper than anything can be opened.
    #[error("the run made directories that are too deep or names that are too long; nothing was applied")]
    TooDeep,

    // The caller's fault.
    /// Nothing is kept under this id.
    #[error("nothing is kept for `{id}`: it changed nothing, or its time is over")]
    NotKept {
        /// The id.
        id: String,
    },
    /// The effect was put back already.
    #[error("the effect of `{id}` was undone already")]
    AlreadyUndone {
        /// The id.
        id: String,
    },
    /// There is such a view already.
    #[error("there is a view `{id}` already")]
    ViewExists {
        /// The id.
        id: String,
    },

    /// A call works on the view.
    #[error("a call works on the view `{id}`")]
    InUse {
        /// The id.
        id: String,
    },

    // The host's fault.
    /// The store and the workspace are not on one mount.
    #[error(
        "the store `{store}` and the workspace are not on one file system, so that nothing can be renamed between them"
    )]
    OtherFileSystem {
        /// Where the store would be.
        store: String,
    },
    /// The disk is full.
    #[error("the disk that holds the workspace is full; nothing was lost, free some space")]
    DiskFull,
    /// A record of the store cannot be read.
    #[error("the record `{what}` of an effect is damaged")]
    Damaged {
        /// Which record.
        what: String,
    },
    /// The host failed.
    #[error("`{what}` could not be used because the host failed")]
    Io {
        /// What was used.
        what: String,
        /// The host's reason.
        #[source]
        source: std::io::Error,
    },
}

impl EffectError {
    /// The stable name of this fault, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooManyFiles { .. } => "effect_too_many_files",
            Self::TooManyBytes { .. } => "effect_too_large",
            Self::TooDeep => "effect_too_deep",
            Self::NotKept { .. } => "effect_not_kept",
            Self::AlreadyUndone { .. } => "effect_already_undone",
            Self::ViewExists { .. } => "view_exists",
            Self::InUse { .. } => "view_busy",
            Self::OtherFileSystem { .. } => "effect_other_file_system",
            Self::DiskFull => "disk_full",
            Self::Damaged { .. } => "effect_damaged",
            Self::Io { .. } => "io",
        }
    }

    /// What to do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooManyFiles { .. } => Some("do less in one call, or raise `effects.max_files` in palyra.toml"),
            Self::TooManyBytes { .. } => Some("do less in one call, or raise `effects.max_bytes` in palyra.toml"),
            Self::NotKept { .. } => Some("`palyra effects list` shows what can be undone"),
            Self::AlreadyUndone { .. } => Some("undo the undo: `palyra effects list` shows its id"),
            Self::OtherFileSystem { .. } => {
                Some("set `effects.store` in palyra.toml to a directory beside the workspace")
            }
            _ => None,
        }
    }

    pub(super) fn at(what: &[u8], errno: Errno) -> Self {
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::NAMETOOLONG => Self::TooDeep,
            other => Self::Io { what: String::from_utf8_lossy(what).into_owned(), source: other.into() },
        }
    }
}

impl From<EffectPathError> for EffectError {
    fn from(_: EffectPathError) -> Self {
        Self::TooDeep
    }
}

/// For `map_err`: the system's error at `what`.
pub(super) fn at(what: &[u8]) -> impl Fn(Errno) -> EffectError + '_ {
    move |errno| EffectError::at(what, errno)
}
