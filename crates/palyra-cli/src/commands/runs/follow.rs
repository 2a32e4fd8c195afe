//! Following a run: its text to standard output, what happens to standard error, approvals answered in place.

use super::outcome;
use crate::answering::question::{Desk, Others};
use crate::answering::{End, Keys, Question, Screen, at_terminal};
use crate::commands::read;
use crate::context::Context;
use crate::exit::{CANCELLED, FAILED, Failure};
use crate::output::{self, BAD, DIM, GOOD, WARN, note, styled};
use crate::text::{safe, safe_lines};
use palyra_api::Connection;
use palyra_api::v1::{CancelRunRequest, GetRunRequest, RunUpdate};
use palyra_protocol::SessionId;
use serde_json::Value;
use std::collections::VecDeque;
use tokio::signal::unix::{SignalKind, signal};
use tonic::Streaming;

/// What Ctrl-C does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ends the run.
    Cancels,
    /// Ends the following; the run goes on.
    Leaves,
}

/// One who follows a run.
pub(super) struct Following<'c> {
    context: &'c Context,
    connection: Connection,
    updates: Streaming<RunUpdate>,
    /// What came while a person was asked.
    held: VecDeque<Value>,
    interrupt: Interrupt,
    run: String,
    session: Option<SessionId>,
    /// Whether text was printed whose line has not ended.
    open_line: bool,
}

impl<'c> Following<'c> {
    pub(super) fn new(
        context: &'c Context,
        connection: Connection,
        updates: Streaming<RunUpdate>,
        interrupt: Interrupt,
    ) -> Self {
        let (held, run, session) = (VecDeque::new(), String::new(), None);
        Self { context, connection, updates, held, interrupt, run, session, open_line: false }
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.session.clone()
    }

    /// Waits until the run is on record.
    pub(super) async fn opened(&mut self) -> Result<String, Failure> {
        while self.run.is_empty() {
            let Some(news) = self.next().await? else { return Err(stopped(&self.run)) };
            self.take_names(&news);
        }
        Ok(self.run.clone())
    }

    /// Follows the run to its end, and fails as it failed.
    pub(super) async fn follow_to_end(&mut self) -> Result<(), Failure> {
        let mut interrupted = signal(SignalKind::interrupt()).map_err(|e| Failure::io("Ctrl-C cannot be heard", &e))?;
        loop {
            let news = tokio::select! {
                news = self.next() => news?,
                _ = interrupted.recv() => return self.leave().await,
            };
            let Some(news) = news else { return self.as_recorded().await };
            self.take_names(&news);
            match news["type"].as_str() {
                Some("ended") => return self.end(&news).await,
                Some("approval") if !self.context.json() => {
                    if !self.ask(&news).await? {
                        return self.leave().await;
                    }
                }
                _ if self.context.json() => {}
                _ => self.show(&news),
            }
        }
    }

    /// The next news; a run as it stands becomes news of its kind.
    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        if let Some(news) = self.held.pop_front() {
            return Ok(Some(news));
        }
        let Some(update) = self.updates.message().await? else { return Ok(None) };
        if update.run_json.is_empty() { read(&update.news_json).map(Some) } else { read(&update.run_json).map(Some) }
    }

    fn take_names(&mut self, news: &Value) {
        if let Some(run) = news["run"].as_str() {
            run.clone_into(&mut self.run);
        }
        if let Some(session) = news["session"].as_str() {
            self.session = session.parse().ok();
        }
    }

    /// The stream ended without the run's end: the record says how it stands.
    async fn as_recorded(&mut self) -> Result<(), Failure> {
        if self.run.is_empty() {
            return Err(stopped(&self.run));
        }
        let told = self.connection.runs().get(GetRunRequest { run: self.run.clone() }).await?.into_inner();
        let shown: Value = read(&told.run_json)?;
        let state = shown["state"].as_str().unwrap_or_default();
        if matches!(state, "running" | "interrupted") {
            return Err(stopped(&self.run));
        }
        match self.context.json() {
            true => output::json(&shown)?,
            false => super::print::show(&shown),
        }
        outcome(state, &shown["problem"])
    }

    async fn end(&mut self, news: &Value) -> Result<(), Failure> {
        self.close_line();
        let state = news["state"].as_str().unwrap_or_default();
        let told = self.connection.runs().get(GetRunRequest { run: self.run.clone() }).await?.into_inner();
        let shown: Value = read(&told.run_json)?;
        if self.context.json() {
            output::json(&shown)?;
        } else {
            let spent = &shown["spent"];
            let tokens = spent["input_tokens"].as_u64().unwrap_or(0) + spent["output_tokens"].as_u64().unwrap_or(0);
            let calls = spent["calls"].as_u64().unwrap_or(0);
            let mark = if state == "completed" { styled(GOOD, "✔") } else { styled(WARN, "✘") };
            let facts = format!("{} · {} · {calls} calls · {tokens} tokens", safe(state), self.run);
            note!("{mark} {}", styled(DIM, facts));
        }
        outcome(state, &news["problem"])
    }

    async fn leave(&mut self) -> Result<(), Failure> {
        self.close_line();
        if self.run.is_empty() {
            return Err(Failure::new(CANCELLED, "interrupted", "interrupted before the run was on record", None));
        }
        match self.interrupt {
            Interrupt::Cancels => {
                self.connection.runs().cancel(CancelRunRequest { run: self.run.clone() }).await?;
                Err(Failure::new(CANCELLED, "cancelled", "cancelled; the run has ended", None))
            }
            Interrupt::Leaves => {
                let hint = format!("follow it again: `palyra runs follow {}`", self.run);
                Err(Failure::new(CANCELLED, "interrupted", "interrupted; the run goes on", Some(&hint)))
            }
        }
    }

    /// Puts an approval to the person at this terminal, if there is one; says whether they stay.
    async fn ask(&mut self, news: &Value) -> Result<bool, Failure> {
        self.close_line();
        let id = news["approval_id"].as_str().unwrap_or_default().to_owned();
        let call = news["call_id"].as_str().unwrap_or_default().to_owned();
        if !at_terminal(std::io::stderr()) {
            elsewhere(news);
            return Ok(true);
        }
        let connection = self.context.connect_as_self().await?;
        let Ok(shown) = crate::commands::approvals::fetch(&connection, &id).await else {
            elsewhere(news);
            return Ok(true);
        };
        let (mut screen, mut keys) = (Screen::open(false)?, Keys::take()?);
        let desk = Desk { screen: &mut screen, keys: &mut keys, connection: &connection };
        let (_others, waiting) = tokio::sync::watch::channel(Others::default());
        let moved = moved_on(&mut self.updates, &mut self.held, &call);
        match Question::new(desk, &[shown]).ask(waiting, moved).await? {
            End::News(moved) => moved.map(|()| true),
            End::Answered => Ok(true),
            End::Later | End::Group => {
                elsewhere(news);
                Ok(true)
            }
            End::Quit => Ok(false),
            End::Lost(failure) => Err(failure),
        }
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.open_line) {
            output::bytes(b"\n");
        }
    }

    fn show(&mut self, news: &Value) {
        let text = |name: &str| safe(news[name].as_str().unwrap_or_default());
        match news["type"].as_str() {
            Some("text") => {
                let said = safe_lines(news["text"].as_str().unwrap_or_default());
                self.open_line = !said.ends_with('\n');
                output::bytes(said.as_bytes());
            }
            Some("turn") => self.close_line(),
            Some("call") if news["state"] == "executing" => {
                self.close_line();
                note!("{} {} {}", styled(DIM, "→"), text("tool"), styled(DIM, text("call_id")));
            }
            Some("output") => {
                note!("{}", styled(DIM, safe_lines(news["text"].as_str().unwrap_or_default().trim_end())));
            }
            Some("result") => self.result(&news["result"]),
            _ => {}
        }
    }

    fn result(&mut self, result: &Value) {
        self.close_line();
        let text = |name: &str| safe(result[name].as_str().unwrap_or_default());
        if result["is_error"] == true {
            let told: Value = serde_json::from_str(result["content"].as_str().unwrap_or_default()).unwrap_or_default();
            let why = safe(told["error"]["message"].as_str().unwrap_or("it did not succeed"));
            note!("{} {} {}: {why}", styled(BAD, "✘"), text("tool"), text("state"));
        } else {
            note!("{} {} {}", styled(GOOD, "✔"), text("tool"), styled(DIM, text("call_id")));
        }
    }
}

/// Takes news until the call that a person is asked about goes on; what else comes is held for later.
async fn moved_on(updates: &mut Streaming<RunUpdate>, held: &mut VecDeque<Value>, call: &str) -> Result<(), Failure> {
    loop {
        let Some(update) = updates.message().await? else { return Ok(()) };
        let news: Value = read(&update.news_json)?;
        let kind = news["type"].as_str().unwrap_or_default();
        let about = news["call_id"] == call || news["result"]["call_id"] == call;
        let moved = kind == "ended" || (about && matches!(kind, "call" | "result"));
        held.push_back(news);
        if moved {
            return Ok(());
        }
    }
}

fn elsewhere(news: &Value) {
    let text = |name: &str| safe(news[name].as_str().unwrap_or_default());
    note!("{} {} waits for approval; decide in another terminal:", styled(WARN, "◌"), text("tool"));
    note!("    palyra approvals show {}", text("approval_id"));
    note!("    palyra approvals decide {} allow", text("approval_id"));
}

fn stopped(run: &str) -> Failure {
    let hint = if run.is_empty() {
        "`palyra runs list` shows the runs".to_owned()
    } else {
        format!("`palyra runs show {run}` tells how it stands")
    };
    Failure::new(FAILED, "transport", "the daemon stopped telling about the run", Some(&hint))
}
