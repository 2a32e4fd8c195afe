//! Memory: what agents and people asked the daemon to remember.
//!
//! An entry's text is never part of the journal. The journal holds who retained it, by which call, from which sources,
//! how far it is trusted, and the text encrypted under a key of the entry's own. Forgetting destroys that key and every
//! other copy of the text: the chain still verifies, and the text is gone.

use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::id::{CallId, MemoryId, SessionId, WorkspaceId};
use crate::principal::Principal;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The longest text of an entry, in bytes.
pub const MAX_MEMORY_TEXT: usize = 8 * 1024;
/// The most sources that an entry names.
pub const MAX_MEMORY_SOURCES: usize = 32;
/// The longest source.
const MAX_SOURCE: usize = 256;

/// How far an entry is trusted: the minimum over its sources. Nothing raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryTrust {
    /// It may stem from somebody outside: a web page, a process with network access, a skill.
    External,
    /// A program said it, and the daemon knows of no outside source.
    Agent,
    /// A person said it.
    Person,
}

impl MemoryTrust {
    /// Every level, the lowest first.
    pub const ALL: [Self; 3] = [Self::External, Self::Agent, Self::Person];

    /// The name that rules, listings and the journal use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Agent => "agent",
            Self::Person => "person",
        }
    }
}

impl fmt::Display for MemoryTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names nothing of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryNameError {
    /// Not a level of trust.
    #[error("a trust is one of external, agent, person")]
    Trust,
    /// Not a scope.
    #[error("a memory scope is `principal:KIND:NAME`, `workspace:ID` or `session:KIND:NAME/SESSION`")]
    Scope,
}

impl FromStr for MemoryTrust {
    type Err = MemoryNameError;
    fn from_str(text: &str) -> Result<Self, MemoryNameError> {
        Self::ALL.into_iter().find(|trust| trust.as_str() == text).ok_or(MemoryNameError::Trust)
    }
}

/// Who an entry is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum MemoryScope {
    /// One principal, in every session and workspace.
    Principal(Principal),
    /// Everybody who may search the memory of one workspace.
    Workspace(WorkspaceId),
    /// One session of one principal. Two principals that use the same name have two sessions.
    Session(Principal, SessionId),
}

impl MemoryScope {
    /// Its first word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Principal(_) => "principal",
            Self::Workspace(_) => "workspace",
            Self::Session(..) => "session",
        }
    }

    /// Whose it is, where it is somebody's.
    #[must_use]
    pub fn owner(&self) -> Option<&Principal> {
        match self {
            Self::Principal(principal) | Self::Session(principal, _) => Some(principal),
            Self::Workspace(_) => None,
        }
    }
}

impl fmt::Display for MemoryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => write!(f, "principal:{principal}"),
            Self::Workspace(workspace) => write!(f, "workspace:{workspace}"),
            Self::Session(principal, session) => write!(f, "session:{principal}/{session}"),
        }
    }
}

impl FromStr for MemoryScope {
    type Err = MemoryNameError;
    fn from_str(text: &str) -> Result<Self, MemoryNameError> {
        let (kind, rest) = text.split_once(':').ok_or(MemoryNameError::Scope)?;
        let scope = match kind {
            "principal" => rest.parse().ok().map(Self::Principal),
            "workspace" => rest.parse().ok().map(Self::Workspace),
            "session" => rest
                .split_once('/')
                .and_then(|(principal, session)| Some(Self::Session(principal.parse().ok()?, session.parse().ok()?))),
            _ => None,
        };
        scope.ok_or(MemoryNameError::Scope)
    }
}

impl TryFrom<String> for MemoryScope {
    type Error = MemoryNameError;
    fn try_from(text: String) -> Result<Self, MemoryNameError> {
        text.parse()
    }
}

impl Serialize for MemoryScope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where an entry's content may come from, as the daemon saw it: `web:host`, `process`, `skill:id`, `memory:mem_…`,
/// `person:user:x`, `agent:agent:x`, or what a person said.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemorySource(String);

impl MemorySource {
    /// A source by its name: printable, and cut where it is too long.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| !c.is_control()).take(MAX_SOURCE).collect())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An entry as listings show it and as the journal keeps it, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRecord {
    /// The entry's id.
    pub entry_id: MemoryId,
    /// Who it is for.
    pub scope: MemoryScope,
    /// Who retained it.
    pub principal: Principal,
    /// Who proposed that, where it was somebody else.
    pub proposed_by: Principal,
    /// The call that retained it; none where a person did it without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The session in which it was retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where its content may come from.
    pub sources: Vec<MemorySource>,
    /// How far it is trusted.
    pub trust: MemoryTrust,
    /// When it was retained.
    pub at: Timestamp,
    /// The length of its text in bytes.
    pub bytes: u64,
}

/// What the daemon stamps on calls that use memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUse {
    /// What is done.
    pub verb: MemoryVerb,
    /// The kind of scope that the call names: `principal`, `workspace`, `session`; all of the caller's own where it
    /// names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_kind: Option<String>,
}

/// What a call does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryVerb {
    /// It looks for entries.
    Search,
    /// It adds an entry.
    Retain,
}

/// The flag of an output whose texts are withheld from the journal.
const WITHHELD: &str = "texts_withheld";

/// Seals each text in an output's list `entries`: a random salt and the digest of both are added. The journal and the
/// attestation hold the digest, the caller gets all three, so that the caller can prove what it was told and the
/// journal does not keep it.
pub fn seal_texts(output: &mut Value, mut salt: impl FnMut() -> [u8; 16]) {
    if let Some(fields) = output.as_object_mut() {
        fields.insert(WITHHELD.to_owned(), Value::Bool(true));
    }
    for entry in output.get_mut("entries").and_then(Value::as_array_mut).into_iter().flatten() {
        let salt: String = salt().iter().map(|byte| format!("{byte:02x}")).collect();
        let Some(text) = entry.get("text").and_then(Value::as_str) else { continue };
        let digest = sealed(&salt, text);
        entry["salt"] = Value::String(salt);
        entry["text_sha256"] = Value::String(digest.to_string());
    }
}

fn sealed(salt: &str, text: &str) -> Digest {
    DigestBuilder::new("palyra.withheld-text.v1").field(salt.as_bytes()).field(text.as_bytes()).finish()
}

/// An output as it is recorded and attested: without texts that fit their seals. A text that does not fit stays, so
/// that the output's digest is another than the attested one. What is recorded already is left as it is.
#[must_use]
pub fn recorded_output(output: &Value) -> Cow<'_, Value> {
    if output.get(WITHHELD) != Some(&Value::Bool(true)) {
        return Cow::Borrowed(output);
    }
    let mut recorded = output.clone();
    for entry in recorded.get_mut("entries").and_then(Value::as_array_mut).into_iter().flatten() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let fits = match (text("salt"), text("text"), text("text_sha256")) {
            (Some(salt), Some(text), Some(digest)) => sealed(salt, text).to_string() == digest,
            _ => false,
        };
        if let Some(fields) = entry.as_object_mut().filter(|_| fits) {
            fields.remove("text");
            fields.remove("salt");
        }
    }
    Cow::Owned(recorded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scopes_round_trip_and_sessions_belong_to_their_principals() {
        for text in ["principal:agent:demo", "session:agent:demo/work/1", "session:user:local/a:b"] {
            assert_eq!(text.parse::<MemoryScope>().unwrap().to_string(), text);
        }
        for bad in ["", "global", "principal:", "session:agent:demo", "workspace:x", "principal:agent:a b"] {
            assert!(bad.parse::<MemoryScope>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_withheld_text_is_proved_by_its_salt_and_not_recorded() {
        let mut told = json!({ "entries": [{ "entry_id": "a", "text": "the code is 4711" }] });
        seal_texts(&mut told, || [7; 16]);
        let recorded = recorded_output(&told).into_owned();
        assert!(!recorded.to_string().contains("4711") && !recorded.to_string().contains("0707"));
        assert_eq!(*recorded_output(&recorded), recorded);
        let mut forged = told.clone();
        forged["entries"][0]["text"] = json!("the code is 4712");
        assert_ne!(*recorded_output(&forged), recorded);
        let plain = json!({ "entries": [{ "text": "x" }] });
        assert_eq!(*recorded_output(&plain), plain);
    }

    #[test]
    fn trust_is_ordered_from_outside_in() {
        assert!(MemoryTrust::External < MemoryTrust::Agent && MemoryTrust::Agent < MemoryTrust::Person);
    }
}
