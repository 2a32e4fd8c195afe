//! Where an answer comes from: a model that is asked as it is, or a run of an agent. Either gives the same pieces.

use super::super::Door;
use super::errors::Fault;
use super::request::Wanted;
use palyra_agent::runs::{AskedAs, Watch};
use palyra_agent::{FinishReason, ModelEvent, ModelRequest, RunNews, StartRun, Usage};
use palyra_engine::VerifiedPeer;
use palyra_protocol::{JournalEvent, Problem, RequestId, RunId, RunResult, RunState, SessionId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How many pieces wait for a client.
const BACKLOG: usize = 256;
/// Model ids that name an agent begin like this.
const AGENT: &str = "palyra/";

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    /// More text.
    Text(String),
    /// A tool of the caller is wanted.
    ToolCall { index: usize, id: String, name: String },
    /// More of such a call's input.
    Arguments { index: usize, part: String },
    /// A person is asked about one of Palyra's own calls.
    Approval { id: String, name: String, arguments: String },
    /// One of Palyra's own calls has ended.
    Result { arguments: String, result: Box<RunResult> },
    /// The end.
    End(End),
}

/// How an answer ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
    /// Why there is no whole answer.
    pub(super) problem: Option<Problem>,
}

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) pieces: mpsc::Receiver<Piece>,
    /// The run, where there is one.
    pub(super) run: Option<(RunId, SessionId)>,
    /// Ends the call to the model when nobody waits for it any more; a run goes on.
    _guard: Option<DropGuard>,
}

/// The agent that a model id names.
fn agent_of(model: &str) -> Option<&str> {
    model.strip_prefix(AGENT)
}

/// Whether a request begins a run: its model id names an agent, or it asks for Palyra's tools.
pub(super) fn is_run(wanted: &Wanted) -> bool {
    agent_of(&wanted.model).is_some() || wanted.palyras.is_some()
}

/// What surrounds a request besides what is wanted.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) request: RequestId,
    pub(super) session: Option<SessionId>,
}

/// Begins to answer.
pub(super) async fn begin(
    door: &Door,
    peer: &Arc<VerifiedPeer>,
    wanted: Wanted,
    around: Around,
) -> Result<Answer, Fault> {
    if is_run(&wanted) { run(door, peer, wanted, around).await } else { plain(door, peer, wanted) }
}

async fn run(door: &Door, peer: &VerifiedPeer, wanted: Wanted, around: Around) -> Result<Answer, Fault> {
    let agent = agent_of(&wanted.model).map(str::to_owned);
    let callers: HashSet<String> = wanted.tools.iter().map(|tool| tool.name.clone()).collect();
    let start = StartRun {
        model: agent.is_none().then_some(wanted.model),
        agent,
        tools: wanted.palyras.unwrap_or_default(),
        session: around.session,
        input: wanted.messages,
        caller_tools: wanted.tools,
        settings: wanted.settings,
        asked_as: AskedAs::Chat,
        request: Some(around.request),
        ..StartRun::default()
    };
    let started = door.doors.runs.start(peer, start).await?;
    let (sender, pieces) = mpsc::channel(BACKLOG);
    tokio::spawn(pass_on(started.watch, callers, sender));
    Ok(Answer { pieces, run: Some((started.run, started.session)), _guard: None })
}

/// Turns the news of a run into pieces. Palyra's own tool calls are not the caller's to carry out.
async fn pass_on(mut watch: Watch, callers: HashSet<String>, sender: mpsc::Sender<Piece>) {
    let mut usage = Usage::default();
    // Calls by their turn and place: the caller's place of its own, or the input of one of ours.
    let mut theirs: HashMap<(u64, usize), usize> = HashMap::new();
    let mut ours: HashMap<(u64, usize), String> = HashMap::new();
    let mut end = None;
    while let Some(news) = watch.next().await {
        let piece = match &*news {
            RunNews::Text { text, .. } => Piece::Text(text.clone()),
            RunNews::ToolCall { turn, index, id, name } if callers.contains(name) => {
                let place = theirs.len();
                theirs.insert((*turn, *index), place);
                Piece::ToolCall { index: place, id: id.clone(), name: name.clone() }
            }
            RunNews::ToolCall { turn, index, .. } => {
                ours.insert((*turn, *index), String::new());
                continue;
            }
            RunNews::Arguments { turn, index, part } => {
                if let Some(all) = ours.get_mut(&(*turn, *index)) {
                    all.push_str(part);
                }
                let Some(place) = theirs.get(&(*turn, *index)) else { continue };
                Piece::Arguments { index: *place, part: part.clone() }
            }
            RunNews::Turn { input_tokens, output_tokens, .. } => {
                usage.input += input_tokens;
                usage.output += output_tokens;
                continue;
            }
            RunNews::Approval { turn, index, tool, approval_id, .. } => {
                let arguments = ours.get(&(*turn, *index)).cloned().unwrap_or_default();
                Piece::Approval { id: approval_id.to_string(), name: tool.clone(), arguments }
            }
            RunNews::Result { turn, index, result } => {
                let arguments = ours.get(&(*turn, *index)).cloned().unwrap_or_default();
                Piece::Result { arguments, result: Box::new(result.clone()) }
            }
            RunNews::Ended { state, problem } => {
                end = Some(ended(*state, problem.clone(), usage));
                break;
            }
            _ => continue,
        };
        if sender.send(piece).await.is_err() {
            return;
        }
    }
    let broken = || End {
        finish: FinishReason::Stop,
        usage,
        problem: Some(Problem::new(
            "run_left",
            "the daemon ends or the client was too slow; the run goes on",
            "ask for the response again by its id",
        )),
    };
    // The client may have gone.
    drop(sender.send(Piece::End(end.unwrap_or_else(broken))).await);
}

fn ended(state: RunState, problem: Option<Problem>, usage: Usage) -> End {
    let finish = if state == RunState::CallerTools { FinishReason::ToolCalls } else { FinishReason::Stop };
    let good = matches!(state, RunState::Completed | RunState::CallerTools);
    let plain = || Problem::plain(state.as_str(), format!("the run is {}", state.as_str()));
    End { finish, usage, problem: (!good).then(|| problem.unwrap_or_else(plain)) }
}

fn plain(door: &Door, peer: &Arc<VerifiedPeer>, wanted: Wanted) -> Result<Answer, Fault> {
    let models = door.doors.runs.models();
    door.engine.authorize_model(peer, &wanted.model)?;
    models.resolve(&wanted.model)?;
    let (sender, pieces) = mpsc::channel(BACKLOG);
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let (door, peer) = (door.clone(), Arc::clone(peer));
    tokio::spawn(async move { ask(&door, &peer, wanted, &cancel, sender).await });
    Ok(Answer { pieces, run: None, _guard: Some(guard) })
}

/// Asks a model as it is. That it was asked is on record before its answer ends.
async fn ask(
    door: &Door,
    peer: &VerifiedPeer,
    wanted: Wanted,
    cancel: &CancellationToken,
    sender: mpsc::Sender<Piece>,
) {
    let Wanted { model, messages, tools, settings, .. } = wanted;
    let request = ModelRequest { model: String::new(), messages, tools, settings };
    let (events, mut news) = mpsc::channel(BACKLOG);
    let asking = async {
        let asked = door.doors.runs.models().ask(&model, request, None, cancel, &events).await;
        drop(events);
        asked
    };
    let passing = async {
        while let Some(event) = news.recv().await {
            let piece = match event {
                ModelEvent::Text(text) => Piece::Text(text),
                ModelEvent::ToolCall { index, id, name } => Piece::ToolCall { index, id, name },
                ModelEvent::Arguments { index, part } => Piece::Arguments { index, part },
                ModelEvent::Usage(_) | ModelEvent::Finish(_) => continue,
            };
            // A client that has gone ends the call by its guard.
            drop(sender.send(piece).await);
        }
    };
    let (asked, ()) = tokio::join!(asking, passing);
    let (reply, problem) = match asked.answer {
        Ok(reply) => (reply, None),
        Err(problem) => (palyra_agent::ModelReply::default(), Some(problem)),
    };
    let event = JournalEvent::ModelInvoked {
        by: peer.effective().clone(),
        model,
        answered: asked.answered,
        input_tokens: reply.usage.input,
        output_tokens: reply.usage.output,
        problem: problem.clone(),
        connections: asked.connections,
    };
    let recorded = door.engine.record_run(&event).await;
    let problem = recorded.err().map(|error| error.problem).or(problem);
    let told = if reply.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let end = End { finish: reply.finish.unwrap_or(told), usage: reply.usage, problem };
    // The client may have gone.
    drop(sender.send(Piece::End(end)).await);
}
