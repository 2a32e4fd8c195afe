//! A call of a tool: what it takes, what comes of it, and waiting for that.

use crate::control::CallControl;
use crate::doors::Doors;
use crate::error::PluginError;
use crate::grant::Grant;
use crate::guest::{HostCalls, LogLine, Observed};
use crate::names::SkillName;
use crate::plugin::{Plugin, RawTool};
use crate::record::CallRecord;
use serde::Serialize;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A call of a tool.
#[derive(Debug, Clone)]
pub struct PluginCall {
    /// Whose line it waits in.
    pub skill: SkillName,
    /// The component.
    pub plugin: Arc<Plugin>,
    /// What it is granted.
    pub grant: Arc<Grant>,
    /// The tool.
    pub tool: String,
    /// Its input, as JSON.
    pub input_json: String,
    /// What is open to it.
    pub doors: Doors,
}

/// What came of a call that ran.
#[derive(Debug)]
pub struct Execution {
    /// The tool's answer, or why there is none.
    pub result: Result<ToolAnswer, PluginError>,
    /// What the guest wrote.
    pub log: Vec<LogLine>,
    /// What it used.
    pub usage: Usage,
    /// What it asked for by name.
    pub observed: Observed,
    /// What it was granted.
    pub grant: Arc<Grant>,
    /// What it heard from outside.
    pub record: CallRecord,
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolAnswer {
    /// Its output, as JSON. Whether that is what the manifest promises is not looked at here.
    Output(String),
    /// An error of the tool's own.
    Failed {
        /// A short name.
        code: String,
        /// A sentence.
        message: String,
    },
}

/// What a call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Fuel.
    pub fuel: u64,
    /// The most linear memory that it had at one time.
    pub peak_memory_bytes: u64,
    /// Its calls of host functions.
    pub host_calls: HostCalls,
    /// How long it ran.
    #[serde(serialize_with = "as_milliseconds", rename = "duration_ms")]
    pub duration: Duration,
}

fn as_milliseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(crate::guest::milliseconds(*duration))
}

/// A tool, as a component describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolDescription {
    /// Its name.
    pub name: String,
    /// One sentence about it.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: String,
    /// The JSON Schema of its output.
    pub output_schema: Option<String>,
}

impl ToolDescription {
    pub(crate) fn size(&self) -> usize {
        let schemas = self.input_schema.len() + self.output_schema.as_ref().map_or(0, String::len);
        self.name.len() + self.description.len() + schemas
    }
}

impl From<RawTool> for ToolDescription {
    fn from(raw: RawTool) -> Self {
        let RawTool { name, description, input_schema, output_schema } = raw;
        Self { name, description, input_schema, output_schema }
    }
}

/// A call that waits or runs. Dropping it cancels the call.
#[derive(Debug)]
pub struct PendingCall {
    control: Arc<CallControl>,
    answer: oneshot::Receiver<Result<Execution, PluginError>>,
}

impl PendingCall {
    pub(crate) fn new(control: Arc<CallControl>, answer: oneshot::Receiver<Result<Execution, PluginError>>) -> Self {
        Self { control, answer }
    }

    /// Its time and its cancellation, for whoever else needs to end it.
    #[must_use]
    pub fn control(&self) -> Arc<CallControl> {
        Arc::clone(&self.control)
    }

    /// Waits on this thread; not for asynchronous ones.
    ///
    /// # Errors
    /// When it could not be run; how a call ended that ran is in its [`Execution`].
    pub fn wait(mut self) -> Result<Execution, PluginError> {
        let (_, never) = oneshot::channel();
        std::mem::replace(&mut self.answer, never).blocking_recv().unwrap_or_else(|_| Err(broken()))
    }
}

impl Future for PendingCall {
    type Output = Result<Execution, PluginError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(broken())))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.control.cancel();
    }
}

/// A call that ended without an answer: its thread panicked.
pub(crate) fn broken() -> PluginError {
    PluginError::Bug { detail: "a call ended without an answer".to_owned() }
}
