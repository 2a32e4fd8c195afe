//! One HTTP exchange of our own, under the same rules as any process's connections.
//!
//! Each hop is a connection: asked of the rules, resolved once, checked, made to that address, recorded. A redirect is
//! followed by this file and never by the HTTP library, so the next hop is asked like the first. Whoever decided about
//! the first hop decided about its host and method and about nothing else: a hop to another origin, or with another
//! method, is put to them too ([`FetchWatch::may_go`]). What a caller sent along stays with the origin it was meant
//! for: when a redirect leaves it, only a plain GET or HEAD goes on, with fields that say nothing of the caller. Bodies
//! come as they are sent; nothing is unpacked, so a small answer cannot become a large one.

mod error;
mod exchange;
mod request;
mod transport;
mod url;

pub use error::FetchError;
pub use request::FetchRequest;
pub use url::{FetchUrl, UrlError};

use super::credentials::Attached;
use super::denial::Denial;
use super::dial::{DialError, Dialer, dial};
use super::http::is_overriding;
use super::resolve::Resolve;
use super::rule::EgressRule;
use super::rules::{EgressRules, Purpose, Target};
use crate::CancelSignal;
use exchange::{Exchange, exchange};
use palyra_protocol::egress::{EgressEnd, EgressProtocol, EgressRecord, EgressVerdict};
use palyra_protocol::{Clock as _, SystemClock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Names being resolved at once, over all fetches.
const MAX_LOOKUPS: usize = 64;

/// Whose word is taken for who a server is.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// The certificate authorities of this machine.
    #[default]
    System,
    /// These certificates, in DER, and no others.
    Only(Vec<Vec<u8>>),
}

/// What one fetch may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Time for everything, redirects included.
    pub timeout: Duration,
    /// Redirects that are followed.
    pub max_redirects: usize,
    /// Bytes of the body that are kept; the rest is not read.
    pub max_body_bytes: usize,
    /// Bytes of an answer's head.
    pub max_header_bytes: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_redirects: 5, max_body_bytes: 1 << 20, max_header_bytes: 64 << 10 }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status of the last hop.
    pub status: u16,
    /// Its header fields.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body, as far as it was read.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// Where it came from in the end.
    pub final_url: FetchUrl,
    /// The way there.
    pub redirects: Vec<Redirect>,
}

/// One redirect that was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The status that sent us on.
    pub status: u16,
    /// Where to.
    pub url: FetchUrl,
}

/// Who follows a fetch on its way.
pub trait FetchWatch {
    /// Whether a redirect may be followed: the rules allow this request, which goes to another origin than the one
    /// before it or has another method.
    ///
    /// # Errors
    /// When it may not; the fetch ends with that.
    fn may_go(&self, next: &FetchRequest) -> Result<(), Denial>;

    /// Takes a connection, allowed or denied, when it is over.
    fn connection(&self, record: &EgressRecord);

    /// What goes with a hop besides what the request says; asked for each anew, so nothing follows a redirect by
    /// itself.
    ///
    /// # Errors
    /// The hop concerns a binding that does not cover it; the fetch ends with that.
    fn credentials(&self, next: &FetchRequest) -> Result<Attached, Denial> {
        let _nothing_is_bound = next;
        Ok(Attached::default())
    }
}

/// Takes an answer as it comes.
pub trait FetchSink {
    /// The status and the header fields, once.
    fn head(&mut self, status: u16, headers: &[(String, Vec<u8>)]);

    /// The next bytes of the body. Returns whether there is a wish for more.
    fn piece(&mut self, bytes: &[u8]) -> bool;
}

/// What all hops of one fetch have in common.
#[derive(Clone, Copy)]
struct Way<'a> {
    limits: &'a FetchLimits,
    deadline: Instant,
    cancel: &'a CancelSignal,
    watch: &'a dyn FetchWatch,
}

/// Whether somebody has to be asked about a hop besides the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It was decided about already.
    Before,
    Now,
}

/// Fetches under rules.
pub struct Fetcher {
    rules: Arc<EgressRules>,
    resolver: Arc<dyn Resolve>,
    roots: Roots,
    lookups: Arc<AtomicUsize>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("rules", &self.rules.rules().len()).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Fetches under these rules.
    #[must_use]
    pub fn new(rules: Arc<EgressRules>, resolver: Arc<dyn Resolve>, roots: Roots) -> Self {
        Self { rules, resolver, roots, lookups: Arc::default() }
    }

    /// The rule that allows a request's first hop.
    ///
    /// # Errors
    /// When none does.
    pub fn check(&self, request: &FetchRequest) -> Result<&EgressRule, Denial> {
        let url = &request.url;
        let purpose = if url.is_tls() {
            // Rules about methods and paths are for plain HTTP; TLS needs a rule for the host.
            Purpose::Tunnel
        } else {
            Purpose::Http { method: request.method.clone(), path: url.path().to_owned() }
        };
        let rule = self.rules.check(&Target { host: url.host().clone(), port: url.port(), purpose })?;
        if rule.http.is_some()
            && let Some((name, _)) = request.headers.iter().find(|(name, _)| is_overriding(name))
        {
            return Err(Denial::of(
                super::DenialCode::EgressDenied,
                (url.host(), url.port()),
                format!("the field `{name}` replaces what the rules allowed"),
                "send the request that is meant, without that field",
            ));
        }
        Ok(rule)
    }

    /// Fetches, on this thread, to the end. Every connection is told to `watch` when it is over.
    ///
    /// # Errors
    /// When a hop is denied or fails, or a limit ends it.
    pub fn fetch(
        &self,
        mut request: FetchRequest,
        limits: &FetchLimits,
        cancel: &CancelSignal,
        watch: &dyn FetchWatch,
    ) -> Result<FetchResponse, FetchError> {
        let way = Way { limits, deadline: Instant::now() + limits.timeout, cancel, watch };
        let mut redirects: Vec<Redirect> = Vec::new();
        let mut asked = Asked::Before;
        loop {
            let answer = self.hop(&request, asked, way, None)?;
            let Some(location) = answer.location() else {
                let Exchange { status, headers, body, truncated } = answer;
                return Ok(FetchResponse { status, headers, body, truncated, final_url: request.url, redirects });
            };
            if redirects.len() >= limits.max_redirects {
                return Err(FetchError::TooManyRedirects { limit: limits.max_redirects });
            }
            let next = request.redirected(answer.status, location)?;
            let same = next.url.same_origin(&request.url) && next.method == request.method;
            asked = if same { Asked::Before } else { Asked::Now };
            request = next;
            redirects.push(Redirect { status: answer.status, url: request.url.clone() });
        }
    }

    /// Sends one request and hands its answer to `sink` as it comes, on this thread, to the end. Redirects are not
    /// followed. Returns whether the body came whole.
    ///
    /// # Errors
    /// When the request is denied or fails, or a limit ends it.
    pub fn stream(
        &self,
        request: &FetchRequest,
        limits: &FetchLimits,
        cancel: &CancelSignal,
        watch: &dyn FetchWatch,
        sink: &mut dyn FetchSink,
    ) -> Result<bool, FetchError> {
        let way = Way { limits, deadline: Instant::now() + limits.timeout, cancel, watch };
        let answer = self.hop(request, Asked::Before, way, Some(sink))?;
        Ok(!answer.truncated)
    }

    /// One connection and its record.
    fn hop(
        &self,
        request: &FetchRequest,
        asked: Asked,
        way: Way<'_>,
        sink: Option<&mut dyn FetchSink>,
    ) -> Result<Exchange, FetchError> {
        let url = &request.url;
        let began = Instant::now();
        let protocol = if url.is_tls() { EgressProtocol::Https } else { EgressProtocol::Http };
        let mut record = EgressRecord {
            host: Some(url.host().to_string()),
            port: Some(url.port()),
            method: Some(request.method.clone()),
            path: Some(url.path().chars().take(1024).collect()),
            ..EgressRecord::new(protocol, SystemClock.now())
        };
        let result = self.connected_hop(request, (asked, way), &mut record, sink);
        match &result {
            Ok(_) => record.ended = EgressEnd::Closed,
            Err(FetchError::Denied(denial)) => {
                record.verdict = EgressVerdict::Denied;
                record.code = Some(denial.code.to_string());
                record.rule = None;
                record.ended = EgressEnd::Refused;
            }
            Err(FetchError::Resolve { .. }) => record.ended = EgressEnd::ResolveFailed,
            Err(FetchError::Connect { .. }) => record.ended = EgressEnd::ConnectFailed,
            Err(FetchError::Cancelled) => record.ended = EgressEnd::Stopped,
            Err(FetchError::TimedOut { .. }) => record.ended = EgressEnd::IdleTimeout,
            Err(_) => record.ended = EgressEnd::ServerError,
        }
        record.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        way.watch.connection(&record);
        result
    }

    fn connected_hop(
        &self,
        request: &FetchRequest,
        (asked, way): (Asked, Way<'_>),
        record: &mut EgressRecord,
        sink: Option<&mut dyn FetchSink>,
    ) -> Result<Exchange, FetchError> {
        let Way { limits, deadline, cancel, watch } = way;
        let rule = self.check(request)?;
        if asked == Asked::Now {
            watch.may_go(request)?;
        }
        let attached = watch.credentials(request)?;
        record.verdict = EgressVerdict::Allowed;
        record.rule = Some(rule.to_string());
        record.credentials.clone_from(&attached.secrets);
        let carrying = request.carrying(&attached)?;
        let request = &*carrying;
        let left = deadline.saturating_duration_since(Instant::now());
        let dialer = Dialer {
            rules: Arc::clone(&self.rules),
            resolver: Arc::clone(&self.resolver),
            stop: cancel.clone(),
            lookups: Arc::clone(&self.lookups),
            max_lookups: MAX_LOOKUPS,
            resolve_timeout: left,
            connect_timeout: left,
        };
        let url = &request.url;
        let (socket, address) = dial(&dialer, url.host(), url.port()).map_err(|error| match error {
            DialError::Denied(denial) => FetchError::Denied(denial),
            DialError::Resolve(reason) => FetchError::Resolve { reason },
            DialError::Connect(source) => {
                FetchError::Connect { host: url.host().to_string(), port: url.port(), source }
            }
            DialError::Stopped => FetchError::Cancelled,
        })?;
        record.address = Some(address.to_string());
        let traffic = Arc::new(transport::Traffic::default());
        let ready = transport::Ready::new(socket, cancel.clone(), deadline, Arc::clone(&traffic));
        let result = exchange(request, limits, &self.roots, (ready, address), sink);
        record.bytes_sent = traffic.sent.load(Ordering::Acquire);
        record.bytes_received = traffic.received.load(Ordering::Acquire);
        result.map_err(|error| {
            if traffic.cancelled.load(Ordering::Acquire) {
                FetchError::Cancelled
            } else if traffic.timed_out.load(Ordering::Acquire) {
                FetchError::TimedOut { limit: limits.timeout }
            } else {
                error
            }
        })
    }
}

#[cfg(test)]
mod tests;
