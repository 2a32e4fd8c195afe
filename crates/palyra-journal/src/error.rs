//! What can go wrong in the journal, by whose fault.

use crate::history::HistoryFault;
use palyra_protocol::{ApprovalState, CallState, ChainFault, Principal};

/// Why the journal refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no such thing.
    #[error("there is no {what} `{id}`")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// The id that was given.
        id: String,
    },
    /// The approval was answered before.
    #[error("this approval is already {}; an answer is final", state.as_str())]
    AlreadyResolved {
        /// How it ended.
        state: ApprovalState,
    },
    /// The same person said yes before, and others are needed.
    #[error("`{by}` has approved this already; it needs {missing} more, each another person")]
    AlreadyGiven {
        /// Who.
        by: Principal,
        /// How many are still needed.
        missing: u32,
    },
    /// A yes that may be the same person's as another, or as the proposal, by a token that they issued.
    #[error(
        "`{by}` and `{other}` may be the same person here, because one issued the token that the other speaks by; \
         it needs {missing} more, each another person"
    )]
    SameHand {
        /// Who said yes.
        by: Principal,
        /// Who said yes before, or made the proposal.
        other: Principal,
        /// How many are still needed.
        missing: u32,
    },
    /// The call is no longer where this step expects it.
    #[error("the call is {}, so this step does not apply", state.as_str())]
    CallMoved {
        /// Where it is.
        state: CallState,
    },
    /// The grant was revoked before.
    #[error("this grant is already revoked")]
    AlreadyRevoked,
    /// A quota of the memory is used up.
    #[error("the memory `{name}` is full")]
    MemoryFull {
        /// Whose.
        name: String,
    },
    /// A slot of a routine was dealt with before.
    #[error("this slot of the routine was dealt with before")]
    SlotTaken,
    /// No room to record in.
    #[error("the journal's disk is full: nothing was recorded, and nothing that was not recorded is carried out")]
    DiskFull,
    /// The chain does not hold.
    #[error("the journal is damaged: {0}")]
    Damaged(#[source] ChainFault),
    /// A table says what no event justifies, or an event what cannot have happened.
    #[error("the journal was changed: {0}")]
    Unfounded(#[source] HistoryFault),
    /// A journal of another format.
    #[error("the journal has format {found}; this version reads format {expected}")]
    Format {
        /// What was found.
        found: String,
        /// What is understood.
        expected: u32,
    },
    /// The file is there and cannot be read as a journal now.
    #[error("the journal `{}` cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// The store is being closed.
    #[error("the journal is closed")]
    Closed,
    /// An event could not be put into its form, or read back.
    #[error("an event of the journal cannot be written or read: {reason}")]
    Event {
        /// Why.
        reason: String,
    },
    /// SQLite failed.
    #[error("the journal's database failed")]
    Database(#[source] rusqlite::Error),
}

impl JournalError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::AlreadyResolved { .. } => "approval_already_resolved",
            Self::AlreadyGiven { .. } => "approval_already_given",
            Self::SameHand { .. } => "approval_same_hand",
            Self::CallMoved { .. } => "call_moved",
            Self::AlreadyRevoked => "grant_already_revoked",
            Self::MemoryFull { .. } => "memory_full",
            Self::SlotTaken => "slot_taken",
            Self::DiskFull => "disk_full",
            Self::Damaged(_) | Self::Unfounded(_) => "journal_damaged",
            Self::Format { .. } => "journal_format",
            Self::Unreadable { .. } => "journal_unreadable",
            Self::Closed => "journal_closed",
            Self::Event { .. } => "journal_event",
            Self::Database(_) => "journal_unavailable",
        }
    }
}

impl JournalError {
    /// Whether the journal could not be reached or is of another format: nothing was found out about what it holds.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, PermissionDenied, ReadOnly};
        match self {
            Self::Unreadable { .. } | Self::Format { .. } | Self::Closed => true,
            Self::Database(error) => matches!(
                error.sqlite_error_code(),
                Some(CannotOpen | DatabaseBusy | DatabaseLocked | PermissionDenied | ReadOnly)
            ),
            _ => false,
        }
    }

    /// Whether the same write may succeed later, as things stand on this host.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::DiskFull | Self::Database(_))
    }
}

impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull,
            _ => Self::Database(error),
        }
    }
}

impl From<serde_json::Error> for JournalError {
    fn from(error: serde_json::Error) -> Self {
        Self::Event { reason: error.to_string() }
    }
}
