//! Event bodies, read only as far as replaying them needs: a journal is long, and most of it is inputs, outputs and
//! explanations that change no state.

use crate::history::CallFacts;
use palyra_protocol::chain::Link;
use palyra_protocol::{
    ApprovalRecord, ApprovalResolution, ApprovalState, Authority, CallState, DecisionKind, Digest, GivenApproval,
    GrantRecord,
};
use serde::Deserialize;
use std::borrow::Cow;

/// As much of the bodies as is needed; the rest is passed over.
#[derive(Deserialize)]
pub(crate) struct Proposed<'a> {
    #[serde(borrow)]
    pub(crate) call: ProposedCall<'a>,
}

#[derive(Deserialize)]
pub(crate) struct ProposedCall<'a> {
    #[serde(borrow)]
    pub(crate) call_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) tool: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) origin: OriginPart<'a>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Option<Cow<'a, str>>,
    pub(crate) digest: Digest,
}

impl ProposedCall<'_> {
    pub(crate) fn facts(self, opened: u64) -> CallFacts {
        CallFacts {
            call_id: self.call_id.into_owned(),
            principal: self.origin.principal.into_owned(),
            session: self.origin.session.into_owned(),
            run: self.origin.run.into_owned(),
            tool: self.tool.into_owned(),
            digest: self.digest,
            key: self.idempotency_key.map(Cow::into_owned),
            state: CallState::Proposed,
            opened,
            ended: None,
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct OriginPart<'a> {
    #[serde(borrow)]
    pub(crate) principal: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) session: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) run: Cow<'a, str>,
}

#[derive(Deserialize)]
pub(crate) struct DaemonStarted<'a> {
    #[serde(borrow, default)]
    pub(crate) journal: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(crate) struct CallsSettled {
    pub(crate) before: u64,
}

#[derive(Deserialize)]
pub(crate) struct Rejected<'a> {
    #[serde(borrow)]
    pub(crate) tool: Cow<'a, str>,
    pub(crate) input_sha256: Digest,
    #[serde(borrow)]
    pub(crate) origin: OriginPart<'a>,
    pub(crate) state: CallState,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(crate) struct Decided {
    pub(crate) decision: DecidedPart,
}

#[derive(Deserialize)]
pub(crate) struct DecidedPart {
    pub(crate) decision: DecisionKind,
    pub(crate) policy_hash: Digest,
    #[serde(default)]
    pub(crate) call_digest: Option<Digest>,
    #[serde(default)]
    pub(crate) people: u32,
    #[serde(default)]
    pub(crate) fresh: bool,
}

#[derive(Deserialize)]
pub(crate) struct Requested {
    pub(crate) approval: ApprovalRecord,
}

#[derive(Deserialize)]
pub(crate) struct Given {
    pub(crate) approval_id: String,
    pub(crate) given: GivenApproval,
}

#[derive(Deserialize)]
pub(crate) struct Rebound {
    pub(crate) approval_id: String,
    pub(crate) from: Digest,
    pub(crate) to: Digest,
}

#[derive(Deserialize)]
pub(crate) struct Resolved {
    pub(crate) approval_id: String,
    pub(crate) state: ApprovalState,
    pub(crate) resolution: ApprovalResolution,
}

#[derive(Deserialize)]
pub(crate) struct Granted {
    pub(crate) grant: GrantRecord,
}

#[derive(Deserialize)]
pub(crate) struct Revoked {
    pub(crate) grant_id: String,
}

#[derive(Deserialize)]
pub(crate) struct Voided {
    pub(crate) grants: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Started {
    pub(crate) authority: Authority,
    #[serde(default)]
    pub(crate) call_digest: Option<Digest>,
}

#[derive(Deserialize)]
pub(crate) struct Ended {
    pub(crate) state: CallState,
    #[serde(default)]
    pub(crate) grant: Option<String>,
}

/// The two kinds of bodies that are most of a journal, read only as far as their first fields, which is all that is
/// needed of them. What does not begin as this version writes it is read in full.
pub(crate) mod quick {
    use super::{CallState, DecidedPart, DecisionKind, Link};

    pub(crate) fn finished(link: &Link<'_>) -> Option<CallState> {
        let rest = about(link, r#"{"event":"tool.finished","call_id":""#)?.strip_prefix(r#"","state":""#)?;
        CallState::parse(rest.split_once('"')?.0)
    }

    pub(crate) fn decided(link: &Link<'_>) -> Option<DecidedPart> {
        let rest = about(link, r#"{"event":"tool.decided","call_id":""#)?;
        let (_, rest) = rest.strip_prefix(r#"","decision":{"decision_id":""#)?.split_once('"')?;
        let (kind, rest) = rest.strip_prefix(r#","decision":""#)?.split_once('"')?;
        let (policy_hash, rest) = rest.strip_prefix(r#","policy_hash":""#)?.split_once('"')?;
        let (call_digest, _) = rest.strip_prefix(r#","call_digest":""#)?.split_once('"')?;
        let decision = match kind {
            "allow" => DecisionKind::Allow,
            "deny" => DecisionKind::Deny,
            // How many people are needed stands further on.
            _ => return None,
        };
        let (policy_hash, call_digest) = (policy_hash.parse().ok()?, Some(call_digest.parse().ok()?));
        Some(DecidedPart { decision, policy_hash, call_digest, people: 0, fresh: false })
    }

    fn about<'a>(link: &Link<'a>, kind: &str) -> Option<&'a str> {
        link.body.strip_prefix(kind)?.strip_prefix(link.call_id)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use palyra_protocol::{CallId, DecisionId, Digest, JournalEvent, Timestamp, ToolDecision};

        /// What this version writes is read quickly, and as it would be in full.
        #[test]
        fn quick_is_right() {
            for (kind, quickly) in
                [(DecisionKind::Allow, true), (DecisionKind::Deny, true), (DecisionKind::NeedsApproval, false)]
            {
                let call_id = CallId::mint();
                let decision = ToolDecision {
                    decision_id: DecisionId::mint(),
                    decision: kind,
                    policy_hash: Digest::of(b"policy"),
                    call_digest: Some(Digest::of(b"call")),
                    rules: vec![],
                    summary: String::new(),
                    people: 0,
                    fresh: false,
                    basis: None,
                    denial: None,
                    explanation: serde_json::Value::Null,
                };
                let event = JournalEvent::ToolDecided { call_id: call_id.clone(), decision: decision.into() };
                let body = serde_json::to_string(&event).unwrap();
                let link = |body| Link {
                    seq: 1,
                    at: Timestamp::from_unix_ms(1),
                    kind: "tool.decided",
                    call_id: call_id.as_str(),
                    body,
                };
                let read = decided(&link(&body));
                assert_eq!(read.as_ref().map(|part| part.decision), quickly.then_some(kind), "{body}");
                assert!(read.as_ref().is_none_or(|part| part.policy_hash == Digest::of(b"policy")));
                assert!(read.is_none_or(|part| part.call_digest == Some(Digest::of(b"call"))));
                let end =
                    format!(r#"{{"event":"tool.finished","call_id":"{call_id}","state":"failed","output":null}}"#);
                assert_eq!(finished(&link(&end)), Some(CallState::Failed));
            }
        }
    }
}
