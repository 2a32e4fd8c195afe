//! Effects: what a call changed in the workspace.
//!
//! A run works on a view of the workspace; what it left there when it ended is its effect. The outcome, the journal and
//! the attestation hold the effect in this form: a bounded list of changes, the counts of all of them, and one digest
//! over the whole list, so that a change that is not listed cannot be denied later.

use crate::digest::{Digest, DigestBuilder};
use crate::id::ApprovalId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many changes a record lists. The digest and the counts cover the rest.
pub const MAX_LISTED_CHANGES: usize = 200;

/// A path beneath the workspace. File names are bytes; those that are not UTF-8 are kept, and written as hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "PathForm", into = "PathForm")]
pub struct EffectPath(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathForm {
    Text(String),
    Bytes { hex: String },
}

/// Bytes that are not a path beneath the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a path of an effect is relative, has no empty part, no `.`, no `..` and no NUL, and at most 4096 bytes")]
pub struct EffectPathError;

impl EffectPath {
    /// The longest path, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Checks that the bytes are a relative path of plain names.
    ///
    /// # Errors
    /// They are not.
    pub fn new(bytes: Vec<u8>) -> Result<Self, EffectPathError> {
        let plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
        let fits = bytes.len() <= Self::MAX_BYTES && !bytes.contains(&0);
        if fits && bytes.split(|b| *b == b'/').all(plain) { Ok(Self(bytes)) } else { Err(EffectPathError) }
    }

    /// The bytes, as the file system has them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name of the last part.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// The directory that holds it; empty for an entry of the root.
    #[must_use]
    pub fn parent(&self) -> &[u8] {
        self.0.iter().rposition(|b| *b == b'/').map_or(&[], |at| &self.0[..at])
    }

    /// The path of an entry of this directory.
    ///
    /// # Errors
    /// The name is not a plain name, or the path gets too long.
    pub fn join(&self, name: &[u8]) -> Result<Self, EffectPathError> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Self::new(bytes)
    }

    /// The path as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Whether this path is `directory` or lies beneath it.
    #[must_use]
    pub fn is_under(&self, directory: &[u8]) -> bool {
        self.0.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl fmt::Display for EffectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for EffectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EffectPath({:?})", String::from_utf8_lossy(&self.0))
    }
}

impl std::str::FromStr for EffectPath {
    type Err = EffectPathError;
    fn from_str(text: &str) -> Result<Self, EffectPathError> {
        Self::new(text.as_bytes().to_vec())
    }
}

impl TryFrom<PathForm> for EffectPath {
    type Error = EffectPathError;
    fn try_from(form: PathForm) -> Result<Self, EffectPathError> {
        match form {
            PathForm::Text(text) => Self::new(text.into_bytes()),
            PathForm::Bytes { hex } => Self::new(hex::decode(hex).map_err(|_| EffectPathError)?),
        }
    }
}

impl From<EffectPath> for PathForm {
    fn from(path: EffectPath) -> Self {
        match String::from_utf8(path.0) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes { hex: hex::encode(error.as_bytes()) },
        }
    }
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content, its link target or its kind is another.
    Changed,
    /// It is gone.
    Deleted,
    /// It was moved here from `from`, with the same content.
    Renamed,
    /// Only its permissions are others.
    Mode,
    /// Only its times are others.
    Touched,
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket, a named pipe or a device: never taken over.
    Special,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectChange {
    /// Where.
    pub path: EffectPath,
    /// What happened.
    pub kind: ChangeKind,
    /// What stands there now, or stood there if it was deleted.
    pub entry: EntryKind,
    /// The permissions now; absent for a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The size in bytes of a file: now, or before it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The SHA-256 of a file's content now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Where a link points now; bytes that are not UTF-8 replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Where a renamed file was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EffectPath>,
}

/// How many changes of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectCounts {
    /// New entries.
    pub added: u64,
    /// Entries with another content.
    pub changed: u64,
    /// Entries that are gone.
    pub deleted: u64,
    /// Entries that were moved.
    pub renamed: u64,
    /// Entries with other permissions or times only.
    pub metadata: u64,
}

impl EffectCounts {
    /// Counts one more change.
    pub fn count(&mut self, kind: ChangeKind) {
        let counter = match kind {
            ChangeKind::Added => &mut self.added,
            ChangeKind::Changed => &mut self.changed,
            ChangeKind::Deleted => &mut self.deleted,
            ChangeKind::Renamed => &mut self.renamed,
            ChangeKind::Mode | ChangeKind::Touched => &mut self.metadata,
        };
        *counter += 1;
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.added + self.changed + self.deleted + self.renamed + self.metadata
    }
}

/// What became of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It changed nothing.
    Empty,
    /// It is in the workspace.
    Applied,
    /// Some of it is in the workspace; `waiting`, `dropped` or `conflicts` say what is not.
    PartlyApplied,
    /// It waits for a person.
    Waiting,
    /// It was thrown away.
    Discarded,
    /// It was put back.
    Undone,
    /// It is in the view of its session, on which further calls work; nothing of it counts yet.
    Open,
}

/// A call's effect, as it is recorded and attested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRecord {
    /// What became of it.
    pub state: EffectState,
    /// How many changes.
    pub counts: EffectCounts,
    /// Bytes of new file content.
    pub bytes: u64,
    /// The first changes, by path; at most [`MAX_LISTED_CHANGES`].
    pub changes: Vec<EffectChange>,
    /// Changes that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
    /// The digest of every change, listed or not, in the order of their paths.
    pub changes_sha256: Digest,
    /// Guarded paths that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<EffectPath>,
    /// Guarded paths that policy, or a person, did not let through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<EffectPath>,
    /// Paths that changed in the workspace while the call ran. The workspace's version stands; the call's is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<EffectPath>,
    /// Sockets, named pipes and devices, which are never taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<EffectPath>,
    /// Whether `palyra undo` can put back what was replaced.
    pub reversible: bool,
    /// The approval that `waiting` waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

/// What an attestation states of an effect. Its digest covers every change, so that the whole can be compared with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestedEffect {
    /// Bytes of new file content.
    pub bytes: u64,
    /// How many changes.
    pub changes: u64,
    /// The digest of every change.
    pub changes_sha256: Digest,
    /// What became of it when the call ended.
    pub state: EffectState,
}

impl EffectRecord {
    /// What an attestation states of it.
    #[must_use]
    pub fn attested(&self) -> AttestedEffect {
        let Self { state, bytes, changes_sha256, counts, .. } = self;
        AttestedEffect { bytes: *bytes, changes: counts.total(), changes_sha256: *changes_sha256, state: *state }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The digest of a list of changes: every field of each, in the order of their paths.
#[must_use]
pub fn digest_of_changes<'a>(changes: impl IntoIterator<Item = &'a EffectChange>) -> Digest {
    let mut digest = DigestBuilder::new("palyra.effect.v1");
    for change in changes {
        digest = digest
            .field(change.path.as_bytes())
            .field(&[change.kind as u8, change.entry as u8])
            .field(&change.mode.unwrap_or(u32::MAX).to_be_bytes())
            .field(&change.size.unwrap_or(u64::MAX).to_be_bytes())
            .optional(change.sha256.as_ref().map(|digest| digest.as_bytes().as_slice()))
            .optional(change.target.as_deref().map(str::as_bytes))
            .optional(change.from.as_ref().map(EffectPath::as_bytes));
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain_and_survive_json() {
        for bad in ["", "/a", "a//b", "a/", ".", "..", "a/../b", "a/./b", "a\0b"] {
            assert!(bad.parse::<EffectPath>().is_err(), "{bad:?}");
        }
        assert!(EffectPath::new(vec![b'a'; EffectPath::MAX_BYTES + 1]).is_err());
        for good in [&b"a"[..], b"a/b.c", b"\xff\xfe/x", "ж/я".as_bytes(), b"...", b"a\nb"] {
            let path = EffectPath::new(good.to_vec()).unwrap();
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<EffectPath>(&json).unwrap(), path, "{json}");
        }
        assert!(serde_json::from_str::<EffectPath>("\"../x\"").is_err());
        assert!(serde_json::from_str::<EffectPath>("{\"hex\":\"2e2e\"}").is_err());
    }

    #[test]
    fn a_path_knows_its_place() {
        let path: EffectPath = "a/b/c".parse().unwrap();
        assert_eq!((path.parent(), path.name()), (&b"a/b"[..], &b"c"[..]));
        assert_eq!("x".parse::<EffectPath>().unwrap().parent(), b"");
        assert!(path.is_under(b"a") && path.is_under(b"a/b/c") && !path.is_under(b"a/bc") && !path.is_under(b"a/"));
    }

    #[test]
    fn the_digest_covers_every_field() {
        let change = |edit: fn(&mut EffectChange)| {
            let mut change = EffectChange {
                path: "a".parse().unwrap(),
                kind: ChangeKind::Added,
                entry: EntryKind::File,
                mode: Some(0o644),
                size: Some(3),
                sha256: Some(Digest::of(b"abc")),
                target: None,
                from: None,
            };
            edit(&mut change);
            digest_of_changes([&change])
        };
        let edits: [fn(&mut EffectChange); 8] = [
            |c| c.path = "b".parse().unwrap(),
            |c| c.kind = ChangeKind::Changed,
            |c| c.entry = EntryKind::Link,
            |c| c.mode = Some(0o755),
            |c| c.size = Some(4),
            |c| c.sha256 = None,
            |c| c.target = Some("x".to_owned()),
            |c| c.from = Some("x".parse().unwrap()),
        ];
        let plain = change(|_| {});
        for (number, edit) in edits.into_iter().enumerate() {
            assert_ne!(change(edit), plain, "field {number}");
        }
    }
}
