//! What a caller of the engine can be told, by whose fault.

use palyra_journal::JournalError;
use palyra_protocol::Problem;

/// Whose fault an error is; doors map it to their own status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request makes no sense.
    Invalid,
    /// The thing does not exist.
    NotFound,
    /// Nobody knows who the caller is.
    Unauthenticated,
    /// The caller may not.
    Forbidden,
    /// Too many requests.
    Exhausted,
    /// Too late, or twice.
    Conflict,
    /// The host cannot now.
    Unavailable,
    /// It happened, and is not on record yet.
    Unrecorded,
    /// A bug.
    Internal,
}

/// A refusal or failure.
#[derive(Debug, thiserror::Error)]
#[error("{}", problem.message)]
pub struct EngineError {
    /// Whose fault.
    pub kind: ErrorKind,
    /// Code, message, hint: what the caller is told.
    pub problem: Problem,
    /// When it is worth trying again, where that is known.
    pub retry_after: Option<std::time::Duration>,
    /// The chain, for the log.
    #[source]
    source: Option<Box<JournalError>>,
}

impl EngineError {
    /// A refusal.
    #[must_use]
    pub fn new(kind: ErrorKind, problem: Problem) -> Self {
        Self { kind, problem, retry_after: None, source: None }
    }

    /// The same, with the time after which it is worth trying again.
    #[must_use]
    pub fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Too much is under way.
    pub(crate) fn crowded(problem: Problem) -> Self {
        Self::new(ErrorKind::Exhausted, problem)
    }

    /// A bug.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, Problem::plain("internal", message))
    }

    /// The request makes no sense.
    #[must_use]
    pub fn invalid(code: &str, message: impl Into<String>, hint: &str) -> Self {
        Self::new(ErrorKind::Invalid, Problem::new(code, message, hint))
    }
}

impl From<JournalError> for EngineError {
    fn from(error: JournalError) -> Self {
        let kind = match error {
            JournalError::NotFound { .. } => ErrorKind::NotFound,
            JournalError::AlreadyResolved { .. }
            | JournalError::AlreadyGiven { .. }
            | JournalError::SameHand { .. }
            | JournalError::CallMoved { .. }
            | JournalError::SlotTaken
            | JournalError::AlreadyRevoked => ErrorKind::Conflict,
            JournalError::MemoryFull { .. } => ErrorKind::Exhausted,
            JournalError::DiskFull
            | JournalError::Closed
            | JournalError::Database(_)
            | JournalError::Unreadable { .. } => ErrorKind::Unavailable,
            JournalError::Damaged(_)
            | JournalError::Unfounded(_)
            | JournalError::Format { .. }
            | JournalError::Event { .. } => ErrorKind::Internal,
        };
        let hint = match error {
            JournalError::NotFound { what: "approval", .. } => Some("`palyra approvals list` shows what is pending"),
            JournalError::NotFound { what: "grant", .. } => Some("`palyra grants list` shows them"),
            JournalError::AlreadyGiven { .. } | JournalError::SameHand { .. } => {
                Some("ask another person to approve it")
            }
            JournalError::MemoryFull { .. } => Some("have entries forgotten: `palyra memory forget ID`"),
            JournalError::DiskFull => Some("free some space, then try again"),
            JournalError::Database(_) => Some("see the daemon's log, and `palyra doctor`"),
            JournalError::Damaged(_) | JournalError::Unfounded(_) => Some("run `palyra journal verify`"),
            _ => None,
        };
        let hint = hint.map(str::to_owned);
        let problem = Problem { hint, ..Problem::plain(error.code(), error.to_string()) };
        Self { kind, problem, retry_after: None, source: Some(Box::new(error)) }
    }
}
