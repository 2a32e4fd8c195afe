//! The documents that answers hold. They are the journal's own: one shape everywhere. What stands here describes them
//! for the OpenAPI document; a test holds the descriptions to the records.

use super::problem::Refused;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use palyra_engine::CallUpdate;
use palyra_protocol::{ApprovalRecord, Problem, ToolDecision, ToolOutcome};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// A document as an answer.
pub(super) fn told<T: Serialize>(status: StatusCode, document: &T) -> Result<Response, Refused> {
    let text = serde_json::to_vec(document).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a record has no document");
        let problem = Problem::plain("internal", "a record cannot be told");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, problem)
    })?;
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok((status, [json], text).into_response())
}

/// Where a call stands, with all that is known by now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Call {
    pub(super) call_id: String,
    #[schema(value_type = CallState)]
    pub(super) state: &'static str,
    /// The tool as it was named.
    pub(super) tool: String,
    pub(super) session: String,
    pub(super) run: String,
    /// What policy said: told to whoever has followed the call since then, and in the journal for everybody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Decision>)]
    pub(super) decision: Option<Arc<ToolDecision>>,
    /// The question that a person is asked, or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Approval>)]
    pub(super) approval: Option<Arc<ApprovalRecord>>,
    /// How it ended, once it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Outcome>)]
    pub(super) outcome: Option<Arc<ToolOutcome>>,
    /// The call was known already, by its idempotency key.
    pub(super) replayed: bool,
}

impl From<CallUpdate> for Call {
    fn from(update: CallUpdate) -> Self {
        Self {
            call_id: update.call_id.into(),
            state: update.state.as_str(),
            tool: update.tool,
            session: update.session.into(),
            run: update.run.into(),
            decision: update.decision,
            approval: update.approval,
            outcome: update.outcome,
            replayed: update.replayed,
        }
    }
}

/// Where a call stands. After the first four nothing changes any more, `rejected` and those behind it are ends.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "a description")]
pub(super) enum CallState {
    Proposed,
    AwaitingApproval,
    Approved,
    Executing,
    Rejected,
    Denied,
    Expired,
    Cancelled,
    Succeeded,
    Failed,
    Indeterminate,
}

/// How a call ended.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(super) struct Outcome {
    call_id: String,
    state: CallState,
    /// What the tool returned, when it ran.
    output: Option<Value>,
    /// What went wrong, when something did.
    #[schema(inline)]
    problem: Option<Fault>,
    /// The daemon's signed statement, when it ran.
    attestation: Option<BTreeMap<String, Value>>,
    /// Milliseconds since 1970.
    ended_at: u64,
}

/// What went wrong.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(super) struct Fault {
    /// The stable machine code.
    code: String,
    message: String,
    /// What to do next.
    hint: Option<String>,
}

/// What policy decided, and why.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(super) struct Decision {
    decision_id: String,
    /// `allow`, `needs_approval` or `deny`
    decision: String,
    policy_hash: String,
    /// The digest of the call that it is about.
    call_digest: Option<String>,
    /// The rules that decided.
    rules: Vec<String>,
    summary: String,
    /// How many different people have to approve, where people are asked.
    people: Option<u32>,
    /// Whether they have to approve this very call, because a rule counts them: no grant covers it.
    fresh: Option<bool>,
    /// What it was made from besides the call.
    #[schema(inline)]
    basis: Option<Basis>,
    explanation: Value,
}

/// What a decision was made from besides the call.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(super) struct Basis {
    /// The operator let the tool be called at all.
    allowlisted: bool,
    capabilities: Option<Vec<String>>,
    /// `low`, `medium`, `high` or `critical`
    risk: String,
}

/// A question to a person, and its answer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(super) struct Approval {
    approval_id: String,
    call_id: String,
    subject_id: String,
    tool: String,
    call_digest: String,
    decision_id: String,
    policy_hash: String,
    /// `low`, `medium`, `high` or `critical`
    risk: String,
    principal: String,
    proposed_by: String,
    session: String,
    /// What will run, exactly.
    input: Value,
    /// What it will touch.
    facets: BTreeMap<String, Value>,
    /// Why a person is asked.
    why: String,
    /// Milliseconds since 1970.
    requested_at: u64,
    /// Milliseconds since 1970.
    expires_at: u64,
    state: ApprovalState,
    resolution: Option<BTreeMap<String, Value>>,
}

/// Where a question stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "a description")]
pub(super) enum ApprovalState {
    Pending,
    Allowed,
    Denied,
    Expired,
    Cancelled,
}
