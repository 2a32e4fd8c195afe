//! Errors on the wire: a stable code, what happened, what to do.
//!
//! The details of a status are a `google.rpc.Status`, as standard clients read them: our own [`ErrorDetail`], the code
//! as `google.rpc.ErrorInfo`, and where waiting helps `google.rpc.RetryInfo`.

mod standard;

use crate::v1::ErrorDetail;
use palyra_protocol::ProblemCode;
use std::time::Duration;
use tonic::{Code, Status};

/// A failure as the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The stable machine code.
    pub code: String,
    /// What happened and why.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    /// An error with a hint.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint, retry_after: None }
    }

    /// The code, where it is one that a program acts on.
    #[must_use]
    pub fn known_code(&self) -> Option<ProblemCode> {
        ProblemCode::of(&self.code)
    }

    /// Packs the error into a gRPC status.
    #[must_use]
    pub fn into_status(self, code: Code) -> Status {
        let wait = self.retry_after.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
        let detail = ErrorDetail {
            code: self.code,
            message: self.message.clone(),
            hint: self.hint.unwrap_or_default(),
            retry_after_ms: wait,
        };
        let details = standard::packed(code, &detail, self.retry_after);
        Status::with_details(code, self.message, details.into())
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        match standard::detail(status.details()) {
            Some(detail) => Self {
                code: detail.code,
                message: detail.message,
                hint: (!detail.hint.is_empty()).then_some(detail.hint),
                retry_after: (detail.retry_after_ms > 0).then(|| Duration::from_millis(detail.retry_after_ms)),
            },
            // A status with a source was made here: the stream broke off, whatever code that is taken for.
            _ if status.code() == Code::Unavailable || std::error::Error::source(&status).is_some() => Self::new(
                ProblemCode::DaemonUnreachable.as_str(),
                format!("the daemon has ended, or the connection to it was lost: {}", status.message()),
                Some("see whether it runs: `palyra status`; start it: `palyra up`".to_owned()),
            ),
            _ => Self::new(ProblemCode::Transport.as_str(), format!("{}: {}", status.code(), status.message()), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_message_and_hint_survive_the_wire() {
        let error = ApiError::new("not_found", "there is no call `x`", Some("list them".to_owned()));
        assert_eq!(ApiError::from(error.clone().into_status(Code::NotFound)), error);
        let error = ApiError { retry_after: Some(Duration::from_millis(1500)), ..error };
        assert_eq!(ApiError::from(error.clone().into_status(Code::ResourceExhausted)), error);
    }
}
