//! Asking the person at the client, where their answer would count.
//!
//! A question is put to a client only if the engine would take this principal's answer: never to an agent, whose client
//! might answer for it. The answer goes the way of every other, and is checked there again.

use palyra_engine::{Answer, Engine, VerifiedPeer};
use palyra_protocol::review::plain;
use palyra_protocol::{ApprovalDecision, ApprovalRecord, ApprovalScope, GrantMatcher, Review};
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::{ElicitationMode, Peer, PeerRequestOptions, RequestContext};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The longest question that is put to a client. Who is shown a part of a call must not approve the whole: a longer one
/// is left to the approval screen.
const MAX_QUESTION: usize = 16 << 10;

/// A question that the client was asked. Dropping it takes the question back.
pub(super) struct Question {
    answered: oneshot::Receiver<()>,
    _withdraw: DropGuard,
}

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
        let (done, answered) = oneshot::channel();
        let withdrawn = CancellationToken::new();
        let withdraw = withdrawn.clone().drop_guard();
        // A task of its own, so that it can still take the question back when nobody waits for the answer.
        tokio::spawn(async move {
            let Some(message) = question(&engine.review_of(&peer, &asked).await) else { return drop(done) };
            if let Some(decision) = ask(&client, message, withdrawn).await {
                decide(&engine, &peer, &asked, decision).await;
            }
            drop(done);
        });
        Some(Self { answered, _withdraw: withdraw })
    }
}

/// Waits until the client's person has answered; for ever when nobody was asked.
pub(super) async fn answered(question: &mut Option<Question>) {
    match question {
        // Nothing is sent: the other side goes when it is done.
        Some(question) => drop((&mut question.answered).await),
        None => std::future::pending().await,
    }
}

/// The approval as every screen shows it; nothing if it is too long to be shown whole.
fn question(review: &Review) -> Option<String> {
    let text = format!(
        "{} wants to call {} (risk {}).\n\n{}\nAllow this call, once? ({})",
        review.principal,
        review.tool,
        review.risk,
        plain(review),
        review.approval_id
    );
    (text.len() <= MAX_QUESTION && review.is_whole()).then_some(text)
}

async fn ask(client: &Peer<RoleServer>, message: String, withdrawn: CancellationToken) -> Option<ApprovalDecision> {
    let requested_schema = ElicitationSchema::builder().required_bool("allow").build().ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let sent = client.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
    let mut sent = sent.inspect_err(|error| tracing::debug!(%error, "the client did not ask its person")).ok()?;
    let said = tokio::select! {
        said = &mut sent.rx => said.ok()?,
        () = withdrawn.cancelled() => {
            // Answered elsewhere, or the call has ended.
            drop(sent.cancel(Some("the approval has been answered".to_owned())).await);
            return None;
        }
    };
    match said {
        Ok(ClientResult::ElicitResult(ElicitResult {
            action: ElicitationAction::Accept,
            content: Some(content),
            ..
        })) => match content.get("allow")?.as_bool()? {
            true => Some(ApprovalDecision::Allow),
            false => Some(ApprovalDecision::Deny),
        },
        Ok(ClientResult::ElicitResult(ElicitResult { action: ElicitationAction::Decline, .. })) => {
            Some(ApprovalDecision::Deny)
        }
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
        digest: Some(asked.call_digest),
        signature: None,
    };
    if let Err(error) = engine.decide_approval(peer, answer).await {
        tracing::debug!(%error, "an answer did not count");
    }
}
