//! Runs and chat: what a model was asked, what it said, and the calls in between, as they happen; starting one, going on
//! with one, ending one.

use super::calls;
use super::rendered::{When, cut, document, fragment, seen};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Cell, Field, FieldKind, Form, Section, address, page_with};
use crate::http::{Asked, Caller, Door, Id, Refused};
use askama::Template;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use palyra_agent::runs::RunShown;
use palyra_agent::{Message, Part, Role, Runs, StartRun};
use palyra_engine::CallFilter;
use palyra_protocol::display::safe_lines;
use palyra_protocol::{CallState, RunId, RunState, SessionId, Timestamp};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How many runs a page has.
const PAGE: u32 = 50;
/// How many calls are looked at for those that are under way.
const OPEN_CALLS: u32 = 50;
/// How much of one text is shown; the call's own page has all of it.
const MOST_TEXT: usize = 20_000;
/// How many pieces of news wait for a slow browser.
const BACKLOG: usize = 64;

fn tone(state: RunState) -> &'static str {
    match state {
        RunState::Completed => "good",
        RunState::Running | RunState::CallerTools => "warn",
        RunState::Failed | RunState::Indeterminate | RunState::OverBudget => "bad",
        RunState::Interrupted | RunState::Cancelled => "plain",
    }
}

/// Which page of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    before: Option<u64>,
}

pub(super) async fn list(
    State(door): State<Door>,
    caller: Caller,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    let runs = door.runs();
    let (found, last) = runs.list(&caller.peer, which.before, PAGE).await?;
    let older = last.filter(|_| found.len() == PAGE as usize);
    let section = Section {
        title: "Runs",
        about: "Models at work here, newest first. Every tool that one asks for is a call like any other: decided, and asked \
                about where policy says so."
            .to_owned(),
        columns: &["when", "state", "what", "model", "for", "calls", "tokens"],
        rows: found.iter().map(row).collect(),
        empty: "No model has worked here yet. Start a run below, or with `palyra run`.",
        older: older.map(|last| address("/console/runs", &[("before", &last.to_string())])),
    };
    page_with(&[section], &[], &[form(runs)])
}

fn row(run: &RunShown) -> Vec<Cell> {
    let said: String = run.input.iter().filter(|said| said.role == Role::User).map(Message::plain_text).collect();
    let who =
        run.agent.as_deref().map_or_else(|| run.principal.clone(), |agent| format!("{} ({agent})", run.principal));
    vec![
        Cell::time(Timestamp::from_unix_ms(run.opened_at_unix_ms)),
        Cell::Badge(spaced(run.state.as_str()), tone(run.state)),
        Cell::Link { href: address("/console/run", &[("id", run.run.as_str())]), text: cut(&said, 120) },
        Cell::text(&run.model),
        Cell::text(who),
        Cell::text(run.spent.calls),
        Cell::text(run.spent.input_tokens + run.spent.output_tokens),
    ]
}

fn form(runs: &Runs) -> Form {
    let models = runs.models();
    let about = match models.list().is_empty() {
        true => "No model is configured: `[models]` in the configuration names providers, see docs/runs.md.",
        false => {
            "It works in this daemon's workspace, with the tools that you may call. What it asks for is decided first."
        }
    };
    let named = models.list().into_iter().filter(|model| model.kind != "agent").map(|model| model.name);
    let named = std::iter::once(String::new()).chain(named).collect();
    let agents = std::iter::once(String::new()).chain(models.config().agents.keys().cloned()).collect();
    Form {
        title: "Start a run",
        about,
        path: "/console/api/runs".to_owned(),
        submit: "Start",
        fields: vec![
            Field::new("prompt", "What is it about?", FieldKind::Lines, "Run the tests and mend what fails."),
            Field::new("model", "Model", FieldKind::Choice(named), "the usual one"),
            Field::new("agent", "Agent", FieldKind::Choice(agents), "none"),
        ],
        open: true,
    }
}

/// What a run is to be about.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Start {
    prompt: String,
    model: String,
    agent: String,
    /// The session of the run that it goes on from.
    session: String,
}

pub(super) async fn start(
    State(door): State<Door>,
    caller: Caller,
    Signed(start): Signed<Start>,
) -> Result<Response, Refused> {
    if start.prompt.trim().is_empty() {
        return Err(Refused::malformed("say what the run is about"));
    }
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let session = text(start.session).map(|session| session.parse::<SessionId>()).transpose();
    let wanted = StartRun {
        model: text(start.model),
        agent: text(start.agent),
        session: session.map_err(|_| Refused::malformed("the session is no name"))?,
        input: vec![Message::text(Role::User, start.prompt)],
        request: Some(caller.request.clone()),
        ..StartRun::default()
    };
    let started = door.runs().start(&caller.peer, wanted).await?;
    document(&json!({ "run": started.run, "go": address("/console/run", &[("id", started.run.as_str())]) }))
}

/// One run as it is read.
#[derive(Template)]
#[template(path = "console/run.html")]
struct Transcript {
    id: String,
    session: String,
    state: String,
    tone: &'static str,
    live: bool,
    resumable: bool,
    model: String,
    agent: String,
    principal: String,
    opened: When,
    spent: Vec<(&'static str, String)>,
    problem: Option<(String, String)>,
    said: Vec<Said>,
    open: Vec<OpenCall>,
}

/// Something that somebody said, and the calls that belong to it.
struct Said {
    who: &'static str,
    by: String,
    text: String,
    calls: Vec<InlineCall>,
}

struct InlineCall {
    tool: String,
    input: String,
    call: Option<String>,
    state: String,
    tone: &'static str,
    result: String,
}

/// A call of this run that has not ended.
struct OpenCall {
    id: String,
    what: String,
    state: String,
    waits: bool,
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// Text of several lines, as much as a page holds.
fn long(text: &str) -> String {
    let kept: String = text.chars().take(MOST_TEXT).collect();
    let more = if kept.len() < text.len() { "\n… the call's page and `palyra runs show` have all of it" } else { "" };
    format!("{}{more}", safe_lines(&kept))
}

fn said(run: &RunShown) -> Vec<Said> {
    let told = run.input.iter().filter(|message| message.role != Role::Tool).map(|message| {
        let who = match message.role {
            Role::User => "person",
            Role::System => "system",
            Role::Assistant | Role::Tool => "model",
        };
        let pictures = message.parts.iter().filter(|part| matches!(part, Part::Image { .. })).count();
        let note = if pictures > 0 { format!("\n[{pictures} images]") } else { String::new() };
        Said { who, by: String::new(), text: long(&(message.plain_text() + &note)), calls: Vec::new() }
    });
    let answered = run.turns.iter().map(|turn| {
        let result = |id: &str| turn.results.as_ref()?.iter().find(|result| result.id == id);
        let calls = turn.reply.tool_calls.iter().map(|asked| {
            let got = result(&asked.id);
            let state = got.and_then(|got| got.state);
            InlineCall {
                tool: seen(&asked.name),
                input: long(&asked.arguments),
                call: got.and_then(|got| got.call_id.as_ref()).map(ToString::to_string),
                state: spaced(state.map_or(if got.is_some() { "refused" } else { "under way" }, CallState::as_str)),
                tone: state.map_or(if got.is_some() { "bad" } else { "warn" }, calls::tone),
                result: got.map_or_else(String::new, |got| long(&got.content)),
            }
        });
        Said { who: "model", by: seen(&turn.model), text: long(&turn.reply.text), calls: calls.collect() }
    });
    told.chain(answered).collect()
}

impl Transcript {
    fn of(run: &RunShown, open: Vec<OpenCall>) -> Self {
        let (spent, budget) = (run.spent, run.budget);
        let of = |used: u64, most: u64| format!("{used} of {most}");
        Self {
            id: run.run.to_string(),
            session: run.session.to_string(),
            state: spaced(run.state.as_str()),
            tone: tone(run.state),
            live: run.state == RunState::Running,
            resumable: matches!(
                run.state,
                RunState::Interrupted | RunState::Failed | RunState::Cancelled | RunState::OverBudget
            ),
            model: seen(&run.model),
            agent: run.agent.as_deref().map(seen).unwrap_or_default(),
            principal: seen(&run.principal),
            opened: When(Timestamp::from_unix_ms(run.opened_at_unix_ms)),
            spent: vec![
                ("calls", of(spent.calls, budget.calls)),
                ("model calls", of(spent.model_calls, budget.model_calls)),
                ("tokens", of(spent.input_tokens + spent.output_tokens, budget.tokens)),
                ("seconds", of(spent.active_ms / 1000, budget.seconds)),
            ],
            problem: run
                .problem
                .as_ref()
                .map(|problem| (seen(&problem.message), seen(problem.hint.as_deref().unwrap_or("")))),
            said: said(run),
            open,
        }
    }
}

pub(super) async fn show(State(door): State<Door>, caller: Caller, Id(run): Id<RunId>) -> Result<Response, Refused> {
    let shown = door.runs().show(&caller.peer, &run).await?;
    let open = if shown.state == RunState::Running { open_calls(&door, &caller, &shown).await } else { Vec::new() };
    fragment(&Transcript::of(&shown, open))
}

/// The run's calls that have not ended, for those who may see calls.
async fn open_calls(door: &Door, caller: &Caller, run: &RunShown) -> Vec<OpenCall> {
    let since = Some(Timestamp::from_unix_ms(run.opened_at_unix_ms));
    let filter =
        CallFilter { session: Some(run.session.to_string()), since, most: OPEN_CALLS, ..CallFilter::default() };
    let Ok((found, _)) = door.engine.calls(&caller.peer, filter).await else { return Vec::new() };
    let open = found.records.iter().filter(|call| !call.state.is_terminal());
    open.map(|call| OpenCall {
        id: call.call_id.to_string(),
        what: cut(if call.what.is_empty() { &call.tool } else { &call.what }, 160),
        state: spaced(call.state.as_str()),
        waits: call.state == CallState::AwaitingApproval,
    })
    .collect()
}

/// What happens in a run, a line of JSON for each piece of news. The browser's going away does not end the run.
pub(super) async fn news(State(door): State<Door>, caller: Caller, Id(run): Id<RunId>) -> Result<Response, Refused> {
    let (_, watch) = door.runs().watch(&caller.peer, &run).await?;
    let (lines, receiver) = mpsc::channel::<Bytes>(BACKLOG);
    if let Some(mut watch) = watch {
        let (engine, peer, closing) = (door.engine.clone(), caller.peer.clone(), door.closing.clone());
        tokio::spawn(async move {
            let mut shut_out = std::pin::pin!(engine.shut_out(&peer));
            loop {
                let news = tokio::select! {
                    biased;
                    _ = &mut shut_out => return,
                    () = closing.cancelled() => return,
                    news = watch.next() => news,
                };
                let Some(line) = news.and_then(|news| serde_json::to_string(&*news).ok()) else { return };
                if lines.send(format!("{line}\n").into()).await.is_err() {
                    return;
                }
            }
        });
    }
    let body = Body::from_stream(futures(receiver));
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

fn futures(receiver: mpsc::Receiver<Bytes>) -> impl tokio_stream::Stream<Item = Result<Bytes, Infallible>> {
    use tokio_stream::StreamExt as _;
    ReceiverStream::new(receiver).map(Ok)
}

pub(super) async fn cancel(
    State(door): State<Door>,
    caller: Caller,
    Id(run): Id<RunId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    let ended = door.runs().cancel(&caller.peer, &run).await?;
    document(&json!({ "run": ended.run, "state": ended.state }))
}

pub(super) async fn resume(
    State(door): State<Door>,
    caller: Caller,
    Id(run): Id<RunId>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    door.runs().resume(&caller.peer, &run).await?;
    document(&json!({ "run": run }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_says_is_inert_and_its_hidden_characters_are_seen() {
        let hostile = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[2J";
        let said = Said {
            who: "model",
            by: seen("replay/x"),
            text: long(hostile),
            calls: vec![InlineCall {
                tool: seen(hostile),
                input: long(hostile),
                call: None,
                state: "refused".to_owned(),
                tone: "bad",
                result: long(hostile),
            }],
        };
        let transcript = Transcript {
            id: "run".to_owned(),
            session: "s".to_owned(),
            state: "running".to_owned(),
            tone: "warn",
            live: true,
            resumable: false,
            model: seen(hostile),
            agent: String::new(),
            principal: seen(hostile),
            opened: When(Timestamp::from_unix_ms(1)),
            spent: Vec::new(),
            problem: Some((seen(hostile), String::new())),
            said: vec![said],
            open: Vec::new(),
        };
        let html = transcript.render().unwrap();
        assert!(!html.contains("<img") && !html.contains('\u{202e}') && !html.contains('\u{1b}'), "{html}");
        assert!(html.contains("onerror=alert(1)"));
    }

    #[test]
    fn a_long_text_says_where_the_rest_is() {
        assert_eq!(long("short"), "short");
        let cut = long(&"x".repeat(MOST_TEXT + 1));
        assert!(cut.len() < MOST_TEXT + 100 && cut.contains("have all of it"));
    }
}
