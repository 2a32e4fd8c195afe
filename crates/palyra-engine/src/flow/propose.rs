//! The one path of a tool call. Every door calls it; none has a flow of its own.
//!
//! ```text
//! bytes ──resolve──▶ ResolvedCall ──decide──▶ Decided ──clear──▶ Recorded<Permit>
//!       ──execute──▶ Execution ──attest──▶ ToolAttestation ──record──▶ ToolOutcome
//! ```
//!
//! The intent is durable before the effect and the outcome before the answer. A call runs in a task of its own: losing
//! the connection that proposed it loses neither the call nor its outcome.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::flow::decide::{Decided, Detail};
use crate::flow::permit::Permit;
use crate::flow::resolve::Refusal;
use crate::flow::stop::Stop;
use crate::flow::unrecorded::Unrecorded;
use crate::live::{CallUpdate, LiveCall};
use crate::output::OutputWatcher;
use crate::workspaces::WorkspaceEngine;
use palyra_access::Admitted;
use palyra_journal::{Finish, JournalError, KeyHolder, Recorded, Refused, RefusedCall};
use palyra_protocol::json::canonical_text;
use palyra_protocol::memory::recorded_output;
use palyra_protocol::routine::ROUTINE_SESSION;
use palyra_protocol::{
    CallId, CallState, CanonicalJson, Carrier, Digest, FinishedCall, IdempotencyKey, Origin, Problem, RequestId, RunId,
    SessionId, Ticket, ToolOutcome, ToolProposal,
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
    /// Who is to carry it out.
    pub carrier: Carrier,
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
    /// What starts it once it is permitted, for a call by ticket.
    pub ticket: Option<Ticket>,
}

/// Who named the session of a call. One that the daemon named is new, so it belongs to no other workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionNamed {
    ByCaller,
    ByDaemon,
}

impl Engine {
    /// Proposes a call. It goes its way whether or not anybody keeps listening.
    #[must_use]
    pub fn propose(&self, peer: &VerifiedPeer, proposal: Proposal) -> CallInProgress {
        let (token, barred) = match self.room_for_call(peer, &proposal.tool) {
            Ok(token) => (token, None),
            Err(barred) => (peer.token().cloned(), Some(barred.problem)),
        };
        let named = proposal.session.as_ref();
        let barred = barred.or_else(|| named.and_then(|session| reserved(peer, session)));
        let session = if named.is_some() { SessionNamed::ByCaller } else { SessionNamed::ByDaemon };
        let proposal = self.alleged(peer, token, proposal);
        let call_id = CallId::mint();
        let as_proposed = (proposal.tool.as_str(), CallState::Proposed);
        let (live, crowded) = self.live().enter(&call_id, as_proposed, &proposal.origin, Some(&self.config().limits));
        // Entered first: whoever removes a workspace closes it, and then looks which calls are under way.
        let (here, nowhere) = match self.working_place(peer) {
            Ok(here) => (Some(here), None),
            Err(problem) => (None, Some(problem)),
        };
        let barred = barred.or(crowded).or(nowhere);
        let (_, updates) = live.follow();
        let output = live.output().watch();
        let ticket = live.gate().map(|gate| gate.ticket().clone());
        let (ended, end) = oneshot::channel();
        let engine = self.clone();
        let id = call_id.clone();
        tokio::spawn(async move {
            let end = match (barred, here) {
                (None, Some(here)) => here.run(&id, &proposal, session, &live).await,
                (barred, _) => Err(Stop::Refused(Refusal::for_now(barred.unwrap_or_else(nowhere_to_work)))),
            };
            // Whoever proposed may have gone; the journal keeps the outcome.
            drop(ended.send(engine.conclude(&id, &proposal, &live, end).await));
        });
        CallInProgress { call_id, updates, output, end, ticket }
    }

    /// An input in the form in which calls of its tool are recorded.
    fn as_recorded(&self, tool: &str, input: CanonicalJson) -> CanonicalJson {
        if tool != crate::tools::memory_retain::NAME {
            return input;
        }
        self.memory().recorded_input(input.value()).unwrap_or(input)
    }

    /// Tells the followers how a call ended and lets it go.
    pub(crate) async fn conclude(
        &self,
        id: &CallId,
        proposal: &ToolProposal,
        live: &Arc<LiveCall>,
        end: Result<Box<ToolOutcome>, Stop>,
    ) -> Result<CallUpdate, EngineError> {
        let ended = match end {
            Ok(outcome) | Err(Stop::Ended(outcome)) => Ok(outcome),
            Err(Stop::Repeats(earlier)) => return self.repeat(id, live, &earlier).await,
            Err(Stop::Refused(refusal)) => match self.refuse(id, proposal, refusal).await {
                Ok(Refused::Recorded(outcome)) => Ok(outcome),
                Ok(Refused::KeyHeld(earlier)) => return self.repeat(id, live, &earlier).await,
                Err(error) => Err(error.into()),
            },
            Err(Stop::KeyTaken(earlier)) => {
                let error = key_reused(&earlier);
                let refusal = Refusal { lasting: false, ..Refusal::from(error.problem.clone()) };
                Err(self.refuse(id, proposal, refusal).await.map_or_else(EngineError::from, |_| error))
            }
            Err(Stop::Unrecorded(unrecorded, cause)) => return Err(self.keep(id, live, *unrecorded, &cause)),
            Err(Stop::Failed(error)) => Err(error),
        };
        let update = ended.map(|outcome| {
            live.update(|now| {
                now.state = outcome.state;
                now.outcome = Some(Arc::from(outcome));
            });
            live.follow().0
        });
        self.live().leave(id);
        update
    }

    /// Puts on record that a proposal did not become a call.
    async fn refuse(&self, id: &CallId, proposal: &ToolProposal, refusal: Refusal) -> Result<Refused, JournalError> {
        let refused = RefusedCall {
            call_id: id.clone(),
            tool: excerpt(&proposal.tool),
            input_sha256: Digest::of(&proposal.input),
            origin: proposal.origin.clone(),
            state: refusal.state,
            problem: refusal.problem,
            idempotency_key: proposal.idempotency_key.clone().filter(|_| refusal.lasting),
        };
        self.journal().refuse_call(refused).await
    }

    /// Leads the followers of a repeated call to the first.
    async fn repeat(&self, id: &CallId, live: &LiveCall, earlier: &CallId) -> Result<CallUpdate, EngineError> {
        // Whoever waits learns at once which call to ask about, and then how it goes.
        live.update(|now| {
            now.call_id = earlier.clone();
            now.replayed = true;
        });
        self.live().leave(id);
        let tell = |update: &CallUpdate| live.update(|now| *now = CallUpdate { replayed: true, ..update.clone() });
        self.end_of(earlier, tell).await.map(|update| CallUpdate { replayed: true, ..update })
    }

    /// The proposal with its origin: what the door has established, not what the caller says of itself.
    pub(crate) fn alleged(&self, peer: &VerifiedPeer, token: Option<Admitted>, proposal: Proposal) -> ToolProposal {
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
                device: token.as_ref().and_then(|token| token.device_id().cloned()),
                session,
                run,
                workspace: self.workspace_id_of(peer),
                request: proposal.request,
                token: token.map(|token| token.shown()),
                carrier: proposal.carrier,
            },
        }
    }
}

impl WorkspaceEngine {
    /// The path itself: this is the diagram above as code.
    async fn run(
        &self,
        id: &CallId,
        proposal: &ToolProposal,
        session: SessionNamed,
        live: &LiveCall,
    ) -> Result<Box<ToolOutcome>, Stop> {
        self.first_of_its_key(proposal).await?;
        if session == SessionNamed::ByCaller {
            self.session_is_here(&proposal.origin).await?.map_err(Refusal::for_now)?;
        }
        loop {
            let decided = match self.resolve(id, proposal).await {
                Ok(resolved) => self.decide(resolved),
                Err(refusal) => Decided::Denied(self.decide_unresolved(&self.policy(), refusal, Detail::AsNeeded)?),
            };
            live.update(|now| now.decision = Some(Arc::clone(decided.decision())));
            if let Some(permit) = self.clear(decided, live).await? {
                return self.carry_out(permit, live).await;
            }
        }
    }

    /// Whether the proposal is the first under its idempotency key. Asked before anything is resolved: what the earlier
    /// call was about may be gone by now, and its outcome is still the answer.
    async fn first_of_its_key(&self, proposal: &ToolProposal) -> Result<(), Stop> {
        if self.closing().is_cancelled() {
            let problem = Problem::new("shutting_down", "the daemon is shutting down", "try again after its restart");
            return Err(Stop::Failed(EngineError::new(ErrorKind::Unavailable, problem)));
        }
        let Some(key) = &proposal.idempotency_key else { return Ok(()) };
        let Some(earlier) = self.journal().call_by_key(&proposal.origin.principal, key).await? else { return Ok(()) };
        let elsewhere = self.workspace_of_call(&earlier).is_some_and(|id| id != self.workspace_record().workspace_id);
        let same = match &earlier.record {
            _ if elsewhere => false,
            Some(call) => {
                let input = CanonicalJson::parse(&proposal.input).map(|input| self.as_recorded(&proposal.tool, input));
                let repeated =
                    input.is_ok_and(|input| canonical_text(&call.input).is_ok_and(|text| text == input.as_str()));
                call.tool.as_str() == proposal.tool && repeated
            }
            // It was refused before it was a call; what was sent is all that there was.
            None => earlier.tool == excerpt(&proposal.tool) && earlier.digest == Digest::of(&proposal.input),
        };
        let id = earlier.call_id;
        Err(if same { KeyHolder::SameCall(id) } else { KeyHolder::OtherCall(id) }.into())
    }

    /// The second half of the path: everything after the intent is durable.
    pub(crate) async fn carry_out(&self, permit: Recorded<Permit>, live: &LiveCall) -> Result<Box<ToolOutcome>, Stop> {
        live.update(|now| now.state = CallState::Executing);
        let execution = match self.execute(permit, live).await {
            Ok(execution) => execution,
            Err((call_id, lost)) => {
                tracing::error!(error = &lost as &dyn std::error::Error, call = %call_id, "a call is indeterminate");
                let (from, state) = (CallState::Executing, CallState::Indeterminate);
                let unrecorded = Unrecorded::End { from, state, problem: lost.problem() };
                let cause = JournalError::Event { reason: lost.to_string() };
                return Err(Stop::Unrecorded(Box::new(unrecorded), cause));
            }
        };
        let unknown = |error| Stop::Unrecorded(Box::new(Unrecorded::unknown_outcome()), error);
        let attestation =
            self.attest(&execution).map_err(|e| unknown(JournalError::Event { reason: e.to_string() }))?;
        // What the caller is told and the journal does not keep.
        let told = execution.result.withheld.then(|| execution.result.output.clone());
        let finished = FinishedCall {
            call_id: execution.call.id().clone(),
            state: execution.result.state,
            output: match &told {
                Some(told) => recorded_output(told).into_owned(),
                None => execution.result.output,
            },
            problem: execution.result.problem,
            attestation,
        };
        let finish = Finish::new(finished, &execution.connections).map_err(unknown)?;
        match self.journal().finish_call(&finish).await {
            Ok(ended_at) => {
                let outcome = finish.into_outcome(ended_at);
                let output = told.or(outcome.output);
                Ok(Box::new(ToolOutcome { output, ..outcome }))
            }
            Err(error) => Err(Stop::Unrecorded(Box::new(Unrecorded::Outcome(finish)), error)),
        }
    }
}

/// The sessions of routines are theirs: a grant for such a session covers the routine and nobody else.
pub(crate) fn reserved(peer: &VerifiedPeer, session: &SessionId) -> Option<Problem> {
    (session.as_str().starts_with(ROUTINE_SESSION) && !peer.is_routine()).then(|| {
        let message = format!("the session `{session}` belongs to a routine");
        Problem::new("session_reserved", message, "name another session")
    })
}

/// What a call without a workspace is told where nothing else was wrong; every refusal says more.
fn nowhere_to_work() -> Problem {
    Problem::plain("workspace_unnamed", "this needs a workspace, and none was named")
}

/// The caller promised that two calls are one, and they are not.
fn key_reused(earlier: &CallId) -> EngineError {
    let message = format!("this idempotency key belongs to `{earlier}`, which is another call");
    let problem = Problem::new("idempotency_key_reused", message, "use a new key for a new call");
    EngineError::new(ErrorKind::Conflict, problem)
}

/// A tool's name as it was sent, as much of it as is kept.
fn excerpt(tool: &str) -> String {
    tool.chars().take(128).filter(|c| !c.is_control()).collect()
}
