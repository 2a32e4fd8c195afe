//! Asking the person at the client, where their answer would count.
//!
//! A question is put to a client only if the engine would take this principal's answer: never to an agent, whose client
//! might answer for it. The answer goes the way of every other, and is checked there again.

use palyra_engine::{Answer, Engine, VerifiedPeer};
use palyra_protocol::{ApprovalDecision, ApprovalRecord, ApprovalScope, GrantMatcher};
use rmcp::RoleServer;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, ProtocolVersion};
use rmcp::service::{ElicitationMode, Peer, RequestContext};
use std::pin::Pin;
use std::sync::Arc;

/// A question that the client was asked.
pub(super) struct Question(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Question {
    /// Puts a question to the client's person, if an answer would count and the client can ask.
    pub(super) fn put(
        engine: Engine,
        peer: Arc<VerifiedPeer>,
        asked: &Arc<ApprovalRecord>,
        context: &RequestContext<RoleServer>,
    ) -> Option<Self> {
        // The current revision has no requests to clients; it would need the call to be made twice.
        let asks = context.protocol_version().is_some_and(|version| version < ProtocolVersion::V_2026_07_28)
            && context.peer.supported_elicitation_modes().contains(&ElicitationMode::Form);
        if !asks || !engine.may_decide(&peer, asked) {
            return None;
        }
        let (client, asked) = (context.peer.clone(), Arc::clone(asked));
        Some(Self(Box::pin(async move {
            if let Some(decision) = ask(&client, &asked).await {
                decide(&engine, &peer, &asked, decision).await;
            }
        })))
    }
}

/// Waits until the client's person has answered; for ever when nobody was asked.
pub(super) async fn answered(question: &mut Option<Question>) {
    match question {
        Some(question) => question.0.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn ask(client: &Peer<RoleServer>, asked: &ApprovalRecord) -> Option<ApprovalDecision> {
    let message = format!(
        "{} wants to call {}.\n{}\nWhy you are asked: {}\nAllow this call, once?",
        asked.principal, asked.tool, asked.input, asked.why
    );
    let requested_schema = ElicitationSchema::builder().required_bool("allow").build().ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    match client.create_elicitation(params).await {
        Ok(ElicitResult { action: ElicitationAction::Accept, content: Some(content), .. }) => {
            match content.get("allow")?.as_bool()? {
                true => Some(ApprovalDecision::Allow),
                false => Some(ApprovalDecision::Deny),
            }
        }
        Ok(ElicitResult { action: ElicitationAction::Decline, .. }) => Some(ApprovalDecision::Deny),
        // Closed without an answer: the question stays open for whoever answers it elsewhere.
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "the client did not ask its person");
            None
        }
    }
}

async fn decide(engine: &Engine, peer: &VerifiedPeer, asked: &ApprovalRecord, decision: ApprovalDecision) {
    let answer = Answer {
        approval_id: asked.approval_id.clone(),
        decision,
        scope: ApprovalScope::Once,
        matcher: GrantMatcher::ExactCall,
        reason: Some("answered in the client".to_owned()),
    };
    if let Err(error) = engine.decide_approval(peer, answer).await {
        tracing::debug!(%error, "an answer did not count");
    }
}
