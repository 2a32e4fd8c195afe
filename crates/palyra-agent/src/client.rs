//! Calling a model: one request, one streamed answer, retries where a retry cannot do harm.
//!
//! A call is repeated only while nothing of an answer was handed on: after that the same words could come twice. Waits
//! between tries grow, have jitter, keep to what the provider asks for, and end at once when the run is cancelled.

use crate::providers::{Decoder, Dialect, DialectError, ModelRequest};
use crate::reply::{ModelEvent, ModelReply, ReplyFault};
use crate::sse::{SseError, SseReader};
use palyra_egress::{
    CancelSignal, Denial, FetchError, FetchLimits, FetchRequest, FetchSink, FetchUrl, FetchWatch, Fetcher,
};
use palyra_protocol::Secret;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How often a call is tried.
const TRIES: u32 = 4;
/// The longest wait that a provider can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most bytes of a stream.
const MAX_STREAM_BYTES: usize = 64 << 20;
/// The most bytes of an answer that is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Tokens, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// What was read.
    pub input: u64,
    /// What was written.
    pub output: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The rules of egress do not allow the provider's host.
    #[error("the rules of egress do not allow the model's host: {}", .0.message)]
    Denied(Denial),
    /// The provider could not be reached.
    #[error("the model's provider could not be reached")]
    Unreachable(#[source] FetchError),
    /// The provider refused or failed.
    #[error("the model's provider answered with status {status}: {message}")]
    Status {
        /// The status.
        status: u16,
        /// What it says, cut to a readable length.
        message: String,
    },
    /// The stream is not an answer.
    #[error("the model's answer cannot be read: {0}")]
    Broken(String),
    /// The stream ended before the answer did.
    #[error("the model's answer was cut off")]
    CutOff,
    /// It took too long.
    #[error("the model did not answer within {} s", .limit.as_secs())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The run was cancelled.
    #[error("the call to the model was cancelled")]
    Cancelled,
    /// The provider's address or the request is not usable.
    #[error("the provider's address is not usable: {0}")]
    Config(String),
}

impl ModelError {
    /// The stable name of this fault, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Denied(_) => "model_egress_denied",
            Self::Unreachable(_) => "model_unreachable",
            Self::Status { status: 401 | 403, .. } => "model_key_refused",
            Self::Status { status: 429, .. } => "model_rate_limited",
            Self::Status { .. } => "model_refused",
            Self::Broken(_) => "model_answer_malformed",
            Self::CutOff => "model_answer_cut_off",
            Self::TimedOut { .. } => "model_timeout",
            Self::Cancelled => "cancelled",
            Self::Config(_) => "model_misconfigured",
        }
    }

    /// Whether the same request may do better a moment later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529),
            Self::Unreachable(_) | Self::CutOff => true,
            _ => false,
        }
    }
}

/// Where a model is, and how to speak to it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The provider's base, such as `https://api.example.com/v1`.
    pub base_url: String,
    /// How it speaks.
    pub dialect: Dialect,
    /// The time for one whole answer.
    pub timeout: Duration,
}

/// Calls models.
#[derive(Debug)]
pub struct ModelClient {
    fetcher: Arc<Fetcher>,
}

/// What surrounds one call.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Ends it.
    pub cancel: &'a CancelSignal,
    /// Hears of its connections.
    pub watch: &'a dyn FetchWatch,
}

impl std::fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").finish_non_exhaustive()
    }
}

impl ModelClient {
    /// Calls through this fetcher: its rules, its guard.
    #[must_use]
    pub fn new(fetcher: Arc<Fetcher>) -> Self {
        Self { fetcher }
    }

    /// Asks a model, on this thread, to the end. Each piece of the answer is handed to `each` as it comes.
    ///
    /// # Errors
    /// There is no whole answer.
    pub fn call(
        &self,
        endpoint: &Endpoint,
        key: Option<&Secret>,
        request: &ModelRequest,
        context: CallContext<'_>,
        each: &mut dyn FnMut(&ModelEvent),
    ) -> Result<ModelReply, ModelError> {
        let message = message(endpoint, key, request)?;
        let mut tried = 1;
        loop {
            let mut handed_on = false;
            let mut each = |event: &ModelEvent| {
                handed_on = true;
                each(event);
            };
            let mut answer = Answer::new(endpoint.dialect, &mut each);
            let limits = FetchLimits {
                timeout: endpoint.timeout,
                max_redirects: 0,
                max_body_bytes: MAX_STREAM_BYTES,
                ..FetchLimits::default()
            };
            let ended = self.fetcher.stream(&message, &limits, context.cancel, context.watch, &mut answer);
            let wait = answer.retry_after;
            let error = match answer.finish(ended, endpoint.timeout) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if handed_on || tried == TRIES || !error.is_passing() {
                return Err(error);
            }
            pause(wait.unwrap_or_else(|| backoff(tried)), context.cancel)?;
            tried += 1;
        }
    }
}

fn message(endpoint: &Endpoint, key: Option<&Secret>, request: &ModelRequest) -> Result<FetchRequest, ModelError> {
    let url = format!("{}/{}", endpoint.base_url.trim_end_matches('/'), endpoint.dialect.path());
    let url = FetchUrl::parse(&url).map_err(|e| ModelError::Config(e.to_string()))?;
    let fixed = endpoint.dialect.headers().into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (name, template) = endpoint.dialect.key_header();
    let key =
        key.map(|key| std::str::from_utf8(key.expose()).map(|key| (name.to_owned(), template.replace("{}", key))));
    let key = key.transpose().map_err(|_| ModelError::Config("the model's key is not text".to_owned()))?;
    let body = serde_json::to_vec(&endpoint.dialect.encode(request)).map_err(|e| ModelError::Config(e.to_string()))?;
    FetchRequest::new("POST", url, fixed.chain(key), body).map_err(|e| ModelError::Config(e.to_string()))
}

/// Doubling waits, each shortened by chance, so that many runs do not come back at once.
fn backoff(tried: u32) -> Duration {
    let longest = 250_u64 << tried.min(8);
    let mut random = [0_u8; 8];
    // Without chance the wait is the longest, which does no harm.
    let part = if getrandom::fill(&mut random).is_ok() { u64::from_le_bytes(random) % longest } else { longest };
    Duration::from_millis(longest / 2 + part / 2)
}

/// Waits, unless the run is cancelled meanwhile.
fn pause(wait: Duration, cancel: &CancelSignal) -> Result<(), ModelError> {
    let timeout = Timespec { tv_sec: wait.as_secs().try_into().unwrap_or(60), tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)], Some(&timeout)) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => Err(ModelError::Cancelled),
    }
}

/// An answer on its way.
struct Answer<'a> {
    decoder: Box<dyn Decoder>,
    reader: SseReader,
    reply: ModelReply,
    each: &'a mut dyn FnMut(&ModelEvent),
    status: u16,
    retry_after: Option<Duration>,
    /// The body of an answer that is no stream.
    body: Vec<u8>,
    fault: Option<ModelError>,
}

impl<'a> Answer<'a> {
    fn new(dialect: Dialect, each: &'a mut dyn FnMut(&ModelEvent)) -> Self {
        Self {
            decoder: dialect.decoder(),
            reader: SseReader::default(),
            reply: ModelReply::default(),
            each,
            status: 0,
            retry_after: None,
            body: Vec::new(),
            fault: None,
        }
    }

    fn finish(self, ended: Result<bool, FetchError>, limit: Duration) -> Result<ModelReply, ModelError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match ended {
            Ok(_) if self.status != 200 => Err(ModelError::Status { status: self.status, message: said(&self.body) }),
            Ok(_) if !self.decoder.is_done() => Err(ModelError::CutOff),
            Ok(_) => Ok(self.reply),
            Err(FetchError::Denied(denial)) => Err(ModelError::Denied(denial)),
            Err(FetchError::Cancelled) => Err(ModelError::Cancelled),
            Err(FetchError::TimedOut { .. }) => Err(ModelError::TimedOut { limit }),
            Err(FetchError::Exchange { .. }) if self.status == 200 => Err(ModelError::CutOff),
            Err(error) => Err(ModelError::Unreachable(error)),
        }
    }

    fn pieces(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let mut events = Vec::new();
        self.reader.push(bytes, |event| events.push(event)).map_err(|e: SseError| ModelError::Broken(e.to_string()))?;
        for event in events {
            let pieces = self.decoder.take(&event).map_err(|e| match e {
                DialectError::Reported(message) => ModelError::Status { status: 500, message },
                malformed @ DialectError::Malformed(_) => ModelError::Broken(malformed.to_string()),
            })?;
            for piece in pieces {
                self.reply.take(&piece).map_err(|e: ReplyFault| ModelError::Broken(e.to_string()))?;
                (self.each)(&piece);
            }
        }
        Ok(())
    }
}

impl FetchSink for Answer<'_> {
    fn head(&mut self, status: u16, headers: &[(String, Vec<u8>)]) {
        self.status = status;
        let wait = headers.iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value);
        let seconds = wait.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
        self.retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
    }

    fn piece(&mut self, bytes: &[u8]) -> bool {
        if self.status != 200 {
            let room = MAX_ERROR_BYTES - self.body.len();
            self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return self.body.len() < MAX_ERROR_BYTES;
        }
        match self.pieces(bytes) {
            Ok(()) => true,
            Err(fault) => {
                self.fault = Some(fault);
                false
            }
        }
    }
}

/// What a provider says about an error, as far as it is readable.
fn said(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = value["error"]["message"].as_str().or_else(|| value["message"].as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

#[cfg(test)]
mod tests;
