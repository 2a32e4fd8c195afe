//! The codes of problems that a program acts on.
//!
//! Most codes are for people, logs and scripts, and are just texts. A code that decides what one of our programs does
//! next is declared here once, so that no program compares texts.

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A code that a program acts on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode { $($(#[$doc])* $variant),+ }

        impl ProblemCode {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

codes! {
    /// There is no tool of this name.
    UnknownTool = "unknown_tool",
    /// The input is not what the tool's schema says.
    SchemaViolation = "schema_violation",
    /// The input is no JSON.
    InputMalformed = "input_malformed",
    /// The input is too large.
    InputTooLarge = "input_too_large",
    /// The input is nested too deeply.
    InputTooDeep = "input_too_deep",
    /// The input has too many values.
    InputTooManyValues = "input_too_many_values",
    /// The input is no text.
    InputNotUtf8 = "input_not_utf8",
    /// Too many calls are under way.
    TooManyCalls = "too_many_calls",
    /// Too many calls wait for a person.
    TooManyQuestions = "too_many_questions",
    /// The daemon is ending.
    ShuttingDown = "shutting_down",
    /// The call ran, and its outcome is not on record yet.
    OutcomeNotRecorded = "outcome_not_recorded",
    /// There is no such thing.
    NotFound = "not_found",
    /// The token is not for this.
    ScopeMissing = "scope_missing",
    /// The token was revoked before.
    TokenAlreadyRevoked = "token_already_revoked",
    /// The daemon is older or newer, and does not know the request.
    UnknownMethod = "unknown_method",
    /// No daemon answers.
    DaemonUnreachable = "daemon_unreachable",
    /// The connection failed.
    Transport = "transport",
    /// A bug.
    Internal = "internal",
    /// The disk is full.
    DiskFull = "disk_full",
    /// The journal's database failed.
    JournalUnavailable = "journal_unavailable",
    /// The journal is closed.
    JournalClosed = "journal_closed",
    /// The journal is damaged.
    JournalDamaged = "journal_damaged",
}

impl ProblemCode {
    /// The code of this text, if it is one that a program acts on.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_back() {
        for code in ProblemCode::ALL {
            assert_eq!(ProblemCode::of(code.as_str()), Some(*code));
        }
        assert_eq!(ProblemCode::of("forbidden"), None);
    }
}
