//! Calls, decisions, approvals and attestations as the journal holds them, with nothing in them but what they need.

use palyra_protocol::call::ToolCallParts;
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalState, ApprovalSubject, AttestationId, Authority, CallId, CallRecord,
    CallState, CanonicalJson, Carrier, DecisionId, DecisionKind, Digest, ExecutionStatement, Facets, IdempotencyKey,
    Origin, Principal, RiskLevel, Timestamp, ToolCall, ToolDecision,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The digest of the rules that decided.
#[must_use]
pub fn policy_hash() -> Digest {
    Digest::of(b"policy")
}

/// `agent:demo`, proposed by the local owner at the command line.
#[must_use]
pub fn origin() -> Origin {
    Origin {
        principal: "agent:demo".parse().expect("a principal"),
        proposed_by: Principal::local_owner(),
        channel: "cli".parse().expect("a channel"),
        device: None,
        session: "s".parse().expect("a session"),
        run: "r".parse().expect("a run"),
        workspace: None,
        request: None,
        token: None,
        carrier: Carrier::Daemon,
    }
}

/// A call of `palyra.echo`.
#[must_use]
pub fn call(origin: Origin, input: Value, idempotency_key: Option<IdempotencyKey>) -> Arc<CallRecord> {
    let parts = ToolCallParts {
        id: CallId::mint(),
        tool: "palyra.echo".parse().expect("a tool"),
        input: CanonicalJson::from_value(input).expect("canonical JSON"),
        workspace_root: "/srv".to_owned(),
        facets: Facets::default(),
        origin,
        idempotency_key,
    };
    ToolCall::new(parts).expect("a call").record()
}

/// A decision about a call.
#[must_use]
pub fn decision(call: &CallRecord, decision: DecisionKind) -> ToolDecision {
    ToolDecision {
        decision_id: DecisionId::mint(),
        decision,
        policy_hash: policy_hash(),
        call_digest: Some(call.digest),
        rules: vec!["rule".to_owned()],
        summary: "because".to_owned(),
        people: 0,
        fresh: false,
        basis: None,
        denial: None,
        explanation: Value::Null,
    }
}

/// An approval of a call that waits.
#[must_use]
pub fn approval(call: &CallRecord) -> ApprovalRecord {
    ApprovalRecord {
        approval_id: ApprovalId::mint(),
        call_id: call.call_id.clone(),
        subject_id: format!("tool:{}", call.tool),
        subject: ApprovalSubject::ToolCall,
        tool: call.tool.clone(),
        call_digest: call.digest,
        decision_id: DecisionId::mint(),
        policy_hash: policy_hash(),
        risk: RiskLevel::High,
        principal: call.origin.principal.clone(),
        proposed_by: call.origin.proposed_by.clone(),
        token: call.origin.token.clone(),
        session: call.origin.session.clone(),
        workspace: None,
        input: call.input.clone(),
        facets: call.facets.clone(),
        why: "because".to_owned(),
        requested_at: Timestamp::from_unix_ms(1_000),
        expires_at: Timestamp::from_unix_ms(60_000),
        people: 1,
        fresh: false,
        given: vec![],
        state: ApprovalState::Pending,
        resolution: None,
    }
}

/// What is attested of a call that a built-in tool carried out.
#[must_use]
pub fn statement(call: &CallRecord) -> ExecutionStatement {
    ExecutionStatement {
        attestation_id: AttestationId::mint(),
        authority: Authority::Policy,
        call_digest: call.digest,
        call_id: call.call_id.clone(),
        decision_id: DecisionId::mint(),
        effect: None,
        executor: "builtin".to_owned(),
        exit: None,
        finished_at: Timestamp::from_unix_ms(2),
        output_sha256: Digest::ZERO,
        problem_sha256: None,
        sandbox_enforcement: json!({ "backend": "builtin", "layers": [], "tier": "none" }),
        started_at: Timestamp::from_unix_ms(1),
        state: CallState::Succeeded,
        tool: call.tool.clone(),
    }
}
