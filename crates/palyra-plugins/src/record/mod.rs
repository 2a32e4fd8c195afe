//! What a call heard from outside, recorded so that it can be run again without the outside.
//!
//! A guest is deterministic: the same component, grant, input, random seed and answers from the host lead to the same
//! output and the same fuel. So the record of a call is its seed and every answer that did not follow from those, in
//! order. Each answer is kept with the digest of what was asked, and a replay that asks something else has diverged.
//! Secrets are the exception: the record says that one was read and never what it was, so replaying such a call needs
//! the vault.
//!
//! The record is JSON, like everything that the journal keeps. Reading one is reading hostile input: it is bounded and
//! strict.

pub(crate) mod bytes;
mod event;
mod tape;

pub use event::{Blob, FileAnswer, FileKind, FileStatus, HostAnswer, HostEvent};
pub(crate) use tape::Tape;

use crate::grant::Grant;
use palyra_protocol::{Digest, DigestBuilder};
use serde::{Deserialize, Serialize};

/// The largest record that is read. Recording has its own, smaller limit; texts in JSON take more room than bytes.
pub(crate) const MOST_RECORD_BYTES: usize = 64 << 20;

const FORMAT: u32 = 1;

/// The record of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRecord {
    format: u32,
    /// The component that ran.
    pub component: Digest,
    /// What it was granted.
    pub grant: Grant,
    /// The tool that was called.
    pub tool: String,
    /// The digest of the input's text.
    pub input: Digest,
    /// Where the guest's random numbers came from.
    #[serde(with = "hex::serde")]
    pub seed: [u8; 32],
    /// What the host answered.
    pub events: Vec<HostEvent>,
    /// Whether every answer is there. Without that the call cannot be replayed.
    pub complete: bool,
    /// How it ended.
    pub ending: Ending,
    /// The fuel it used.
    pub fuel_used: u64,
}

/// How a recorded call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ending {
    /// With an output of this digest.
    Output(Digest),
    /// With an error of the tool's own, of this digest.
    ToolError(Digest),
    /// With an error of this code.
    Failed(String),
}

impl Ending {
    /// The digest of an output's text.
    #[must_use]
    pub fn output(text: &str) -> Self {
        Self::Output(Digest::of(text.as_bytes()))
    }

    /// The digest of a tool's own error.
    #[must_use]
    pub fn tool_error(code: &str, message: &str) -> Self {
        let digest = DigestBuilder::new("palyra.plugins.tool_error.v1");
        Self::ToolError(digest.field(code.as_bytes()).field(message.as_bytes()).finish())
    }

    /// Whether it follows from what was recorded. Time that ran out and a caller that withdrew do not.
    fn can_be_replayed(&self) -> bool {
        !matches!(self, Self::Failed(code) if matches!(code.as_str(), "plugin_limit_wall_clock" | "plugin_cancelled"))
    }
}

/// Why a text is not a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is too large.
    #[error("the record has {0} bytes; at most {MOST_RECORD_BYTES} are read")]
    TooLarge(usize),
    /// It is not a record.
    #[error("the record cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// It is of another time.
    #[error("the record has format {0}; this host reads format {FORMAT}")]
    Format(u32),
}

/// Why a call cannot be replayed, or came out differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The record is of another component.
    #[error("the record is of component {recorded}, not of {given}")]
    OtherComponent {
        /// The component in the record.
        recorded: Digest,
        /// The one that was given.
        given: Digest,
    },
    /// The record is of another input.
    #[error("the record is of another input")]
    OtherInput,
    /// More happened than the record holds.
    #[error("the call is not recorded completely: its record would have exceeded `record_bytes`")]
    Incomplete,
    /// Time or the caller ended it.
    #[error("the call ended with `{0}`, which does not follow from what is recorded")]
    EndedFromOutside(String),
    /// It read a secret, and there is no vault to read it from again.
    #[error("the call read the secret `{0}`, which no record holds")]
    NeedsSecret(String),
    /// The guest did something else.
    #[error("the replay diverged: {0}")]
    Diverged(Divergence),
    /// It came out differently.
    #[error("the replay ended differently from the recorded call")]
    OtherEnding {
        /// How the recorded call ended.
        recorded: Ending,
        /// How the replay ended.
        replayed: Ending,
    },
    /// It could not be run.
    #[error("the replay could not be run")]
    Plugin(#[from] crate::error::PluginError),
}

impl ReplayError {
    /// The stable code by which programs know this error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherComponent { .. } => "replay_other_component",
            Self::OtherInput => "replay_other_input",
            Self::Incomplete => "replay_incomplete",
            Self::EndedFromOutside(_) => "replay_ended_from_outside",
            Self::NeedsSecret(_) => "replay_needs_secret",
            Self::Diverged(_) => "replay_diverged",
            Self::OtherEnding { .. } => "replay_other_ending",
            Self::Plugin(error) => error.code(),
        }
    }
}

/// Where a replay left the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Divergence {
    /// The guest asked for more than was recorded.
    #[error("the guest asked for `{asked}` after the last recorded answer")]
    PastEnd {
        /// What it asked for.
        asked: &'static str,
    },
    /// The guest asked for something else.
    #[error("event {at}: the guest asked for `{asked}`, and `{recorded}` is recorded")]
    OtherKind {
        /// Which event.
        at: usize,
        /// What it asked for.
        asked: &'static str,
        /// What is recorded.
        recorded: &'static str,
    },
    /// The guest asked the same kind of question with other words.
    #[error("event {at}: the guest asked another `{asked}`")]
    OtherQuestion {
        /// Which event.
        at: usize,
        /// What it asked for.
        asked: &'static str,
    },
    /// The guest ended before it had asked for everything.
    #[error("the guest did not ask for the recorded `{recorded}`")]
    NotAsked {
        /// What is recorded.
        recorded: &'static str,
    },
    /// A secret that cannot be read again.
    #[error("the secret `{0}` cannot be read again")]
    Secret(String),
}

impl CallRecord {
    /// Begins a record.
    pub(crate) fn begin(component: Digest, grant: &Grant, tool: &str, input: &str, seed: [u8; 32]) -> Self {
        Self {
            format: FORMAT,
            component,
            grant: grant.clone(),
            tool: tool.to_owned(),
            input: Digest::of(input.as_bytes()),
            seed,
            events: Vec::new(),
            complete: false,
            ending: Ending::Failed(String::new()),
            fuel_used: 0,
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When it is too large, of another format, or no record.
    pub fn from_json(text: &[u8]) -> Result<Self, RecordError> {
        if text.len() > MOST_RECORD_BYTES {
            return Err(RecordError::TooLarge(text.len()));
        }
        let record: Self = serde_json::from_slice(text).map_err(RecordError::Malformed)?;
        if record.format == FORMAT { Ok(record) } else { Err(RecordError::Format(record.format)) }
    }

    /// Writes the record.
    ///
    /// # Errors
    /// None that is known; the serialiser reserves the right.
    pub fn to_json(&self) -> Result<String, RecordError> {
        serde_json::to_string(self).map_err(RecordError::Malformed)
    }

    /// Whether the guest read a secret: then answers that were recorded after it may hold parts of it, and the record
    /// deserves the protection that the secret has.
    #[must_use]
    pub fn may_hold_secrets(&self) -> bool {
        self.events.iter().any(|event| matches!(event.answer, HostAnswer::Secret(Ok(()))))
    }

    /// Whether this record can be replayed at all.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check(&self, component: Digest, input: &str) -> Result<(), ReplayError> {
        if self.component != component {
            return Err(ReplayError::OtherComponent { recorded: self.component, given: component });
        }
        if self.input != Digest::of(input.as_bytes()) {
            return Err(ReplayError::OtherInput);
        }
        if let Ending::Failed(code) = &self.ending
            && !self.ending.can_be_replayed()
        {
            return Err(ReplayError::EndedFromOutside(code.clone()));
        }
        if self.complete { Ok(()) } else { Err(ReplayError::Incomplete) }
    }
}
