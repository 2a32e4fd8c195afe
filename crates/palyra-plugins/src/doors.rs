//! Doors: what the engine hands to a call, so that a guest can reach anything at all.
//!
//! A door is asked only after the grant has allowed it, and it decides for itself once more: egress has its own rules,
//! the vault its own scopes. Doors are called on the guest's thread and may block; each gets the [`CallControl`] that
//! says how much time is left. A door that is missing is a typed error for the guest, whatever the grant says.

use crate::control::CallControl;
use crate::http_request::HttpRequest;
use crate::names::WorkspacePath;
use crate::record::{FileKind, FileStatus};
use palyra_protocol::Secret;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The doors of one call. None of them is open by default.
#[derive(Debug, Clone, Default)]
pub struct Doors {
    /// Other hosts.
    pub http: Option<Arc<dyn HttpDoor>>,
    /// The vault.
    pub secrets: Option<Arc<dyn SecretsDoor>>,
    /// The workspace.
    pub files: Option<Arc<dyn FilesDoor>>,
    /// The skill's private storage.
    pub storage: Option<Arc<dyn StorageDoor>>,
}

/// Sends HTTP requests: `palyra-egress`, with its rules, its address guard and its events.
pub trait HttpDoor: Send + Sync + fmt::Debug {
    /// Sends one request to a host that the grant allows, and waits for the reply. Redirects are not followed: the
    /// guest does that itself, and each is asked about like the first. Credentials that are bound to the endpoint are
    /// attached here, where the guest never sees them.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn send(&self, request: &HttpRequest, allowance: HttpAllowance, call: &CallControl)
    -> Result<HttpReply, HttpFault>;
}

/// What one request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpAllowance {
    /// The largest body of the reply.
    pub reply_bytes: u64,
    /// When to give up; never later than the deadline of the call.
    pub timeout: Duration,
}

/// A reply, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(with = "crate::record::bytes")]
    pub body: Vec<u8>,
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HttpFault {
    /// Neither grant nor operator allows it.
    #[error("denied: {0}")]
    Denied(String),
    /// The request makes no sense.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The host could not be reached, or broke off.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// No reply in time.
    #[error("timed out")]
    TimedOut,
    /// The reply is larger than this many bytes.
    #[error("the reply is larger than {0} bytes")]
    TooLarge(u64),
}

/// Reads secrets: `palyra-vault`.
pub trait SecretsDoor: Send + Sync + fmt::Debug {
    /// Reads one secret that the grant names.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn read(&self, scope: &str, key: &str, call: &CallControl) -> Result<Secret, SecretFault>;
}

/// Why a secret cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SecretFault {
    /// The grant or the vault does not allow it.
    #[error("denied")]
    Denied,
    /// There is no such secret.
    #[error("not found")]
    NotFound,
    /// The vault cannot be asked now.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// The workspace, or a view of it that counts later. Paths begin at the workspace; no link is followed, made or read.
pub trait FilesDoor: Send + Sync + fmt::Debug {
    /// Opens a file, or says that a directory is there.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn open(&self, path: &WorkspacePath, how: OpenHow) -> Result<Opened, FileFault>;

    /// What is at a path; a link is told as a link.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn status(&self, path: &WorkspacePath) -> Result<FileStatus, FileFault>;

    /// What is in a directory, in order.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn entries(&self, path: &WorkspacePath) -> Result<Vec<(String, FileKind)>, FileFault>;

    /// Creates a directory.
    ///
    /// # Errors
    /// A typed fault that the guest is told; then nothing is changed.
    fn create_directory(&self, path: &WorkspacePath) -> Result<(), FileFault>;

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// A typed fault that the guest is told; then nothing is changed.
    fn remove(&self, path: &WorkspacePath, what: FileKind) -> Result<(), FileFault>;

    /// Renames a file or directory.
    ///
    /// # Errors
    /// A typed fault that the guest is told; then nothing is changed.
    fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileFault>;
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// To be read.
    pub read: bool,
    /// To be written.
    pub write: bool,
    /// It is made if it is not there.
    pub create: bool,
    /// It must not be there before.
    pub exclusive: bool,
    /// It is emptied.
    pub truncate: bool,
    /// It must be a directory.
    pub directory: bool,
}

/// What was opened.
#[derive(Debug)]
pub enum Opened {
    /// A regular file.
    File(OwnedFd),
    /// A directory, which goes by its path.
    Directory,
}

impl Opened {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self {
            Self::File(_) => FileKind::File,
            Self::Directory => FileKind::Directory,
        }
    }
}

/// Why a file cannot be used. The names are those of WASI, which guests know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileFault {
    /// No grant covers it.
    #[error("not permitted")]
    NotPermitted,
    /// The system does not allow it.
    #[error("access denied")]
    Access,
    /// Nothing is there.
    #[error("no such entry")]
    NoEntry,
    /// Something is there already.
    #[error("exists")]
    Exists,
    /// A link where none is followed.
    #[error("a link is in the way")]
    Link,
    /// A directory where a file is needed.
    #[error("is a directory")]
    IsDirectory,
    /// A file where a directory is needed.
    #[error("is not a directory")]
    NotDirectory,
    /// The directory is not empty.
    #[error("not empty")]
    NotEmpty,
    /// The path cannot be one.
    #[error("invalid")]
    Invalid,
    /// A name is too long.
    #[error("name too long")]
    NameTooLong,
    /// The disk is full, or a quota.
    #[error("no space")]
    NoSpace,
    /// The file is too large.
    #[error("too large")]
    TooLarge,
    /// The guest has too many files open.
    #[error("too many open files")]
    TooManyOpen,
    /// A directory that was there before cannot be moved.
    #[error("cannot be moved")]
    CrossDevice,
    /// Files are not served in this call.
    #[error("unsupported")]
    Unsupported,
    /// Anything else.
    #[error("input or output failed")]
    Io,
}

impl From<std::io::Error> for FileFault {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::Io, |errno| crate::files::fault(rustix::io::Errno::from_raw_os_error(errno)))
    }
}

/// The private storage of one skill.
pub trait StorageDoor: Send + Sync + fmt::Debug {
    /// The value of a key.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, StorageFault>;

    /// Puts a value in the place of whatever was there, durably, within a quota.
    ///
    /// # Errors
    /// A typed fault that the guest is told; then nothing has changed.
    fn write(&self, key: &str, value: &[u8], quota: u64) -> Result<(), StorageFault>;

    /// Removes a key; says whether it was there.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn delete(&self, key: &str) -> Result<bool, StorageFault>;

    /// Every key that begins like this, in order.
    ///
    /// # Errors
    /// A typed fault that the guest is told.
    fn keys(&self, prefix: &str) -> Result<Vec<String>, StorageFault>;
}

/// Why storage cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StorageFault {
    /// The value would not fit.
    #[error("the quota of {0} bytes is exceeded")]
    QuotaExceeded(u64),
    /// The key cannot be one.
    #[error("invalid key")]
    InvalidKey,
    /// The store cannot be used now.
    #[error("unavailable: {0}")]
    Unavailable(String),
}
