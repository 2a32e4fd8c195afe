//! A run as its events tell it.

use crate::conversation::{Message, Part, Role};
use crate::reply::ModelReply;
use palyra_engine::RunHistory;
use palyra_protocol::{JournalEvent, Problem, RunBudget, RunId, RunResult, RunState, SessionId};
use serde::Serialize;

/// One answer of the model, and what its calls gave.
#[derive(Debug, Clone, Serialize)]
pub struct TurnShown {
    /// Which, counted from 1.
    pub turn: u64,
    /// Who answered.
    pub model: String,
    /// The answer.
    pub reply: ModelReply,
    /// What its calls gave; nothing while they have not all ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<RunResult>>,
}

/// What a run has used of its budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Tool calls.
    pub calls: u64,
    /// Calls to the model, those without an answer included.
    pub model_calls: u64,
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written.
    pub output_tokens: u64,
    /// Time that the model and the calls took.
    pub active_ms: u64,
}

/// A run from its beginning to its newest event.
#[derive(Debug, Clone, Serialize)]
pub struct RunShown {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// In whose name.
    pub principal: String,
    /// The configured agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model, as it was named.
    pub model: String,
    /// How it stands.
    pub state: RunState,
    /// Why, where it did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// When it began.
    pub opened_at_unix_ms: u64,
    /// What began it.
    pub input: Vec<Message>,
    /// The answers.
    pub turns: Vec<TurnShown>,
    /// How far it may go.
    pub budget: RunBudget,
    /// How far it went.
    pub spent: Spent,
}

impl RunShown {
    pub(super) fn of(history: &RunHistory) -> Self {
        let opened = &history.opened.opened;
        let mut shown = Self {
            run: opened.run.clone(),
            session: opened.session.clone(),
            principal: opened.origin.principal.to_string(),
            agent: opened.agent.clone(),
            model: opened.model.clone(),
            state: RunState::Running,
            problem: None,
            opened_at_unix_ms: history.opened.at.unix_ms(),
            // What was recorded by this crate is read by it; a version that knows more shows nothing instead.
            input: serde_json::from_value(opened.input.clone()).unwrap_or_default(),
            turns: Vec::new(),
            budget: opened.budget,
            spent: Spent { model_calls: 1, ..Spent::default() },
        };
        for (_, event) in &history.events {
            shown.take(event);
        }
        shown
    }

    fn take(&mut self, event: &JournalEvent) {
        match event {
            JournalEvent::RunTurn(turn) => {
                let reply: ModelReply = serde_json::from_value(turn.reply.clone()).unwrap_or_default();
                self.spent.calls += reply.tool_calls.len() as u64;
                self.spent.input_tokens += turn.input_tokens;
                self.spent.output_tokens += turn.output_tokens;
                self.spent.active_ms += turn.active_ms;
                self.turns.push(TurnShown { turn: turn.turn, model: turn.model.clone(), reply, results: None });
            }
            JournalEvent::RunResults(results) => {
                // The model is asked again right after.
                self.spent.model_calls += 1;
                self.spent.active_ms += results.active_ms;
                if let Some(turn) = self.turns.iter_mut().find(|turn| turn.turn == results.turn) {
                    turn.results = Some(results.results.clone());
                }
            }
            JournalEvent::RunResumed(_) => {
                self.spent.model_calls += 1;
                (self.state, self.problem) = (RunState::Running, None);
            }
            JournalEvent::RunEnded(ended) => (self.state, self.problem) = (ended.state, ended.problem.clone()),
            _ => {}
        }
    }

    /// The text of the last answer.
    #[must_use]
    pub fn text(&self) -> &str {
        self.turns.last().map_or("", |turn| turn.reply.text.as_str())
    }

    /// The conversation so far, as the model is told.
    pub(super) fn messages(&self) -> Vec<Message> {
        let mut messages = self.input.clone();
        for turn in &self.turns {
            messages.push(turn.reply.message());
            if let Some(results) = turn.results.as_ref().filter(|results| !results.is_empty()) {
                messages.push(told(results));
            }
        }
        messages
    }
}

/// Results as a message.
pub(super) fn told(results: &[RunResult]) -> Message {
    let parts = results.iter().map(|result| Part::ToolResult {
        id: result.id.clone(),
        content: result.content.clone(),
        is_error: result.is_error,
    });
    Message { role: Role::Tool, parts: parts.collect() }
}
