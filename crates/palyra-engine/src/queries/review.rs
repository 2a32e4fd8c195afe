//! Looking back: what another set of rules would have decided, and which rules past approvals suggest.
//!
//! Nothing here changes anything. Journals are read on a thread and a connection of their own.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::flow::decide::Asked;
use palyra_journal::{ApprovalFilter, DecisionEvent, JournalError, scan_decisions};
use palyra_policy::{
    PastAnswer, PastDecision, PolicyAction, PolicyFile, PolicyResource, Replay, ReplayReport, Suggestion, suggest,
};
use palyra_protocol::{
    ApprovalRecord, ApprovalState, CallId, DecisionBasis, DecisionKind, Facets, Origin, PrincipalKind, Timestamp,
    ToolName,
};
use serde::Deserialize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// How many examples of each shift a simulation keeps.
const EXAMPLES: usize = 10;
/// How many decisions are handed on at once.
const BATCH: usize = 250;
/// How often a simulation says how far it is: a multiple of `BATCH`.
const PROGRESS_EVERY: u64 = 10_000;
/// How many threads ask at once.
const MOST_THREADS: usize = 8;
/// How many past approvals suggestions are made from.
const MOST_ANSWERS: u32 = 10_000;

/// News of a simulation.
#[derive(Debug)]
pub enum SimulationNews {
    /// So many decisions were replayed so far.
    Progress(u64),
    /// The end.
    Done(Box<Result<ReplayReport, EngineError>>),
}

/// A decision as the journal holds it.
struct PastEvents {
    at: Timestamp,
    proposed: String,
    decided: String,
}

/// As much of a `tool.proposed` as a question is made of; the input, which is most of it, is passed over.
#[derive(Deserialize)]
struct PastProposal {
    call: PastCall,
}

#[derive(Deserialize)]
struct PastCall {
    call_id: CallId,
    tool: ToolName,
    workspace_root: String,
    facets: Facets,
    origin: Origin,
}

#[derive(Deserialize)]
struct PastDecided {
    decision: PastAnswered,
}

#[derive(Deserialize)]
struct PastAnswered {
    decision: DecisionKind,
    basis: Option<DecisionBasis>,
}

impl Engine {
    /// Replays the journal's decisions since a time against a candidate.
    ///
    /// # Errors
    /// The peer may not, or the candidate may not run.
    pub async fn simulate_policy(
        &self,
        peer: &VerifiedPeer,
        since: Timestamp,
        files: Vec<PolicyFile>,
    ) -> Result<mpsc::Receiver<SimulationNews>, EngineError> {
        self.authorize(peer, PolicyAction::PolicySimulate, PolicyResource::PolicySet, None)?;
        self.authorize(peer, PolicyAction::JournalRead, PolicyResource::Journal, None)?;
        let candidate = self.candidate(files).await?;
        let (news, receiver) = mpsc::channel(16);
        let engine = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut replay = Replay::new(candidate.engine, EXAMPLES);
            let mut progress = |seen| {
                drop(news.try_send(SimulationNews::Progress(seen)));
                // Whoever asked may have gone.
                if news.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let scanned = engine.replay_since(since, &mut replay, &mut progress);
            let report = scanned.map(|()| replay.finish()).map_err(EngineError::from);
            drop(news.blocking_send(SimulationNews::Done(Box::new(report))));
        });
        Ok(receiver)
    }

    /// Feeds every recorded decision since a time to a replay: one thread reads, others ask. Blocks.
    fn replay_since(
        &self,
        since: Timestamp,
        replay: &mut Replay,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (batches, waiting) = sync_channel::<Vec<PastEvents>>(2 * threads);
        // Only those who ask hold the other end: when the last of them is gone, reading stops.
        let waiting = Arc::new(Mutex::new(waiting));
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..threads)
                .map(|_| {
                    let (part, waiting) = (replay.fork(), Arc::clone(&waiting));
                    scope.spawn(move || self.ask_again(part, &waiting))
                })
                .collect();
            drop(waiting);
            let read = read_decisions(self.journal().path(), since, batches, progress);
            for thread in asking {
                let asked = thread
                    .join()
                    .unwrap_or_else(|_| Err(JournalError::Event { reason: "asking again was cut off".to_owned() }));
                replay.join(asked?);
            }
            read
        })
    }

    /// Asks about every decision that comes, until none does.
    fn ask_again(
        &self,
        mut replay: Replay,
        waiting: &Mutex<Receiver<Vec<PastEvents>>>,
    ) -> Result<Replay, JournalError> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return Ok(replay) };
            for past in batch {
                self.ask_once_more(&mut replay, &past)?;
            }
        }
    }

    fn ask_once_more(&self, replay: &mut Replay, past: &PastEvents) -> Result<(), JournalError> {
        let unreadable = |e: serde_json::Error| JournalError::Event { reason: e.to_string() };
        let call = serde_json::from_str::<PastProposal>(&past.proposed).map_err(unreadable)?.call;
        let answered = serde_json::from_str::<PastDecided>(&past.decided).map_err(unreadable)?.decision;
        let basis = answered.basis.unwrap_or_else(|| self.tool_facts().basis(&call.tool, &call.facets));
        let asked = Asked {
            tool: &call.tool,
            workspace: &call.workspace_root,
            origin: &call.origin,
            facets: &call.facets,
            basis: &basis,
        };
        // A secret of others is refused by every set of rules.
        let Ok(questions) = asked.questions() else { return Ok(()) };
        let (call_id, at, decided) = (&call.call_id, past.at, answered.decision);
        replay.feed(&PastDecision { call_id, at, questions: &questions, decided });
        Ok(())
    }

    /// Rules that would have spared people the same answer at least `least` times. Nothing is applied.
    ///
    /// # Errors
    /// The peer may not see past approvals or the rules.
    pub async fn suggest_rules(
        &self,
        peer: &VerifiedPeer,
        since: Timestamp,
        least: usize,
    ) -> Result<Vec<Suggestion>, EngineError> {
        self.authorize(peer, PolicyAction::PolicyShow, PolicyResource::PolicySet, None)?;
        self.authorize(peer, PolicyAction::ApprovalList, PolicyResource::Daemon, None)?;
        let answers = self.past_answers(peer, since).await?;
        let policy = self.policy();
        let suggested = tokio::task::spawn_blocking(move || suggest(&policy, &answers, least.max(1)));
        suggested.await.map_err(|_| {
            EngineError::new(
                crate::error::ErrorKind::Internal,
                palyra_protocol::Problem::plain("internal", "looking for suggestions was cut off"),
            )
        })
    }
}

impl Engine {
    /// What people answered since a time, read page by page: the inputs, which are most of it, are not kept.
    async fn past_answers(&self, peer: &VerifiedPeer, since: Timestamp) -> Result<Vec<PastAnswer>, EngineError> {
        let (mut answers, mut last) = (Vec::new(), None);
        loop {
            let newest = ApprovalFilter::Newest(MOST_ANSWERS);
            let page = self.approvals(peer, newest, last.as_ref()).await?;
            last = page.records.last().map(|record| record.approval_id.clone());
            let records = page.records.into_iter().filter(|record| record.requested_at >= since);
            answers.extend(records.filter_map(|record| {
                let workspace = self.root_of_approval(&record);
                let metadata = self.metadata(&record.tool);
                let (allowed, record) = answered_by_a_person(record)?;
                Some(PastAnswer {
                    principal: record.principal,
                    tool: record.tool.to_string(),
                    workspace,
                    channel: peer.channel().clone(),
                    capabilities: metadata.capabilities.iter().copied().collect(),
                    risk: Some(metadata.risk),
                    facets: record.facets,
                    allowed,
                })
            }));
            if !page.more {
                return Ok(answers);
            }
        }
    }
}

/// Reads proposals with their decisions and hands them on in batches.
fn read_decisions(
    journal: &Path,
    since: Timestamp,
    batches: SyncSender<Vec<PastEvents>>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), JournalError> {
    // A proposal and its decision are recorded in one transaction, so one follows the other.
    let mut proposed: Option<(String, String)> = None;
    let (mut batch, mut seen) = (Vec::with_capacity(BATCH), 0u64);
    scan_decisions(journal, since, &mut |event: DecisionEvent<'_>| {
        if event.kind == "tool.proposed" {
            proposed = Some((event.call_id.to_owned(), event.body.to_owned()));
            return Ok(ControlFlow::Continue(()));
        }
        let Some((_, body)) = proposed.take().filter(|(call_id, _)| call_id == event.call_id) else {
            return Ok(ControlFlow::Continue(()));
        };
        batch.push(PastEvents { at: event.at, proposed: body, decided: event.body.to_owned() });
        if batch.len() < BATCH {
            return Ok(ControlFlow::Continue(()));
        }
        seen += BATCH as u64;
        let sent = batches.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
        let go_on = if seen.is_multiple_of(PROGRESS_EVERY) { progress(seen) } else { ControlFlow::Continue(()) };
        // Nobody takes any more: one of those who ask has failed, and says why.
        Ok(if sent.is_err() { ControlFlow::Break(()) } else { go_on })
    })?;
    drop(batches.send(batch));
    Ok(())
}

/// An approval that a person answered, and how; expiry and withdrawal are no answers. Where a rule counts people, no
/// other rule could spare them.
fn answered_by_a_person(record: ApprovalRecord) -> Option<(bool, ApprovalRecord)> {
    let by = &record.resolution.as_ref()?.by;
    if by.kind() != PrincipalKind::User || record.people > 1 || record.fresh || !record.subject.is_call() {
        return None;
    }
    match record.state {
        ApprovalState::Allowed => Some((true, record)),
        ApprovalState::Denied => Some((false, record)),
        ApprovalState::Pending | ApprovalState::Expired | ApprovalState::Cancelled => None,
    }
}
