//! Proposals and calls: what a caller alleges, and what was made of it.

use crate::access::ShownToken;
use crate::carrier::Carrier;
use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::facets::Facets;
use crate::id::{
    ApprovalId, CallId, ChannelId, DeviceId, GrantId, IdempotencyKey, RequestId, RunId, SessionId, WorkspaceId,
};
use crate::json::{CanonicalJson, JsonRejection, canonical_text};
use crate::principal::Principal;
use crate::problem_code::ProblemCode;
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Where a proposal comes from: established by the door, not alleged by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// In whose name the call is made.
    pub principal: Principal,
    /// Who made the proposal; differs from the principal when an owner acts as an agent.
    pub proposed_by: Principal,
    /// The door it came through.
    pub channel: ChannelId,
    /// The device it came from, when it came from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// The session it belongs to.
    pub session: SessionId,
    /// The run it belongs to.
    pub run: RunId,
    /// The workspace that it is for; none in records from before there could be several, and where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// The request that brought it, where the door gives requests ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The token that the proposer showed; none on the daemon's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// Who carries the call out once it is permitted.
    #[serde(default, skip_serializing_if = "Carrier::is_daemon")]
    pub carrier: Carrier,
}

/// What a caller alleges: nothing in it has been checked.
#[derive(Debug, Clone)]
pub struct ToolProposal {
    /// The tool's name as it was sent.
    pub tool: String,
    /// The input as it was sent.
    pub input: Vec<u8>,
    /// The caller's promise that a repetition is the same call.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Who asks, from where.
    pub origin: Origin,
}

/// A known tool with valid, canonical input: the thing that is decided, approved, executed and attested.
///
/// INVARIANT (digest_covers_call): `digest` is computed from the other fields, here and nowhere else; two calls that
/// would do different things never share one.
#[derive(Debug, Clone)]
pub struct ToolCall(Arc<CallRecord>);

/// The parts of a [`ToolCall`] before its digest is taken.
#[derive(Debug, Clone)]
pub struct ToolCallParts {
    /// The call's id.
    pub id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The validated input.
    pub input: CanonicalJson,
    /// The workspace it acts in.
    pub workspace_root: String,
    /// What it would touch.
    pub facets: Facets,
    /// Who asks, from where.
    pub origin: Origin,
    /// The caller's idempotency key.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// The digest of what a call would do: tool, canonical input, workspace and resolved facets. Who asks is not part of
/// it.
///
/// # Errors
/// The facets cannot be put into canonical form.
pub fn call_digest(
    tool: &ToolName,
    input: &CanonicalJson,
    workspace_root: &str,
    facets: &Facets,
) -> Result<Digest, JsonRejection> {
    Ok(DigestBuilder::new("palyra.tool-call.v1")
        .field(tool.as_str().as_bytes())
        .field(input.as_str().as_bytes())
        .field(workspace_root.as_bytes())
        .field(canonical_text(facets)?.as_bytes())
        .finish())
}

impl ToolCall {
    /// Makes a call of its parts and takes its digest.
    ///
    /// # Errors
    /// The facets cannot be put into canonical form.
    pub fn new(parts: ToolCallParts) -> Result<Self, JsonRejection> {
        let ToolCallParts { id, tool, input, workspace_root, facets, origin, idempotency_key } = parts;
        let digest = call_digest(&tool, &input, &workspace_root, &facets)?;
        let input = input.into_value();
        let record = CallRecord { call_id: id, tool, input, workspace_root, facets, origin, idempotency_key, digest };
        Ok(Self(Arc::new(record)))
    }

    /// The call's id.
    #[must_use]
    pub fn id(&self) -> &CallId {
        &self.0.call_id
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &ToolName {
        &self.0.tool
    }

    /// The validated input.
    #[must_use]
    pub fn input(&self) -> &Value {
        &self.0.input
    }

    /// The workspace it acts in: its real path.
    #[must_use]
    pub fn workspace_root(&self) -> &str {
        &self.0.workspace_root
    }

    /// What it would touch.
    #[must_use]
    pub fn facets(&self) -> &Facets {
        &self.0.facets
    }

    /// Who asks, from where.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The digest of what it would do.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The name approvals know its subject by.
    #[must_use]
    pub fn subject_id(&self) -> String {
        format!("tool:{}", self.0.tool)
    }

    /// What the journal keeps of it.
    #[must_use]
    pub fn record(&self) -> Arc<CallRecord> {
        Arc::clone(&self.0)
    }
}

/// A call as it is journalled when it is proposed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The call's id.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The canonical input.
    pub input: Value,
    /// The workspace it acts in.
    pub workspace_root: String,
    /// What it would touch.
    pub facets: Facets,
    /// Who asks, from where.
    pub origin: Origin,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The digest of what it would do.
    pub digest: Digest,
}

/// Where a call stands. The terminal states never change again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Under way to its decision; nothing is recorded.
    Proposed,
    /// Not a call at all: unknown tool, invalid input.
    Rejected,
    /// Policy said no, or a human did, or the budget was spent.
    Denied,
    /// Waiting for a human.
    AwaitingApproval,
    /// A human said yes; it has not started.
    Approved,
    /// Nobody answered in time.
    Expired,
    /// Withdrawn before or during execution.
    Cancelled,
    /// The intent is recorded; the effect may have begun.
    Executing,
    /// It ran and succeeded.
    Succeeded,
    /// It ran and failed.
    Failed,
    /// The daemon stopped between intent and outcome: nobody knows, and it will not run again.
    Indeterminate,
}

impl CallState {
    /// Every state.
    pub const ALL: [Self; 11] = [
        Self::Proposed,
        Self::Rejected,
        Self::Denied,
        Self::AwaitingApproval,
        Self::Approved,
        Self::Expired,
        Self::Cancelled,
        Self::Executing,
        Self::Succeeded,
        Self::Failed,
        Self::Indeterminate,
    ];

    /// The name in listings and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Approved => "approved",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Executing => "executing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Proposed | Self::AwaitingApproval | Self::Approved | Self::Executing)
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// Why a call did not succeed, in words a machine and a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The stable machine code.
    pub code: String,
    /// What happened and why.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For a denial by policy: what a program can act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Box<Denial>>,
}

/// A denial that its caller can act on. It speaks of the caller's own call and of the rules that decided, and of
/// nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The rules that decided, by id; none when nothing permits the call.
    pub rules: Vec<String>,
    /// What was missing, as far as it is the caller's to know.
    pub missing: Vec<MissingCondition>,
    /// Who could change the answer.
    pub ask: AskWhom,
    /// What to ask them for.
    pub ask_for: String,
}

/// Something that a call would have needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingCondition {
    /// The stable machine code.
    pub code: MissingCode,
    /// The same in words.
    pub message: String,
}

/// What a call can lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingCode {
    /// The tool is not on the operator's list.
    ToolNotAllowlisted,
    /// The caller is not among those who may.
    CallerNotAuthorised,
    /// Nobody may through this door.
    ChannelNotAuthorised,
    /// Only people may.
    PeopleOnly,
    /// A person has to approve.
    PersonsApproval,
    /// A rule forbids what the call would do.
    ForbiddenByRule,
    /// Something else about the call.
    OtherCondition,
    /// Policy could not be evaluated.
    PolicyError,
}

/// Who could change an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskWhom {
    /// A person who approves calls.
    Approver,
    /// Whoever writes the rules and the configuration.
    Operator,
    /// Nobody: do something else.
    Nobody,
}

impl Problem {
    /// The code, where it is one that a program acts on.
    #[must_use]
    pub fn known_code(&self) -> Option<ProblemCode> {
        ProblemCode::of(&self.code)
    }

    /// A problem with a hint.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: Some(hint.into()), denial: None }
    }

    /// A problem whose message says all there is to do.
    #[must_use]
    pub fn plain(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: None, denial: None }
    }
}

/// What allowed a call to start besides policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// Policy alone.
    Policy,
    /// A human answered for this very call.
    Approval(ApprovalId),
    /// A standing grant covered it.
    Grant(GrantId),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// The call.
    pub call_id: CallId,
    /// Its final state.
    pub state: CallState,
    /// What the tool returned, when it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The signed statement, when it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<crate::attestation::ToolAttestation>,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl ToolOutcome {
    /// The outcome of a call that did not run, or of which nobody knows.
    #[must_use]
    pub fn without_output(call_id: CallId, state: CallState, problem: Problem, ended_at: Timestamp) -> Self {
        Self { call_id, state, output: None, problem: Some(problem), attestation: None, ended_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Vector {
        name: String,
        tool: ToolName,
        input: String,
        workspace_root: String,
        facets: Facets,
        canonical_input: String,
        digest: Digest,
    }

    /// The published vectors: whoever implements the digest elsewhere checks against the same file.
    #[test]
    fn digest_covers_call() {
        let vectors: Vec<Vector> = serde_json::from_str(include_str!("../vectors/call_digest.json")).unwrap();
        assert!(vectors.len() >= 6);
        let mut seen = std::collections::HashSet::new();
        for v in vectors {
            let input = CanonicalJson::parse(v.input.as_bytes()).unwrap();
            assert_eq!(input.as_str(), v.canonical_input, "{}", v.name);
            let digest = call_digest(&v.tool, &input, &v.workspace_root, &v.facets).unwrap();
            assert_eq!(digest, v.digest, "{}: got {digest}", v.name);
            assert!(seen.insert(digest), "{} shares its digest with another vector", v.name);
        }
    }

    #[test]
    fn states_have_distinct_names() {
        for state in CallState::ALL {
            assert_eq!(CallState::parse(state.as_str()), Some(state));
        }
    }
}
