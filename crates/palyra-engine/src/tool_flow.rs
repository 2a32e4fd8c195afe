//! The one path of a tool call. Every door calls it; none has a flow of its own.
//!
//! ```text
//! bytes ──resolve──▶ ToolCall ──decide──▶ ToolDecision ──clear──▶ Recorded<Permit>
//!       ──execute──▶ Execution ──attest──▶ ToolAttestation ──record──▶ ToolOutcome
//! ```
//!
//! The intent is durable before the effect and the outcome before the answer. A call runs in a task of its own: losing
//! the connection that proposed it loses neither the call nor its outcome.

use crate::access::VerifiedPeer;
use crate::clear::{Cleared, KEY_REUSED, key_reused};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::live::{CallUpdate, LiveCall, Withdrawal};
use crate::output::OutputWatcher;
use crate::permit::Permit;
use crate::reconsider::POLICY_CHANGED;
use crate::resolve::Refusal;
use crate::unrecorded::Owed;
use palyra_access::Admitted;
use palyra_journal::{Finish, JournalError, Recorded, Refused, RefusedCall};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::json::canonical_text;
use palyra_protocol::{
    CallId, CallState, CanonicalJson, Digest, IdempotencyKey, Origin, Problem, RequestId, RunId, SessionId,
    ToolOutcome, ToolProposal,
};
use std::sync::Arc;
use tokio::sync::{broadcast, oneshot};

/// What a door hands over: who asks is the peer, the rest is alleged.
#[derive(Debug, Clone, Default)]
pub struct Proposal {
    /// The tool's name as it was sent.
    pub tool: String,
    /// The input as it was sent.
    pub input: Vec<u8>,
    /// The session, if the caller names one.
    pub session: Option<SessionId>,
    /// The run, if the caller names one.
    pub run: Option<RunId>,
    /// The caller's promise that a repetition is the same call.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The request that brings it, as the door names it.
    pub request: Option<RequestId>,
}

/// A call under way: its states as they come, and its end.
#[derive(Debug)]
pub struct CallInProgress {
    /// The call's id.
    pub call_id: CallId,
    /// Its states.
    pub updates: broadcast::Receiver<CallUpdate>,
    /// What its process writes.
    pub output: OutputWatcher,
    /// Its end. An error means that nothing was carried out that is not recorded.
    pub end: oneshot::Receiver<Result<CallUpdate, EngineError>>,
}

/// A call that somebody watches.
#[derive(Debug)]
pub struct CallWatch {
    /// Where it stands.
    pub now: CallUpdate,
    /// What follows; none for a call that is not under way.
    pub news: Option<broadcast::Receiver<CallUpdate>>,
    /// What its process writes; none for a call that is not under way.
    pub output: Option<OutputWatcher>,
}

impl Engine {
    /// Proposes a call. It goes its way whether or not anybody keeps listening.
    #[must_use]
    pub fn propose(&self, peer: &VerifiedPeer, proposal: Proposal) -> CallInProgress {
        let (token, barred) = match self.room_for_call(peer, &proposal.tool) {
            Ok(token) => (token, None),
            Err(barred) => (peer.token().cloned(), Some(barred.problem)),
        };
        let proposal = alleged(peer, token, proposal);
        let call_id = CallId::mint();
        let as_proposed = (proposal.tool.as_str(), CallState::Proposed);
        let (live, crowded) = self.live().enter(&call_id, as_proposed, &proposal.origin, Some(&self.config().limits));
        let barred = barred.or(crowded);
        let (_, updates) = live.follow();
        let output = live.output().watch();
        let (ended, end) = oneshot::channel();
        let engine = self.clone();
        let id = call_id.clone();
        tokio::spawn(async move {
            let result = match barred {
                Some(barred) => engine.record_refusal(&id, &proposal, Refusal::for_now(barred)).await,
                None => engine.run_tool_call(&id, &proposal, &live).await,
            };
            let result = engine.note_reused_key(&id, &proposal, result).await;
            let result = engine.conclude(&id, &live, result).await;
            // Whoever proposed may have gone; the journal keeps the outcome.
            drop(ended.send(result));
        });
        CallInProgress { call_id, updates, output, end }
    }

    /// The path itself: this is the diagram above as code.
    async fn run_tool_call(
        &self,
        id: &CallId,
        proposal: &ToolProposal,
        live: &LiveCall,
    ) -> Result<Ending, EngineError> {
        if let Some(earlier) = self.earlier(proposal).await? {
            return Ok(Ending::Earlier(earlier));
        }
        loop {
            let resolved = match self.resolve(id, proposal).await {
                Ok(resolved) => resolved,
                Err(refusal) => return self.record_refusal(id, proposal, refusal).await,
            };
            let decision = Arc::new(self.decide(&resolved.call));
            let decided_by = decision.policy_hash;
            live.update(|now| now.decision = Some(Arc::clone(&decision)));
            return match self.clear(resolved, decision, live).await {
                Ok(Cleared::Permitted(permit)) => Ok(self.carry_out(permit, live).await),
                Ok(Cleared::Ended(outcome)) => Ok(Ending::Own(outcome)),
                Ok(Cleared::Earlier(call_id)) => Ok(Ending::Earlier(call_id)),
                Ok(Cleared::Owing(owed, cause)) => Ok(Ending::Owing(owed, cause)),
                Ok(Cleared::Crowded(problem)) => self.record_refusal(id, proposal, Refusal::for_now(problem)).await,
                // Other rules took over before anything was recorded: they decide.
                Err(error) if error.problem.code == POLICY_CHANGED && decided_by != self.policy_hash() => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// The call that this one repeats, by its idempotency key. Asked before anything is resolved: what the earlier call
    /// was about may be gone by now, and its outcome is still the answer.
    async fn earlier(&self, proposal: &ToolProposal) -> Result<Option<CallId>, EngineError> {
        if self.closing().is_cancelled() {
            let problem = Problem::new("shutting_down", "the daemon is shutting down", "try again after its restart");
            return Err(EngineError::new(ErrorKind::Unavailable, problem));
        }
        let Some(key) = &proposal.idempotency_key else { return Ok(None) };
        let found = self.journal().call_by_key(&proposal.origin.principal, key).await?;
        let Some((call_id, _)) = found else { return Ok(None) };
        let earlier = self.journal().call(&call_id).await?;
        let same = match earlier.record {
            Some(earlier) => {
                let input = CanonicalJson::parse(&proposal.input);
                let repeated =
                    input.is_ok_and(|input| canonical_text(&earlier.input).is_ok_and(|text| text == input.as_str()));
                earlier.tool.as_str() == proposal.tool && repeated
            }
            // It was refused before it was a call; what was sent is all that there was.
            None => earlier.tool == excerpt(&proposal.tool) && earlier.digest == Digest::of(&proposal.input),
        };
        if same { Ok(Some(call_id)) } else { Err(key_reused(&call_id)) }
    }

    /// Another call under a known key is on record like any other refusal.
    async fn note_reused_key(
        &self,
        id: &CallId,
        proposal: &ToolProposal,
        result: Result<Ending, EngineError>,
    ) -> Result<Ending, EngineError> {
        match result {
            Err(error) if error.problem.code == KEY_REUSED => {
                let refusal = Refusal { state: CallState::Rejected, problem: error.problem.clone(), lasting: false };
                self.record_refusal(id, proposal, refusal).await?;
                Err(error)
            }
            result => result,
        }
    }

    /// The second half of the path: everything after the intent is durable.
    pub(crate) async fn carry_out(&self, permit: Recorded<Permit>, live: &LiveCall) -> Ending {
        live.update(|now| now.state = CallState::Executing);
        let execution = match self.execute(permit, live).await {
            Ok(execution) => execution,
            Err((call_id, unrecorded)) => {
                tracing::error!(error = &unrecorded as &dyn std::error::Error, call = %call_id, "a call is indeterminate");
                let (from, state) = (CallState::Executing, CallState::Indeterminate);
                let owed = Owed::End { from, state, problem: unrecorded.problem() };
                return Ending::Owing(owed, JournalError::Event { reason: unrecorded.to_string() });
            }
        };
        let attested = self.attest(&execution).map_err(|e| JournalError::Event { reason: e.to_string() });
        let result = execution.result;
        let finish = attested.and_then(|attestation| {
            Finish::new(result.state, result.output, result.problem, attestation, &execution.connections)
        });
        let finish = match finish {
            Ok(finish) => finish,
            Err(error) => return Ending::Owing(Owed::unknown_outcome(), error),
        };
        match self.journal().finish_call(&finish).await {
            Ok(ended_at) => match finish.into_outcome(ended_at) {
                Ok(outcome) => Ending::own(outcome),
                Err(error) => Ending::Owing(Owed::unknown_outcome(), error),
            },
            Err(error) => Ending::Owing(Owed::Outcome(Box::new(finish)), error),
        }
    }

    async fn record_refusal(
        &self,
        id: &CallId,
        proposal: &ToolProposal,
        refusal: Refusal,
    ) -> Result<Ending, EngineError> {
        let Refusal { state, problem, lasting } = refusal;
        let refused = RefusedCall {
            call_id: id.clone(),
            tool: excerpt(&proposal.tool),
            input_sha256: Digest::of(&proposal.input),
            origin: proposal.origin.clone(),
            state,
            problem,
            idempotency_key: proposal.idempotency_key.clone().filter(|_| lasting),
        };
        Ok(match self.journal().refuse_call(refused).await? {
            Refused::Recorded(outcome) => Ending::Own(outcome),
            Refused::Duplicate(earlier) => Ending::Earlier(earlier),
        })
    }

    /// Tells the followers how a call ended and lets it go.
    pub(crate) async fn conclude(
        &self,
        id: &CallId,
        live: &Arc<LiveCall>,
        result: Result<Ending, EngineError>,
    ) -> Result<CallUpdate, EngineError> {
        let update = match result {
            Ok(Ending::Own(outcome)) => {
                live.update(|now| {
                    now.state = outcome.state;
                    now.outcome = Some(Arc::from(outcome));
                });
                Ok(live.follow().0)
            }
            Ok(Ending::Earlier(earlier)) => {
                // Whoever waits learns at once which call to ask about, and then how it goes.
                live.update(|now| {
                    now.call_id = earlier.clone();
                    now.replayed = true;
                });
                self.live().leave(id);
                let tell = |update: &CallUpdate| {
                    live.update(|now| *now = CallUpdate { replayed: true, ..update.clone() });
                };
                return self.end_of(&earlier, tell).await.map(|update| CallUpdate { replayed: true, ..update });
            }
            Ok(Ending::Owing(owed, cause)) => return Err(self.owe(id, live, owed, &cause)),
            Err(error) => Err(error),
        };
        self.live().leave(id);
        update
    }

    /// Waits for the end of a call, wherever it stands, and tells where it stands until then.
    async fn end_of(&self, call_id: &CallId, tell: impl Fn(&CallUpdate)) -> Result<CallUpdate, EngineError> {
        // The one that is under way is asked first, so that an end between the two questions is not missed.
        let live = self.live().get(call_id);
        let stored = self.call_update(call_id).await?;
        if stored.state.is_terminal() {
            return Ok(stored);
        }
        if let Some(live) = live {
            let (now, mut news) = live.follow();
            drop(live);
            let mut next = Ok(now);
            while let Ok(update) = next {
                if let Some(error) = update.unrecorded() {
                    return Err(error);
                }
                if update.outcome.is_some() {
                    return Ok(update);
                }
                tell(&update);
                next = news.recv().await;
            }
        }
        self.call_update(call_id).await
    }

    /// A call as the journal knows it.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn call(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        self.call_update(call_id).await
    }

    /// Waits until a call ends and returns its end.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn follow(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        self.end_of(call_id, |_| {}).await
    }

    /// What a call's process writes, from the oldest part that is still buffered; nothing for a call that is not under way.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn watch_output(
        &self,
        peer: &VerifiedPeer,
        call_id: &CallId,
    ) -> Result<Option<OutputWatcher>, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        Ok(self.live().get(call_id).map(|live| live.output().watch()))
    }

    /// Where a call stands, and all that follows.
    ///
    /// # Errors
    /// There is none, or the peer may not see it.
    pub async fn watch_call(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallWatch, EngineError> {
        self.authorize_call(peer, PolicyAction::CallRead, call_id).await?;
        // Listening begins before the call is looked at, so that nothing happens in between.
        let live = self.live().get(call_id);
        let (news, output) = live.map(|live| (live.follow().1, live.output().watch())).unzip();
        let now = self.call_update(call_id).await?;
        Ok(CallWatch { now, news, output })
    }

    /// Withdraws a call that waits, or ends one that runs; returns its end.
    ///
    /// # Errors
    /// There is none, the peer may not, or it has ended already.
    pub async fn cancel(&self, peer: &VerifiedPeer, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        self.authorize_call(peer, PolicyAction::CallCancel, call_id).await?;
        let now = self.call_update(call_id).await?;
        if now.state.is_terminal() {
            let message = format!("the call has ended already: {}", now.state.as_str());
            return Err(EngineError::new(ErrorKind::Conflict, Problem::plain("call_moved", message)));
        }
        if let Some(live) = self.live().get(call_id) {
            live.withdraw(Withdrawal::By(peer.effective().clone()));
        }
        self.end_of(call_id, |_| {}).await
    }

    async fn authorize_call(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        call_id: &CallId,
    ) -> Result<(), EngineError> {
        // Whoever may not do this to any call does not learn whether there is this one.
        self.admit(peer, action, None)?;
        let owner = self.journal().call(call_id).await?.principal;
        let context = PolicyRequestContext { owned_by: Some(owner), ..self.at_door(peer) };
        let call = PolicyResource::Call(call_id.to_string());
        let asked = self.authorize(peer, action, call.clone(), Some(context.clone()));
        asked.map_err(|error| {
            let known = self.would_allow(peer, PolicyAction::CallRead, call, &context);
            // A call that is not the caller's to know about looks like one that does not exist.
            if known || error.kind != ErrorKind::Forbidden { error } else { unknown_call(call_id) }
        })
    }

    async fn call_update(&self, call_id: &CallId) -> Result<CallUpdate, EngineError> {
        let view = self.journal().call(call_id).await?;
        let approval = match self.journal().approval_of_call(call_id).await {
            Ok(approval) => Some(Arc::new(approval)),
            Err(JournalError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(CallUpdate {
            call_id: view.call_id,
            state: view.state,
            tool: view.tool,
            session: view.session,
            run: view.run,
            decision: None,
            approval,
            outcome: view.outcome.map(Arc::new),
            unrecorded: None,
            replayed: false,
        })
    }
}

fn unknown_call(call_id: &CallId) -> EngineError {
    JournalError::NotFound { what: "call", id: call_id.to_string() }.into()
}

/// How a call's way ended: with an outcome of its own, at an earlier call with the same key, or with an end that is not on
/// record yet.
pub(crate) enum Ending {
    Own(Box<ToolOutcome>),
    Earlier(CallId),
    Owing(Owed, JournalError),
}

impl Ending {
    pub(crate) fn own(outcome: ToolOutcome) -> Self {
        Self::Own(Box::new(outcome))
    }
}

/// A tool's name as it was sent, as much of it as is kept.
fn excerpt(tool: &str) -> String {
    tool.chars().take(128).filter(|c| !c.is_control()).collect()
}

/// The proposal with its origin: what the door has established, not what the caller says of itself.
pub(crate) fn alleged(peer: &VerifiedPeer, token: Option<Admitted>, proposal: Proposal) -> ToolProposal {
    let session = proposal.session.unwrap_or_else(SessionId::mint);
    let run = proposal.run.unwrap_or_else(|| session.default_run());
    ToolProposal {
        tool: proposal.tool,
        input: proposal.input,
        idempotency_key: proposal.idempotency_key,
        origin: Origin {
            principal: peer.effective().clone(),
            proposed_by: peer.principal().clone(),
            channel: peer.channel().clone(),
            device: None,
            session,
            run,
            request: proposal.request,
            token: token.map(|token| token.shown()),
        },
    }
}
