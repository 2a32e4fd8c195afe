//! What can go wrong with a file, by whose fault, each with a stable code.
//!
//! A message is for the caller: it names the path and says what to do. It must never contain bytes of a file, because
//! who may write a file is not always one who may read it, and it never repeats its source (the log has the chain).

use rustix::io::Errno;

/// How much of a caller's text a message repeats, in characters.
const MAX_SHOWN: usize = 200;

/// Why a file operation was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    // The caller's fault: another input would have worked.
    #[error("`{path}` is not a usable path: {reason}")]
    InvalidPath { path: String, reason: &'static str },
    #[error("`{path}` leaves the workspace; use a path beneath the workspace root")]
    Outside { path: String },
    #[error("`{path}` is longer or deeper than a path may be; use a shorter one")]
    PathTooLong { path: String },
    #[error("`{path}` goes through a name that is not valid UTF-8, which the file tools cannot show or open")]
    NotUtf8 { path: String },
    #[error("`{path}` goes through too many symbolic links, or through a loop of them; name the file itself")]
    SymlinkLoop { path: String },
    #[error("`{path}` does not exist; list its directory to see what does")]
    NotFound { path: String },
    #[error("`{path}` is a directory; name a file in it")]
    IsDirectory { path: String },
    #[error("`{path}` is not a directory, or goes through something that is none")]
    NotADirectory { path: String },
    #[error("`{path}` is {kind}, not a regular file; the file tools open nothing else")]
    NotRegular { path: String, kind: &'static str },
    #[error("`{path}` already exists; choose another name, or change the file that is there")]
    AlreadyExists { path: String },
    #[error("`{path}` changed in the meantime; read it again and repeat the change")]
    ContentChanged { path: String },
    #[error("`{path}` is too large: at most {limit} {unit} here; work on a smaller part")]
    TooLarge { path: String, limit: u64, unit: &'static str },
    #[error("the pattern is not usable: {reason}")]
    InvalidPattern { reason: String },
    #[error("the patch cannot be read at its line {line}: {reason}")]
    PatchMalformed { line: usize, reason: String },
    #[error("the patch does not apply to `{path}` at hunk {hunk}: {reason}")]
    PatchDoesNotApply { path: String, hunk: usize, reason: String },
    #[error("the operation was cancelled before it ended; nothing was changed")]
    Cancelled,

    // Policy: the room's own rule, which nobody can wave through here.
    #[error("`{path}` is protected: a write to {what} would later run as code outside the sandbox; {instead}")]
    Protected { path: String, what: &'static str, instead: &'static str },

    // A peer on the same machine: something moved while we worked.
    #[error("`{path}` was replaced by a symbolic link after it was checked; nothing was opened, try again")]
    SymlinkRace { path: String },

    #[error("the workspace `{path}` was moved, removed or replaced while the daemon runs; nothing was opened")]
    WorkspaceReplaced { path: String },

    // The host's fault.
    #[error("permission to use `{path}` is missing; the daemon's user needs it")]
    PermissionDenied { path: String },
    #[error("the disk or quota that holds `{path}` is full; nothing was changed, free some space and try again")]
    DiskFull { path: String },
    #[error("the change failed and could not be undone completely; the original of `{path}` is in `{kept_as}`")]
    RollbackIncomplete {
        path: String,
        kept_as: String,
        #[source]
        cause: Box<FileError>,
    },
    #[error("`{path}` could not be used because the host failed; the daemon's log says how")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl FileError {
    /// The stable name of this fault, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidPath { .. } => "path_invalid",
            Self::Outside { .. } => "path_outside_workspace",
            Self::PathTooLong { .. } => "path_too_long",
            Self::NotUtf8 { .. } => "path_not_utf8",
            Self::SymlinkLoop { .. } => "symlink_loop",
            Self::NotFound { .. } => "not_found",
            Self::IsDirectory { .. } => "is_directory",
            Self::NotADirectory { .. } => "not_a_directory",
            Self::NotRegular { .. } => "not_a_regular_file",
            Self::AlreadyExists { .. } => "already_exists",
            Self::ContentChanged { .. } => "content_changed",
            Self::TooLarge { .. } => "too_large",
            Self::InvalidPattern { .. } => "pattern_invalid",
            Self::PatchMalformed { .. } => "patch_malformed",
            Self::PatchDoesNotApply { .. } => "patch_does_not_apply",
            Self::Cancelled => "cancelled",
            Self::Protected { .. } => "protected_path",
            Self::SymlinkRace { .. } => "symlink_race",
            Self::WorkspaceReplaced { .. } => "workspace_replaced",
            Self::PermissionDenied { .. } => "permission_denied",
            Self::DiskFull { .. } => "disk_full",
            Self::RollbackIncomplete { .. } => "rollback_incomplete",
            Self::Io { .. } => "io",
        }
    }

    /// What to do, where the message does not say it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::WorkspaceReplaced { .. } => {
                Some("put the directory back, or accept the one that is there now: `palyra workspaces add DIR`")
            }
            _ => None,
        }
    }

    /// The fault that the system's error number stands for, at `path`.
    pub(super) fn from_errno(path: &str, errno: Errno) -> Self {
        let path = shown(path);
        match errno {
            Errno::NOENT => Self::NotFound { path },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied { path },
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { path },
            // Every open refuses links, so a loop is one that was put there after the path was resolved.
            Errno::LOOP => Self::SymlinkRace { path },
            Errno::NOTDIR => Self::NotADirectory { path },
            Errno::ISDIR => Self::IsDirectory { path },
            Errno::EXIST | Errno::NOTEMPTY => Self::AlreadyExists { path },
            Errno::NAMETOOLONG => Self::PathTooLong { path },
            Errno::NXIO => Self::NotRegular { path, kind: "a socket or device" },
            other => Self::Io { path, source: other.into() },
        }
    }
}

/// For `map_err`: the system's error at `path`.
pub(super) fn at(path: &str) -> impl Fn(Errno) -> FileError + '_ {
    move |errno| FileError::from_errno(path, errno)
}

/// For `map_err` of the standard library's errors, which mostly carry the system's number.
pub(super) fn io_at(path: &str) -> impl Fn(std::io::Error) -> FileError + '_ {
    move |source| match Errno::from_io_error(&source) {
        Some(errno) => FileError::from_errno(path, errno),
        None => FileError::Io { path: shown(path), source },
    }
}

/// A caller's text, cut to what fits into a message.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
