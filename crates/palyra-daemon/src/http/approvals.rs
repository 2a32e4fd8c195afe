//! Questions to people. Only a person's token that holds the right sees and answers them.

use super::Door;
use super::payload::{Asked, Caller, Id, Payload};
use super::problem::{Refusals, Refused};
use super::records::{Approval, told};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use palyra_engine::{Answer, AnswerSignature, ApprovalFilter, MAX_LISTED};
use palyra_protocol::review::Row;
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalRecord, ApprovalScope, ConsoleKey, ConsoleSignature, Digest, GrantMatcher,
    Review,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Those that have ended as well.
    #[serde(default)]
    all: bool,
    /// Those that were asked after this one.
    #[serde(default)]
    after: Option<ApprovalId>,
}

/// Questions.
#[derive(Debug, Serialize, ToSchema)]
struct Approvals {
    #[schema(value_type = Vec<Approval>)]
    approvals: Vec<ApprovalRecord>,
    /// Others follow: ask again, with the last of these as `after`.
    more: bool,
}

/// The questions that wait, oldest first.
#[utoipa::path(
    get,
    path = "/v1/approvals",
    operation_id = "list_approvals",
    params(
        ("all" = Option<bool>, Query, description = "Those that have ended as well"),
        ("after" = Option<String>, Query, description = "Those that were asked after this one"),
    ),
    responses((status = 200, description = "The questions", body = Approvals, content_type = "application/json"), Refusals)
)]
pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let filter = if which.all { ApprovalFilter::Newest(MAX_LISTED) } else { ApprovalFilter::Pending };
    let page = door.engine.approvals(&caller.peer, filter, which.after.as_ref()).await?;
    told(StatusCode::OK, &Approvals { approvals: page.records, more: page.more })
}

/// An approval, and what a person is shown before they answer.
#[derive(Debug, Serialize, ToSchema)]
struct Reviewed {
    #[schema(value_type = Approval)]
    approval: ApprovalRecord,
    /// What would run by its parts, what would change, what would hold it, why a person is asked with the rules' text,
    /// and the grants that a yes could leave with what each would have answered.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    review: Review,
    /// The review as rows of text in which everything that could deceive a reader is visible.
    #[schema(value_type = Vec<serde_json::Value>)]
    rows: Vec<Row>,
}

/// One approval with its review.
#[utoipa::path(
    get,
    path = "/v1/approvals/{approval_id}",
    operation_id = "show_approval",
    params(("approval_id" = String, Path, description = "The approval")),
    responses((status = 200, description = "The approval and its review", body = Reviewed, content_type = "application/json"), Refusals)
)]
pub(super) async fn show(
    State(door): State<Door>,
    caller: Caller,
    Id(approval_id): Id<ApprovalId>,
) -> Result<Response, Refused> {
    let approval = door.engine.approval(&caller.peer, &approval_id).await?;
    let review = door.engine.review_of(&caller.peer, &approval).await;
    let rows = review.rows();
    told(StatusCode::OK, &Reviewed { approval, review, rows })
}

/// A person's answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    #[schema(value_type = Verdict)]
    decision: ApprovalDecision,
    /// How long a yes holds: for this call alone if nothing is said.
    #[serde(default = "once")]
    #[schema(value_type = Scope)]
    scope: ApprovalScope,
    /// How wide a yes is: exactly this call if nothing is said.
    #[serde(default = "exactly")]
    #[schema(value_type = Width)]
    matcher: GrantMatcher,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: Option<String>,
    /// The digest that was shown: an answer about something else is refused.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    digest: Option<Digest>,
    /// The signature of a paired device, by the key of its certificate. Other callers have none.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    signature: Option<ConsoleSignature>,
    /// The device's key: `p256:` and hexadecimal digits.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    signing_key: Option<ConsoleKey>,
}

fn once() -> ApprovalScope {
    ApprovalScope::Once
}

fn exactly() -> GrantMatcher {
    GrantMatcher::ExactCall
}

/// Yes or no.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "a description")]
enum Verdict {
    Allow,
    Deny,
}

/// How long a yes holds: `"once"`, `"session"` or `{"window": {"ms": 60000}}`.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "a description")]
enum Scope {
    Once,
    Session,
    Window {
        #[schema(minimum = 1, maximum = 86_400_000)]
        ms: u64,
    },
}

/// How wide a yes is: `"exact_call"`, `"tool"`, `{"argv_prefix": {"words": ["git", "status"]}}`,
/// `{"path_prefix": {"directory": "src"}}` or `{"host_method": {"host": "example.org", "method": "GET"}}`.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "a description")]
enum Width {
    ExactCall,
    ArgvPrefix { words: Vec<String> },
    PathPrefix { directory: String },
    HostMethod { host: String, method: String },
    Tool,
}

/// Answer a question. The call that waits goes on at once.
#[utoipa::path(
    post,
    path = "/v1/approvals/{approval_id}/decide",
    operation_id = "decide_approval",
    params(("approval_id" = String, Path, description = "The question")),
    request_body(content = Decide, content_type = "application/json"),
    responses((status = 200, description = "The question, answered", body = Approval, content_type = "application/json"), Refusals)
)]
pub(super) async fn decide(
    State(door): State<Door>,
    caller: Caller,
    Id(approval_id): Id<ApprovalId>,
    Payload(decide): Payload<Decide>,
) -> Result<Response, Refused> {
    let Decide { decision, scope, matcher, reason, digest, signature, signing_key: key } = decide;
    let signature = signature.map(|signature| AnswerSignature { signature, key, confirmation: None });
    let answer = Answer { approval_id, decision, scope, matcher, reason, digest, signature };
    let record = door.engine.decide_approval(&caller.peer, answer).await?;
    // In the span of its request, which is where its id is.
    tracing::info!(by = %caller.peer.effective(), approval = %record.approval_id, state = record.state.as_str(), "answered");
    told(StatusCode::OK, &*record)
}
