//! Agent runs as the journal records them.
//!
//! A run is a conversation with a model whose tool calls go the one path. What the model said is on record before any
//! of its calls is proposed, and what the calls gave before the model is asked again. So a run that broke off goes on
//! from its last record, and every call in it has a key that is the same each time.

use crate::call::{CallState, Origin, Problem};
use crate::egress::EgressRecord;
use crate::id::{CallId, IdempotencyKey, RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far a run may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBudget {
    /// The most tool calls.
    pub calls: u64,
    /// The most calls to the model.
    pub model_calls: u64,
    /// The most tokens, read and written, as the provider counts them.
    pub tokens: u64,
    /// The most time that the model and the calls take. Waiting for a person does not count.
    pub seconds: u64,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It goes on, or will after the daemon's restart.
    Running,
    /// Nobody carries it on: somebody has to resume it.
    Interrupted,
    /// The model said its last word.
    Completed,
    /// The model asks for tools that only the caller has.
    CallerTools,
    /// It could not go on.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// Its budget is used up.
    OverBudget,
    /// Nobody knows whether one of its calls took effect.
    Indeterminate,
}

impl RunState {
    /// The stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::CallerTools => "caller_tools",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::OverBudget => "over_budget",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Running | Self::Interrupted)
    }
}

/// A run begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOpened {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Who asked for it, from where: its calls are proposed in this name.
    pub origin: Origin,
    /// The configured agent, where one is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model, as it was named.
    pub model: String,
    /// What the run is about: the messages that begin it, in the form of `palyra-agent`.
    pub input: Value,
    /// The system prompt it goes by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The tools it may use, by canonical name.
    pub tools: Vec<String>,
    /// Tools that only the caller has: the run ends where the model asks for one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub caller_tools: Value,
    /// How the model is to answer: what the caller asked for, in the form of `palyra-agent`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    /// How far it may go.
    pub budget: RunBudget,
    /// The run of the same session that it goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
}

/// The model has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunTurn {
    /// The run.
    pub run: RunId,
    /// Which answer it is, counted from 1.
    pub turn: u64,
    /// Who answered: `provider/model`.
    pub model: String,
    /// The whole answer, in the form of `palyra-agent`.
    pub reply: Value,
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written.
    pub output_tokens: u64,
    /// How long it took.
    pub active_ms: u64,
    /// The connections that were made for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<EgressRecord>,
}

/// What one tool call gave, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The model's name for the call.
    pub id: String,
    /// The tool, by the name that the model used.
    pub tool: String,
    /// The call, where it became one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CallState>,
    /// What the model is told.
    pub content: String,
    /// What the journal keeps in its place, where a text can be forgotten.
    #[serde(skip)]
    pub recorded: Option<String>,
    /// Whether it did not succeed.
    pub is_error: bool,
    /// The digest of the call's attestation, when it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation_sha256: Option<crate::digest::Digest>,
}

impl RunResult {
    /// The result as the journal keeps it.
    #[must_use]
    pub fn as_recorded(&self) -> Self {
        let content = self.recorded.as_ref().unwrap_or(&self.content).clone();
        Self { content, recorded: None, ..self.clone() }
    }
}

/// The calls of a turn have ended, and the model is about to be asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResults {
    /// The run.
    pub run: RunId,
    /// The turn whose calls these are.
    pub turn: u64,
    /// What they gave, in the order that the model asked.
    pub results: Vec<RunResult>,
    /// How long they took, without the time in which a person was asked.
    pub active_ms: u64,
}

/// Somebody, or a start of the daemon, carries a run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResumed {
    /// The run.
    pub run: RunId,
    /// Who; nobody where the daemon does it at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<crate::principal::Principal>,
}

/// A run has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How.
    pub state: RunState,
    /// Why, where it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Connections of a model call that gave no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<EgressRecord>,
}

impl RunId {
    /// The key of a run's tool call: the same whenever the run is carried on, and no other call's.
    #[must_use]
    pub fn call_key(&self, turn: u64, index: usize) -> Option<IdempotencyKey> {
        format!("run/{self}/{turn}/{index}").parse().ok()
    }
}
