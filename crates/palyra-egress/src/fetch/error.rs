//! Why a fetch gave nothing.

use super::super::denial::Denial;
use super::url::UrlError;
use std::io;
use std::time::Duration;

/// Why a fetch gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    // The caller's fault.
    /// The request makes no sense.
    #[error("the request cannot be sent: {reason}")]
    Request {
        /// Why.
        reason: String,
    },
    /// The URL is none.
    #[error("the URL cannot be fetched: {0}")]
    Url(#[from] UrlError),

    // The rules' decision.
    /// No rule allows it, or the name leads where it must not.
    #[error(transparent)]
    Denied(#[from] Denial),

    // The peer's fault.
    /// The name could not be resolved.
    #[error("{reason}")]
    Resolve {
        /// Why.
        reason: String,
    },
    /// Nobody answered.
    #[error("could not connect to {host}:{port}: {source}")]
    Connect {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The exchange broke: TLS, HTTP, or the connection.
    #[error("the exchange with {host} failed: {reason}")]
    Exchange {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },
    /// A redirect that leads nowhere.
    #[error("the server redirects to something that cannot be fetched: {0}")]
    Redirect(UrlError),
    /// A redirect from https to http.
    #[error("the server redirects from https to http, to `{to}`")]
    Downgrade {
        /// Where to.
        to: String,
    },
    /// A redirect of something else than GET or HEAD to another origin.
    #[error("the server redirects the {method} to another origin, `{to}`; only GET and HEAD follow there")]
    RequestElsewhere {
        /// The method it would have there.
        method: String,
        /// Where to.
        to: String,
    },
    /// Too many redirects.
    #[error("the server redirects more than {limit} times")]
    TooManyRedirects {
        /// How many are followed.
        limit: usize,
    },

    // Neither's.
    /// It took too long.
    #[error("the fetch was ended after {} ms", limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// It was cancelled.
    #[error("the fetch was cancelled")]
    Cancelled,
}

impl FetchError {
    /// The stable code by which programs know this error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Request { .. } => "fetch_request_invalid",
            Self::Url(_) => "fetch_url_invalid",
            Self::Denied(denial) => denial.code.as_str(),
            Self::Resolve { .. } => "resolve_failed",
            Self::Connect { .. } => "connect_failed",
            Self::Exchange { .. } => "fetch_failed",
            Self::Redirect(_) => "redirect_invalid",
            Self::Downgrade { .. } => "redirect_downgrade",
            Self::RequestElsewhere { .. } => "redirect_elsewhere",
            Self::TooManyRedirects { .. } => "too_many_redirects",
            Self::TimedOut { .. } => "execution_timeout",
            Self::Cancelled => "cancelled",
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied(denial) => Some(denial.hint.clone()),
            Self::Downgrade { .. } | Self::RequestElsewhere { .. } => {
                Some("if that is meant, fetch that URL in a call of its own".to_owned())
            }
            Self::TooManyRedirects { .. } => Some("fetch the last URL in a call of its own".to_owned()),
            Self::TimedOut { .. } => Some("ask for less, or give it more time with `timeout_ms`".to_owned()),
            _ => None,
        }
    }
}
