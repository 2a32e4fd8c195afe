//! Carrying a run on: ask, record, call, record, until it ends.

use super::Runs;
use super::live::{LiveRun, RunNews};
use super::recorded::{RunShown, Spent, told};
use super::start::{left, parse_run};
use crate::conversation::{Message, Role, ToolSpec};
use crate::models::Asked;
use crate::providers::{ModelRequest, ModelSettings};
use crate::reply::{ModelEvent, ModelReply};
use palyra_egress::EgressRecord;
use palyra_engine::{EngineError, VerifiedPeer};
use palyra_protocol::{
    CallState, JournalEvent, Problem, RunEnded, RunId, RunOpened, RunResult, RunResults, RunState, RunTurn,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How many pieces of an answer wait to be passed on.
const PIECES: usize = 256;

/// A run that is carried on.
pub(super) struct ActiveRun {
    pub(super) peer: Arc<VerifiedPeer>,
    pub(super) opened: RunOpened,
    pub(super) live: Arc<LiveRun>,
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    caller_tools: Vec<ToolSpec>,
    settings: ModelSettings,
    spent: Spent,
    turn: u64,
    /// An answer on record whose calls have not all ended.
    pending: Option<ModelReply>,
    /// The answers of a recorded run, where the model is one.
    replay: Option<Vec<ModelReply>>,
}

/// Why a run stops.
enum Stop {
    /// It ends.
    Ends(RunState, Option<Problem>, Vec<EgressRecord>),
    /// The daemon ends; the next start carries the run on.
    Leaves,
    /// Something could not be recorded: the run stays as the journal has it.
    Unrecorded(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        Self::Unrecorded(error)
    }
}

impl Stop {
    fn with(state: RunState, problem: Problem) -> Self {
        Self::Ends(state, Some(problem), Vec::new())
    }
}

impl Runs {
    /// A run, ready to be carried on from its newest record.
    pub(super) async fn active(
        &self,
        run: &RunId,
        peer: Arc<VerifiedPeer>,
        live: Arc<LiveRun>,
    ) -> Result<ActiveRun, EngineError> {
        let history = self.engine().recorded_run(run).await?;
        let shown = RunShown::of(&history);
        let opened = history.opened.opened;
        let mut messages = self.earlier(opened.continues.clone()).await?;
        messages.extend(shown.messages());
        let last = shown.turns.last();
        let pending = last.filter(|turn| turn.results.is_none()).map(|turn| turn.reply.clone());
        let replay = match opened.model.strip_prefix("replay:") {
            None => None,
            Some(earlier) => {
                let earlier = RunShown::of(&self.engine().recorded_run(&parse_run(earlier)?).await?);
                Some(earlier.turns.into_iter().map(|turn| turn.reply).collect())
            }
        };
        Ok(ActiveRun {
            tools: self.specs(&opened.tools),
            caller_tools: serde_json::from_value(opened.caller_tools.clone()).unwrap_or_default(),
            settings: serde_json::from_value(opened.settings.clone()).unwrap_or_default(),
            turn: last.map_or(0, |turn| turn.turn),
            spent: shown.spent,
            peer,
            opened,
            live,
            messages,
            pending,
            replay,
        })
    }

    fn specs(&self, tools: &[String]) -> Vec<ToolSpec> {
        let catalog = self.engine().catalog();
        let offered = catalog.iter().filter(|tool| tools.iter().any(|name| name == tool.name().as_str()));
        let specs = offered.map(|tool| ToolSpec {
            name: tool.alias().as_str().to_owned(),
            description: tool.definition().description.clone(),
            parameters: tool.definition().input_schema.clone(),
        });
        specs.collect()
    }

    /// Carries a run on in a task of its own.
    pub(super) fn spawn(&self, mut active: ActiveRun) {
        let runs = self.clone();
        self.0.tasks.spawn(async move {
            let run = active.opened.run.clone();
            let stop = runs.carry_on(&mut active).await;
            match stop {
                Stop::Ends(state, problem, connections) => {
                    if let Err(error) = runs.record_end(&run, state, problem.clone(), connections).await {
                        tracing::error!(error = &error as &dyn std::error::Error, %run, "a run's end is not on record");
                    } else {
                        active.live.tell(RunNews::Ended { state, problem }).await;
                    }
                }
                Stop::Leaves => tracing::info!(%run, "a run goes on after the restart"),
                Stop::Unrecorded(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, %run, "a run stopped where it was");
                }
            }
            runs.leave(&run);
        });
    }

    pub(super) async fn record_end(
        &self,
        run: &RunId,
        state: RunState,
        problem: Option<Problem>,
        connections: Vec<EgressRecord>,
    ) -> Result<(), EngineError> {
        let ended = RunEnded { run: run.clone(), state, problem, connections };
        self.engine().record_run(&JournalEvent::RunEnded(Box::new(ended))).await
    }

    async fn carry_on(&self, active: &mut ActiveRun) -> Stop {
        loop {
            if let Err(stop) = self.one_turn(active).await {
                return stop;
            }
        }
    }

    /// One answer and its calls.
    async fn one_turn(&self, active: &mut ActiveRun) -> Result<(), Stop> {
        let reply = match active.pending.take() {
            Some(reply) => reply,
            None => self.answer(active).await?,
        };
        if reply.tool_calls.is_empty() {
            return Err(Stop::Ends(RunState::Completed, None, Vec::new()));
        }
        let callers: HashSet<&str> = active.caller_tools.iter().map(|tool| tool.name.as_str()).collect();
        if reply.tool_calls.iter().any(|call| callers.contains(call.name.as_str())) {
            // Palyra's own calls of the same answer would have no one to tell their results to; the caller decides what
            // comes next with the whole answer.
            return Err(Stop::Ends(RunState::CallerTools, None, Vec::new()));
        }
        let (results, active_time) = self.carry_out(active, &reply).await?;
        let active_ms = millis(active_time);
        let unknown = results.iter().find(|result| result.state == Some(CallState::Indeterminate));
        let unknown = unknown.map(|result| result.call_id.clone());
        let recorded = results.iter().map(RunResult::as_recorded).collect();
        let event = RunResults { run: active.opened.run.clone(), turn: active.turn, results: recorded, active_ms };
        self.engine().record_run(&JournalEvent::RunResults(Box::new(event))).await?;
        if let Some(call) = unknown {
            let call = call.map_or_else(String::new, |id| id.to_string());
            let problem = Problem::new(
                "run_indeterminate",
                format!("it is not known whether the call {call} took effect"),
                "look at what it was about to do, then start a new run in the same session",
            );
            return Err(Stop::with(RunState::Indeterminate, problem));
        }
        active.spent.model_calls += 1;
        active.spent.active_ms += active_ms;
        active.messages.push(told(&results));
        Ok(())
    }

    async fn carry_out(&self, active: &ActiveRun, reply: &ModelReply) -> Result<(Vec<RunResult>, Duration), Stop> {
        // INVARIANT (budget_holds): what an answer asks for was counted when it was recorded.
        let before = active.spent.calls.saturating_sub(reply.tool_calls.len() as u64);
        let room = active.opened.budget.calls.saturating_sub(before);
        match self.calls(active, reply, usize::try_from(room).unwrap_or(usize::MAX)).await {
            Ok(done) => Ok(done),
            Err(_) if active.live.cancelled().is_cancelled() => Err(cancelled(active)),
            Err(_) => Err(Stop::Leaves),
        }
    }

    /// Asks the model, and puts its answer on record.
    async fn answer(&self, active: &mut ActiveRun) -> Result<ModelReply, Stop> {
        let limit =
            left(&active.opened.budget, &active.spent).map_err(|problem| Stop::with(RunState::OverBudget, problem))?;
        if self.0.closing.is_cancelled() {
            return Err(Stop::Leaves);
        }
        let turn = active.turn + 1;
        active.live.tell(RunNews::Asking { turn }).await;
        let asked = self.ask(active, turn, limit).await;
        let Asked { answer, answered, connections, took } = asked;
        let mut reply = match answer {
            Ok(reply) => reply,
            Err(_) if active.live.cancelled().is_cancelled() => {
                let Stop::Ends(state, problem, _) = cancelled(active) else { return Err(Stop::Leaves) };
                return Err(Stop::Ends(state, problem, connections));
            }
            Err(_) if self.0.closing.is_cancelled() => return Err(Stop::Leaves),
            Err(problem) => return Err(Stop::Ends(RunState::Failed, Some(problem), connections)),
        };
        distinct_ids(&mut reply, turn);
        let recorded = RunTurn {
            run: active.opened.run.clone(),
            turn,
            model: answered.clone(),
            reply: serde_json::to_value(self.as_recorded(active, &reply))
                .map_err(|e| Stop::with(RunState::Failed, Problem::plain("internal", e.to_string())))?,
            input_tokens: reply.usage.input,
            output_tokens: reply.usage.output,
            active_ms: millis(took),
            connections,
        };
        self.engine().record_run(&JournalEvent::RunTurn(Box::new(recorded))).await?;
        active.turn = turn;
        active.spent.calls += reply.tool_calls.len() as u64;
        active.spent.input_tokens += reply.usage.input;
        active.spent.output_tokens += reply.usage.output;
        active.spent.active_ms += millis(took);
        active.messages.push(reply.message());
        let (input_tokens, output_tokens) = (reply.usage.input, reply.usage.output);
        let news = RunNews::Turn { turn, model: answered, input_tokens, output_tokens, calls: reply.tool_calls.len() };
        active.live.tell(news).await;
        Ok(reply)
    }

    async fn ask(&self, active: &ActiveRun, turn: u64, limit: Duration) -> Asked {
        let (sender, mut pieces) = mpsc::channel(PIECES);
        let cancel = self.0.closing.child_token();
        let asking = async {
            let asked = match &active.replay {
                Some(replies) => replayed(replies, turn, &active.opened.model, &sender).await,
                None => {
                    let model = &active.opened.model;
                    self.models().ask(model, active.request(), Some(limit), &cancel, &sender).await
                }
            };
            drop(sender);
            asked
        };
        let passing = async {
            while let Some(piece) = pieces.recv().await {
                if let Some(news) = news_of(turn, piece) {
                    active.live.tell(news).await;
                }
            }
        };
        let both = async { tokio::join!(asking, passing).0 };
        tokio::pin!(both);
        tokio::select! {
            asked = &mut both => asked,
            () = active.live.cancelled().cancelled() => {
                cancel.cancel();
                both.await
            }
        }
    }
}

impl ActiveRun {
    /// The newest answer, by its number.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    fn request(&self) -> ModelRequest {
        let system = (!self.opened.system.is_empty()).then(|| Message::text(Role::System, self.opened.system.clone()));
        ModelRequest {
            model: String::new(),
            messages: system.into_iter().chain(self.messages.iter().cloned()).collect(),
            tools: self.tools.iter().chain(&self.caller_tools).cloned().collect(),
            settings: self.settings.clone(),
        }
    }
}

fn cancelled(active: &ActiveRun) -> Stop {
    let by = active.live.cancelled_by().map_or_else(String::new, |by| format!(" by {by}"));
    Stop::with(RunState::Cancelled, Problem::plain("cancelled", format!("cancelled{by}")))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Results are told by id, so two calls of one answer must not share one.
fn distinct_ids(reply: &mut ModelReply, turn: u64) {
    let mut seen = HashSet::new();
    for (index, call) in reply.tool_calls.iter_mut().enumerate() {
        if !seen.insert(call.id.clone()) {
            call.id = format!("call_{turn}_{index}");
            seen.insert(call.id.clone());
        }
    }
}

/// The answer that a recorded run gave at the same place.
async fn replayed(replies: &[ModelReply], turn: u64, model: &str, pieces: &mpsc::Sender<ModelEvent>) -> Asked {
    let index = usize::try_from(turn - 1).unwrap_or(usize::MAX);
    let answer = replies.get(index).cloned().ok_or_else(|| {
        let message = format!("the recorded run has {} answers, and this is number {turn}", replies.len());
        Problem::new("replay_ended", message, "the calls went another way than they did then; compare the two runs")
    });
    if let Ok(reply) = &answer {
        let mut events = vec![ModelEvent::Text(reply.text.clone())];
        for (index, call) in reply.tool_calls.iter().enumerate() {
            events.push(ModelEvent::ToolCall { index, id: call.id.clone(), name: call.name.clone() });
            events.push(ModelEvent::Arguments { index, part: call.arguments.clone() });
        }
        for event in events {
            // Whoever listens may have gone.
            drop(pieces.send(event).await);
        }
    }
    Asked { answer, answered: model.to_owned(), connections: Vec::new(), took: Duration::ZERO }
}

fn news_of(turn: u64, piece: ModelEvent) -> Option<RunNews> {
    Some(match piece {
        ModelEvent::Text(text) if text.is_empty() => return None,
        ModelEvent::Text(text) => RunNews::Text { turn, text },
        ModelEvent::ToolCall { index, id, name } => RunNews::ToolCall { turn, index, id, name },
        ModelEvent::Arguments { index, part } => RunNews::Arguments { turn, index, part },
        ModelEvent::Usage(_) | ModelEvent::Finish(_) => return None,
    })
}
