//! Whether a signed request is its session's: known, in time, signed by its key, and not seen before.

use super::sessions::{ConsoleSession, NonceRefusal};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_protocol::signed_decision::RequestStatement;
use palyra_protocol::{ConsoleId, ConsoleSignature, Digest, JournalEvent, Problem};
use std::sync::Arc;
use std::time::Duration;

/// How far a page's clock may be from the daemon's, in milliseconds.
const SKEW_MS: u64 = 60_000;
/// The shortest and the longest nonce.
const NONCE: std::ops::RangeInclusive<usize> = 16..=64;

/// What a request says about itself, and its signature.
#[derive(Debug, Clone)]
pub struct ConsoleRequest {
    /// The session.
    pub session: ConsoleId,
    /// The verb.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// SHA-256 of the body. Whoever reads the body compares it.
    pub body: Digest,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Never used before in this session.
    pub nonce: String,
    /// The signature over all of it.
    pub signature: ConsoleSignature,
}

impl Engine {
    /// The session whose request this is.
    pub(crate) fn console_of(&self, request: &ConsoleRequest) -> Result<Arc<ConsoleSession>, EngineError> {
        let session = self.consoles().find(&request.session).ok_or_else(session_ended)?;
        let now = self.clock().now();
        if session.stale(now).is_some() {
            self.end_stale_consoles_soon();
            return Err(session_ended());
        }
        if request.at_ms.abs_diff(now.unix_ms()) > SKEW_MS {
            let message = format!("the request's time is more than a minute from the daemon's: {}", now.unix_ms());
            return Err(refused("console_clock", message, "set the clock of the machine that the browser runs on"));
        }
        let fits =
            NONCE.contains(&request.nonce.len()) && request.nonce.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !fits {
            return Err(refused("console_signature", "the request's nonce is none", "load the page again"));
        }
        let said = RequestStatement {
            session: &request.session,
            method: &request.method,
            path: &request.path,
            body: &request.body,
            at_ms: request.at_ms,
            nonce: &request.nonce,
        };
        if session.key().verify(&said.digest(), &request.signature).is_err() {
            self.count_refused_console(&session);
            let message = "the request was not signed by this session's browser";
            return Err(refused("console_signature", message, "run `palyra console` again"));
        }
        let epoch = self.consoles().epoch();
        if !request.nonce.starts_with(epoch) {
            let message = format!("the request was signed for another start of the daemon: {epoch}");
            return Err(refused("console_epoch", message, "load the page again"));
        }
        match session.take_nonce(&request.nonce, request.at_ms, now.unix_ms().saturating_sub(2 * SKEW_MS)) {
            Ok(()) => {}
            Err(NonceRefusal::Replayed) => {
                self.count_refused_console(&session);
                return Err(refused("console_replayed", "this request was sent before", "load the page again"));
            }
            Err(NonceRefusal::TooMany) => {
                let problem = Problem::new("rate_limited", "this session asks too often", "wait, then try again");
                return Err(EngineError::new(ErrorKind::Exhausted, problem).retry_after(Duration::from_secs(10)));
            }
        }
        if session.used(now) {
            self.note_console_use_soon(session.id().clone());
        }
        Ok(session)
    }

    fn count_refused_console(&self, session: &ConsoleSession) {
        let source = format!("console {}", session.id());
        let _wait = self.access().registry().attempts().count(&source, "console_signature", self.clock().now());
        self.tend_attempts();
    }

    /// Records that a session is in use, off the request's path.
    fn note_console_use_soon(&self, session: ConsoleId) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let engine = self.clone();
        runtime.spawn(async move {
            if let Err(error) = engine.journal().note(&JournalEvent::ConsoleUsed { session }).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the use of a console was not recorded");
            }
        });
    }

    /// Ends what is stale, off the request's path.
    fn end_stale_consoles_soon(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let engine = self.clone();
        runtime.spawn(async move { engine.end_stale_consoles().await });
    }
}

pub(crate) fn session_ended() -> EngineError {
    refused(
        "console_session_ended",
        "this console session is over: it was revoked, was idle, or was open for a week",
        "run `palyra console` to open another",
    )
}

fn refused(code: &str, message: impl Into<String>, hint: &str) -> EngineError {
    EngineError::new(ErrorKind::Unauthenticated, Problem::new(code, message, hint))
}
