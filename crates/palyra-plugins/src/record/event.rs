//! The events of a record: each answer of the host that did not follow from what the guest already had.

use crate::doors::{FileFault, HttpFault, HttpReply, SecretFault, StorageFault};
use palyra_protocol::Digest;
use serde::{Deserialize, Serialize};

/// One answer, and the digest of what was asked, where there was a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEvent {
    /// What was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Digest>,
    /// What was answered.
    pub answer: HostAnswer,
    /// How often in a row; only clocks repeat themselves.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_once(times: &u64) -> bool {
    *times == 1
}

/// What the host answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum HostAnswer {
    /// The time of day, in milliseconds since 1970.
    Time(u64),
    /// The time since the call began, in milliseconds.
    Elapsed(u64),
    /// What a poll found ready.
    Ready(Vec<u32>),
    /// A reply from another host.
    Http(Result<HttpReply, HttpFault>),
    /// That a secret was read; never what it is.
    Secret(Result<(), SecretFault>),
    /// What was in storage.
    Stored(Result<Option<Blob>, StorageFault>),
    /// Whether storage took a value.
    StorageWritten(Result<(), StorageFault>),
    /// Whether a key was removed.
    StorageDeleted(Result<bool, StorageFault>),
    /// Which keys there are.
    StorageKeys(Result<Vec<String>, StorageFault>),
    /// What came of something with a file.
    File(Result<FileAnswer, FileFault>),
}

/// Bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blob(#[serde(with = "super::bytes")] pub Vec<u8>);

/// What came of something with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum FileAnswer {
    /// It is done.
    Done,
    /// It is open.
    Opened(FileKind),
    /// What was read, and whether that was the end.
    Read(Blob, bool),
    /// How many bytes were written.
    Written(u64),
    /// What is known about it.
    Status(FileStatus),
    /// What is in a directory.
    Entries(Vec<(String, FileKind)>),
}

/// What something in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, which nobody follows.
    Link,
    /// Anything else, which nobody opens.
    Other,
}

/// What a guest may know about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStatus {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
}

impl HostAnswer {
    /// The name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Time(_) => "time",
            Self::Elapsed(_) => "elapsed",
            Self::Ready(_) => "ready",
            Self::Http(_) => "http",
            Self::Secret(_) => "secret",
            Self::Stored(_) => "stored",
            Self::StorageWritten(_) => "storage_written",
            Self::StorageDeleted(_) => "storage_deleted",
            Self::StorageKeys(_) => "storage_keys",
            Self::File(_) => "file",
        }
    }

    /// Roughly how many bytes it takes.
    pub(crate) fn weight(&self) -> u64 {
        let bytes = match self {
            Self::Http(Ok(reply)) => {
                let headers: usize = reply.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
                headers + reply.body.len()
            }
            Self::Http(Err(HttpFault::Denied(text) | HttpFault::Invalid(text) | HttpFault::Unreachable(text))) => {
                text.len()
            }
            Self::Stored(Ok(Some(blob))) | Self::File(Ok(FileAnswer::Read(blob, _))) => blob.0.len(),
            Self::StorageKeys(Ok(keys)) => keys.iter().map(|key| key.len() + 4).sum(),
            Self::File(Ok(FileAnswer::Entries(entries))) => entries.iter().map(|(name, _)| name.len() + 16).sum(),
            Self::Ready(ready) => ready.len() * 4,
            _ => 0,
        };
        64 + bytes as u64
    }
}
