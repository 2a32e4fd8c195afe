//! Identifiers: one newtype for each kind of thing, so that none can stand in for another.
//!
//! Ids that we mint are a prefix and a ULID (`call_01K…`). ULIDs grow with time, so an index over them is appended to
//! at its right edge and inserting stays cheap however long the history is. Names that callers choose (sessions, runs,
//! idempotency keys) are separate types with their own limits: they are untrusted text, opaque to us.

use crate::digest::DigestBuilder;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A minted id with the wrong prefix or a body that is no ULID.
    #[error("`{given}` is not {} {kind} id; it should look like `{prefix}_01K…`", article(kind))]
    Malformed { kind: &'static str, prefix: &'static str, given: String },
    /// A caller's name that is empty, too long, or has characters we refuse.
    #[error("{} {kind} must be 1 to {max} characters of A-Z a-z 0-9 . _ : / @ -", article(kind))]
    Name { kind: &'static str, max: usize },
}

/// The article that goes before a word.
fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// How much of a caller's text an error message repeats.
pub(crate) fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

macro_rules! minted_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name([u8; Self::PREFIX.len() + ulid::ULID_LEN]);

        impl $name {
            const PREFIX: &str = concat!($prefix, "_");

            /// Mints a new id.
            #[must_use]
            pub fn mint() -> Self {
                Self::from_ulid(ulid::Ulid::generate())
            }

            fn from_ulid(id: ulid::Ulid) -> Self {
                let mut text = [0; Self::PREFIX.len() + ulid::ULID_LEN];
                let (prefix, body) = text.split_at_mut(Self::PREFIX.len());
                prefix.copy_from_slice(Self::PREFIX.as_bytes());
                let mut ulid = [0; ulid::ULID_LEN];
                id.array_to_str(&mut ulid);
                body.copy_from_slice(&ulid);
                Self(text)
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                // Both constructors put ASCII in.
                std::str::from_utf8(&self.0).unwrap_or_default()
            }

            /// The id without its prefix.
            #[must_use]
            pub fn body(&self) -> &str {
                &self.as_str()[Self::PREFIX.len()..]
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(Self::PREFIX)
                    .filter(|body| ulid::Ulid::from_string(body).is_ok())
                    .and_then(|_| text.as_bytes().try_into().ok())
                    .map(Self)
                    .ok_or_else(|| IdError::Malformed { kind: $kind, prefix: $prefix, given: excerpt(text) })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.as_str()).finish()
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

minted_id!(
    /// One tool call, from proposal to outcome.
    CallId, "call", "call"
);
minted_id!(
    /// One question put to a human.
    ApprovalId, "apr", "approval"
);
minted_id!(
    /// One standing answer: a cached approval.
    GrantId, "grant", "grant"
);
minted_id!(
    /// One decision of the policy engine.
    DecisionId, "dec", "decision"
);
minted_id!(
    /// One signed statement about an execution.
    AttestationId, "att", "attestation"
);
minted_id!(
    /// One journal: distinguishes its checkpoints from those of every other.
    JournalId, "jrn", "journal"
);
minted_id!(
    /// One token that opens a door.
    TokenId, "tok", "token"
);
minted_id!(
    /// One request at a door, as its answer and the log name it.
    RequestId, "req", "request"
);
minted_id!(
    /// One workspace that the daemon has served.
    WorkspaceId, "ws", "workspace"
);
minted_id!(
    /// One vault: its blobs are bound to it and fit no other.
    VaultId, "vault", "vault"
);
minted_id!(
    /// One entry of the memory.
    MemoryId, "mem", "memory entry"
);
minted_id!(
    /// One routine.
    RoutineId, "rtn", "routine"
);
minted_id!(
    /// One session of the console: one browser, one key.
    ConsoleId, "con", "console session"
);
minted_id!(
    /// One binding of a secret to an endpoint.
    BindingId, "bind", "binding"
);

macro_rules! caller_name {
    ($(#[$doc:meta])* $name:ident, $max:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let fits = (1..=$max).contains(&text.len())
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@-".contains(&b));
                if fits { Ok(Self(text.into())) } else { Err(IdError::Name { kind: $kind, max: $max }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

caller_name!(
    /// A conversation or task of one principal; session-scoped grants live as long as its name is used.
    SessionId, 128, "session"
);
caller_name!(
    /// One run of an agent inside a session; the call budget counts per run.
    RunId, 128, "run"
);
caller_name!(
    /// The caller's promise that two proposals are the same one.
    IdempotencyKey, 128, "idempotency key"
);
caller_name!(
    /// The door and route by which a call came (`cli`, `mcp`, …).
    ChannelId, 64, "channel"
);
caller_name!(
    /// A device a call came from.
    DeviceId, 128, "device"
);

impl ChannelId {
    /// The door of the command line.
    #[must_use]
    pub fn command_line() -> Self {
        Self::fixed("cli")
    }

    /// A name that a program fixes for a door of its own; it must be one that parses.
    #[must_use]
    pub fn fixed(name: &'static str) -> Self {
        debug_assert!(name.parse::<Self>().is_ok());
        Self(name.into())
    }
}

impl DeviceId {
    /// A fresh id for a device that is being paired.
    #[must_use]
    pub fn mint() -> Self {
        Self(format!("dev_{}", ulid::Ulid::generate()).into())
    }
}

impl WorkspaceId {
    /// The id of a directory to one daemon: the same whenever it is asked, and no other daemon's.
    #[must_use]
    pub fn of(journal: &JournalId, root: &str) -> Self {
        let digest = DigestBuilder::new("palyra.workspace.v1")
            .field(journal.as_str().as_bytes())
            .field(root.as_bytes())
            .finish();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Self::from_ulid(ulid::Ulid::from_bytes(bytes))
    }
}

impl RunId {
    /// A fresh id for an agent's run.
    #[must_use]
    pub fn mint() -> Self {
        Self(format!("run_{}", ulid::Ulid::generate()).into())
    }
}

impl SessionId {
    /// A fresh session for a caller that named none.
    #[must_use]
    pub fn mint() -> Self {
        Self(format!("sess_{}", ulid::Ulid::generate()).into())
    }

    /// The session's own run: what a caller that names no run belongs to.
    #[must_use]
    pub fn default_run(&self) -> RunId {
        RunId(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_ids_round_trip_and_refuse_other_kinds() {
        let id = CallId::mint();
        assert_eq!(id.as_str().parse::<CallId>(), Ok(id.clone()));
        assert!(id.as_str().parse::<ApprovalId>().is_err());
        for bad in ["", "call_", "call_01", "call_!!!!!!!!!!!!!!!!!!!!!!!!!!", "CALL_01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
            assert!(bad.parse::<CallId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_workspace_has_one_id_for_each_daemon() {
        let (ours, theirs) = (JournalId::mint(), JournalId::mint());
        let id = WorkspaceId::of(&ours, "/srv");
        assert_eq!(id, WorkspaceId::of(&ours, "/srv"));
        assert_eq!(id.as_str().parse::<WorkspaceId>(), Ok(id.clone()));
        assert!(id != WorkspaceId::of(&theirs, "/srv") && id != WorkspaceId::of(&ours, "/srv/x"));
    }

    #[test]
    fn caller_names_are_bounded_plain_text() {
        assert!("build-42".parse::<SessionId>().is_ok());
        for bad in ["", "a b", "a\n", "é", &"x".repeat(129)] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        }
    }
}
