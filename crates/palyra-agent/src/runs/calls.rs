//! The tool calls of one answer: proposed on the one path, side by side, and told to the model.

use super::Runs;
use super::carry_on::ActiveRun;
use super::live::{LiveRun, RunNews};
use crate::reply::{ModelReply, ToolCallRequest};
use palyra_engine::{CallInProgress, CallUpdate, EngineError, OutputPiece, OutputStream, Proposal, VerifiedPeer};
use palyra_protocol::memory::recorded_output;
use palyra_protocol::{ApprovalId, CallId, CallState, Problem, RunId, RunResult, SessionId};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many calls of one run are under way at a time.
const SIDE_BY_SIDE: usize = 8;
/// The most that the model is told of one result.
const MAX_RESULT_BYTES: usize = 64 << 10;

/// The run stops in the middle of its calls.
#[derive(Debug)]
pub(super) struct BrokenOff;

/// What one call of an answer needs, wherever it runs.
struct OneCall {
    runs: Runs,
    peer: Arc<VerifiedPeer>,
    live: Arc<LiveRun>,
    run: RunId,
    session: SessionId,
    turn: u64,
    index: usize,
    wanted: ToolCallRequest,
}

impl Runs {
    /// Proposes the calls of an answer and waits until all have ended. Only the first `room` are within the budget.
    pub(super) async fn calls(
        &self,
        active: &ActiveRun,
        reply: &ModelReply,
        room: usize,
    ) -> Result<(Vec<RunResult>, Duration), BrokenOff> {
        let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut tasks = JoinSet::new();
        let mut results: Vec<Option<RunResult>> = vec![None; reply.tool_calls.len()];
        for (index, wanted) in reply.tool_calls.iter().enumerate() {
            if index >= room {
                let limit = active.opened.budget.calls;
                let problem = Problem::new(
                    "run_over_budget",
                    format!("the run may make {limit} tool calls, and has made them"),
                    "answer with what you have",
                );
                results[index] = Some(not_proposed(wanted, &problem));
                continue;
            }
            let call = OneCall {
                runs: self.clone(),
                peer: Arc::clone(&active.peer),
                live: Arc::clone(&active.live),
                run: active.opened.run.clone(),
                session: active.opened.session.clone(),
                turn: active.turn(),
                index,
                wanted: wanted.clone(),
            };
            let (offered, places) = (self.canonical(&active.opened.tools, &wanted.name), Arc::clone(&places));
            tasks.spawn(async move {
                let _place = places.acquire_owned().await;
                (index, call.carry_out(offered).await)
            });
        }
        let mut longest = Duration::ZERO;
        while let Some(done) = tasks.join_next().await {
            let Ok((index, Ok((result, took)))) = done else { return Err(BrokenOff) };
            longest = longest.max(took);
            active.live.tell(RunNews::Result { turn: active.turn(), index, result: result.clone() }).await;
            results[index] = Some(result);
        }
        if active.live.cancelled().is_cancelled() {
            return Err(BrokenOff);
        }
        Ok((results.into_iter().flatten().collect(), longest))
    }

    /// The canonical name of an offered tool.
    pub(super) fn canonical(&self, offered: &[String], alias: &str) -> Option<String> {
        let catalog = self.engine().catalog();
        let name = catalog.by_alias(alias).map_or_else(|| alias.to_owned(), ToString::to_string);
        offered.contains(&name).then_some(name)
    }
}

impl OneCall {
    async fn carry_out(self, offered: Option<String>) -> Result<(RunResult, Duration), BrokenOff> {
        let Some(tool) = offered else {
            let problem = Problem::new(
                "tool_not_offered",
                format!("there is no tool `{}` here", self.wanted.name.chars().take(64).collect::<String>()),
                "use the tools that were offered",
            );
            return Ok((not_proposed(&self.wanted, &problem), Duration::ZERO));
        };
        if super::retained::is_withheld(&tool, &self.wanted.arguments) {
            let problem = Problem::new(
                "memory_text_gone",
                "the daemon was started anew, and the text that was to be retained is not there any more",
                "search for it, and retain it again if it is not found",
            );
            return Ok((not_proposed(&self.wanted, &problem), Duration::ZERO));
        }
        let arguments = self.wanted.arguments.trim();
        let input = if arguments.is_empty() { "{}" } else { arguments };
        let proposal = Proposal {
            tool: tool.clone(),
            input: input.as_bytes().to_vec(),
            session: Some(self.session.clone()),
            run: Some(self.run.clone()),
            idempotency_key: self.run.call_key(self.turn, self.index),
            request: None,
            ..Proposal::default()
        };
        let call = self.runs.engine().propose(&self.peer, proposal);
        self.follow(&tool, call).await
    }

    async fn follow(&self, tool: &str, call: CallInProgress) -> Result<(RunResult, Duration), BrokenOff> {
        let CallInProgress { mut call_id, mut updates, mut output, mut end, ticket: _ } = call;
        let begun = Instant::now();
        let mut waits = Waits::default();
        let (mut news, mut writes, mut told) = (true, true, None);
        let cancel = self.live.cancelled().clone();
        let mut withdrawn = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut end => break ended,
                () = self.runs.0.closing.cancelled() => return Err(BrokenOff),
                () = cancel.cancelled(), if !withdrawn => {
                    withdrawn = true;
                    // It may end by itself in between; then there is nothing to withdraw.
                    let by = self.live.cancelled_by().unwrap_or_else(|| self.peer.effective());
                    self.runs.engine().withdraw_call_of_run(&self.run, &call_id, by);
                }
                update = updates.recv(), if news => match update {
                    Ok(update) => {
                        call_id = update.call_id.clone();
                        waits.see(&update);
                        self.tell(tool, &update, &mut told).await;
                    }
                    Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                    Err(_) => news = false,
                },
                piece = output.next(), if writes => match piece {
                    Some(piece) => self.live.tell(written(&call_id, &piece)).await,
                    None => writes = false,
                },
            }
        };
        let took = begun.elapsed().saturating_sub(waits.total());
        match ended {
            Ok(Ok(update)) => Ok((result(&self.wanted, &update), took)),
            // The daemon ends: the call, if there is one, is found again under its key.
            Ok(Err(error)) if error.problem.code == "shutting_down" => Err(BrokenOff),
            Ok(Err(error)) => Ok((failed(&self.wanted, &call_id, &error), took)),
            Err(_) => Err(BrokenOff),
        }
    }

    async fn tell(&self, tool: &str, update: &CallUpdate, told: &mut Option<ApprovalId>) {
        let (turn, index) = (self.turn, self.index);
        let (call_id, tool) = (update.call_id.clone(), tool.to_owned());
        let asks = update.approval.as_ref().filter(|_| update.state == CallState::AwaitingApproval);
        match asks {
            Some(approval) if told.as_ref() != Some(&approval.approval_id) => {
                *told = Some(approval.approval_id.clone());
                let approval_id = approval.approval_id.clone();
                self.live.tell(RunNews::Approval { turn, index, call_id, tool, approval_id }).await;
            }
            Some(_) => {}
            None => self.live.tell(RunNews::Call { turn, index, call_id, tool, state: update.state }).await,
        }
    }
}

/// The time in which a person was asked.
#[derive(Debug, Default)]
struct Waits {
    since: Option<Instant>,
    before: Duration,
}

impl Waits {
    fn see(&mut self, update: &CallUpdate) {
        match (update.state == CallState::AwaitingApproval, self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (false, Some(since)) => {
                self.before += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

fn written(call_id: &CallId, piece: &OutputPiece) -> RunNews {
    let stream = match piece.stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    RunNews::Output { call_id: call_id.clone(), stream, text: String::from_utf8_lossy(&piece.bytes).into_owned() }
}

/// What the model is told of a call that has ended: what the tool returned, or why there is nothing and what to do.
fn result(wanted: &ToolCallRequest, update: &CallUpdate) -> RunResult {
    let outcome = update.outcome.as_deref();
    let succeeded = update.state == CallState::Succeeded;
    let output = outcome.and_then(|outcome| outcome.output.as_ref()).filter(|output| !output.is_null());
    let withheld = output.map(recorded_output).filter(|recorded| Some(&**recorded) != output);
    let content = if succeeded {
        output.map_or_else(|| "{}".to_owned(), ToString::to_string)
    } else {
        let plain = || Problem::plain(update.state.as_str(), format!("the call is {}", update.state.as_str()));
        let problem = outcome.and_then(|outcome| outcome.problem.clone()).unwrap_or_else(plain);
        let mut told = json!({ "error": problem, "state": update.state.as_str(), "call_id": update.call_id });
        if let Some(output) = output {
            told["output"] = output.clone();
        }
        told.to_string()
    };
    RunResult {
        id: wanted.id.clone(),
        tool: wanted.name.clone(),
        call_id: Some(update.call_id.clone()),
        state: Some(update.state),
        content: bounded(content),
        recorded: withheld.map(|withheld| bounded(withheld.to_string())),
        is_error: !succeeded,
        attestation_sha256: outcome.and_then(|o| o.attestation.as_ref()).map(|a| a.execution_sha256),
    }
}

fn failed(wanted: &ToolCallRequest, call_id: &CallId, error: &EngineError) -> RunResult {
    RunResult { call_id: Some(call_id.clone()), ..not_proposed(wanted, &error.problem) }
}

fn not_proposed(wanted: &ToolCallRequest, problem: &Problem) -> RunResult {
    RunResult {
        id: wanted.id.clone(),
        tool: wanted.name.clone(),
        call_id: None,
        state: None,
        content: json!({ "error": problem }).to_string(),
        recorded: None,
        is_error: true,
        attestation_sha256: None,
    }
}

/// As much as the model is told; the journal has the rest.
fn bounded(mut content: String) -> String {
    if content.len() > MAX_RESULT_BYTES {
        let whole = content.len();
        let mut end = MAX_RESULT_BYTES;
        while !content.is_char_boundary(end) {
            end -= 1;
        }
        content.truncate(end);
        content.push_str(&format!("\n[cut: {end} of {whole} bytes; ask for less at a time]"));
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_is_told_is_bounded_and_says_so() {
        let cut = bounded("é".repeat(MAX_RESULT_BYTES));
        assert!(cut.len() < MAX_RESULT_BYTES + 100, "{}", cut.len());
        assert!(cut.contains("[cut: 65536 of 131072 bytes"), "{}", &cut[cut.len() - 80..]);
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
