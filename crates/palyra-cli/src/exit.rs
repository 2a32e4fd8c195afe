//! How the program ends: failures with codes that scripts can use.

use palyra_api::ApiError;
use palyra_protocol::{CallState, Problem, ProblemCode};
use serde::Serialize;

/// Why a command did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// The program's exit code.
    pub exit: u8,
    /// The stable machine code.
    pub code: String,
    /// What happened and why.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const DENIED: u8 = 3;
pub const EXPIRED: u8 = 4;
pub const CANCELLED: u8 = 5;
pub const REJECTED: u8 = 6;
pub const UNREACHABLE: u8 = 7;
pub const UNVERIFIED: u8 = 8;
pub const INDETERMINATE: u8 = 9;
pub const REFUSED: u8 = 10;

#[derive(Debug, Serialize)]
pub struct ErrorDocument<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Failure {
    pub fn new(exit: u8, code: &str, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { exit, code: code.to_owned(), message: message.into(), hint: hint.map(str::to_owned) }
    }

    /// The command line makes no sense.
    pub fn usage(message: impl Into<String>, hint: &str) -> Self {
        Self::new(USAGE, "usage", message, Some(hint))
    }

    /// A file or stream failed.
    pub fn io(what: &str, error: &std::io::Error) -> Self {
        Self::new(FAILED, "io", format!("{what}: {error}"), None)
    }

    /// What the daemon sent is not understood: two versions that do not fit.
    pub fn bug(error: &dyn std::error::Error) -> Self {
        Self::new(
            FAILED,
            "unexpected_answer",
            format!("the daemon's answer is not understood: {error}"),
            Some("do `palyra` and `palyrad` have the same version? see `palyra status`"),
        )
    }

    /// A stream that goes on until somebody ends it was ended by the other side.
    pub fn daemon_ended() -> Self {
        Self::new(
            UNREACHABLE,
            "daemon_unreachable",
            "the daemon has ended",
            Some("see whether it runs: `palyra status`; start it: `palyra up`"),
        )
    }

    /// How a call's end becomes the program's.
    pub fn of_call(state: CallState, problem: Option<&Problem>) -> Self {
        let exit = match state {
            CallState::Rejected => REJECTED,
            CallState::Denied => DENIED,
            CallState::Expired => EXPIRED,
            CallState::Cancelled => CANCELLED,
            CallState::Indeterminate => INDETERMINATE,
            CallState::Failed
            | CallState::Proposed
            | CallState::AwaitingApproval
            | CallState::Approved
            | CallState::Executing
            | CallState::Succeeded => FAILED,
        };
        match problem {
            Some(Problem { code, message, hint, .. }) => {
                Self { exit, code: code.clone(), message: message.clone(), hint: hint.clone() }
            }
            None => Self::new(exit, state.as_str(), format!("the call is {}", state.as_str()), None),
        }
    }

    pub fn error(&self) -> ErrorDocument<'_> {
        ErrorDocument { code: &self.code, message: &self.message, hint: self.hint.as_deref() }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        use ProblemCode as Code;
        let exit = match error.known_code() {
            Some(Code::DaemonUnreachable) => UNREACHABLE,
            Some(Code::OutcomeNotRecorded) => INDETERMINATE,
            Some(
                Code::Transport
                | Code::Internal
                | Code::DiskFull
                | Code::JournalUnavailable
                | Code::JournalClosed
                | Code::JournalDamaged,
            ) => FAILED,
            Some(
                Code::UnknownTool
                | Code::SchemaViolation
                | Code::InputMalformed
                | Code::InputTooLarge
                | Code::InputTooDeep
                | Code::InputTooManyValues
                | Code::InputNotUtf8,
            ) => REJECTED,
            Some(
                Code::TooManyCalls
                | Code::TooManyQuestions
                | Code::ShuttingDown
                | Code::NotFound
                | Code::ScopeMissing
                | Code::TokenAlreadyRevoked
                | Code::UnknownMethod,
            )
            | None => REFUSED,
        };
        Self { exit, code: error.code, message: error.message, hint: error.hint }
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        ApiError::from(status).into()
    }
}
