//! Refusals as problem documents (RFC 9457).
//!
//! A handler returns a [`Refused`]; the gate, which knows the request's id, writes the document. A caller gets the
//! public message, the log the chain behind it.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use palyra_engine::{EngineError, ErrorKind};
use palyra_protocol::{CallId, CallState, Denial, Problem, RequestId};
use serde::Serialize;
use std::time::Duration;
use utoipa::{IntoResponses, ToSchema};

/// When to come back where nobody can tell when there will be room.
const COME_BACK: Duration = Duration::from_secs(5);

/// Why a request is not carried out.
#[derive(Debug, Clone)]
pub(crate) struct Refused(Box<Reasons>);

#[derive(Debug, Clone)]
struct Reasons {
    status: StatusCode,
    problem: Problem,
    retry_after: Option<Duration>,
    allow: Option<String>,
    call: Option<(CallId, CallState)>,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, problem: Problem) -> Self {
        Self(Box::new(Reasons { status, problem, retry_after: None, allow: None, call: None }))
    }

    /// The request makes no sense as it was sent.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Problem::plain("malformed_request", message))
    }

    /// What does not exist, and what is not the caller's to know about: the two look the same.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, Problem::plain("not_found", format!("there is no {what} `{id}`")))
    }

    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    pub(crate) fn allow(mut self, verbs: String) -> Self {
        self.0.allow = Some(verbs);
        self
    }

    /// The same, about a call that is on record.
    pub(crate) fn of_call(mut self, call_id: CallId, state: CallState) -> Self {
        self.0.call = Some((call_id, state));
        self
    }

    /// Hides what the caller may not know about behind what does not exist.
    pub(crate) fn or_not_found(self, what: &str, id: &str) -> Self {
        match self.0.status {
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Self::not_found(what, id),
            _ => self,
        }
    }

    /// The status, the problem, and when to come back, for routes that tell refusals in another shape.
    pub(super) fn parts(&self) -> (StatusCode, &Problem, Option<Duration>) {
        (self.0.status, &self.0.problem, self.0.retry_after)
    }

    /// The stable machine code.
    pub(super) fn code(&self) -> &str {
        &self.0.problem.code
    }

    /// The document, for this request.
    pub(super) fn document(self, request: &RequestId) -> Vec<u8> {
        let Reasons { status, problem, call, .. } = *self.0;
        let Problem { code, message, hint, denial } = problem;
        let (call_id, state) = call.map(|(id, state)| (id.to_string(), state.as_str())).unzip();
        let document = ProblemDocument {
            kind: format!("urn:palyra:problem:{code}"),
            title: status.canonical_reason().unwrap_or("Refused"),
            status: status.as_u16(),
            detail: message,
            code,
            hint,
            denial,
            request_id: request.to_string(),
            call_id,
            state,
        };
        // A document of texts and one number: it can always be written.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// The answer, for this request.
    pub(super) fn told(mut self, request: &RequestId) -> Response {
        let (status, retry_after, allow) = (self.0.status, self.0.retry_after, self.0.allow.take());
        let mut response = (status, self.document(request)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"palyra\""));
        }
        let crowded = (status == StatusCode::TOO_MANY_REQUESTS).then_some(COME_BACK);
        if let Some(wait) = retry_after.or(crowded) {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            put(headers, header::RETRY_AFTER, &seconds.to_string());
        }
        if let Some(verbs) = allow {
            put(headers, header::ALLOW, &verbs);
        }
        if matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE) {
            // The rest of the body is not waited for.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn put(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Self {
        let status = match error.kind {
            ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            // Not 503: clients repeat that by themselves, and this must not be repeated.
            ErrorKind::Unrecorded | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        let retry_after = error.retry_after;
        let refused = Self::new(status, error.problem);
        match retry_after {
            Some(wait) => refused.retry_after(wait),
            None => refused,
        }
    }
}

/// The gate finds it in the answer and writes the document.
impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Why a request was not carried out (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    /// `urn:palyra:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// The status in words.
    title: &'static str,
    /// The status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened and why.
    detail: String,
    /// The stable machine code.
    code: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// For a denial by policy: the rules that decided, what was missing, who could change the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    denial: Option<Box<Denial>>,
    /// The request, as the log and the journal name it.
    request_id: String,
    /// The call that this is about, if it is on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    /// Where that call stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// What any route may answer instead of what was asked for.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes answers for the OpenAPI document")]
pub(super) enum Refusals {
    /// The request makes no sense as it was sent.
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(ProblemDocument),
    /// No token, or one that does not open.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthenticated(ProblemDocument),
    /// The token, the role or policy does not allow it; or a web page asks.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument),
    /// It does not exist, or is not yours.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ProblemDocument),
    /// The path has no such method.
    #[response(status = 405, content_type = "application/problem+json")]
    Method(ProblemDocument),
    /// The body did not come in time.
    #[response(status = 408, content_type = "application/problem+json")]
    Slow(ProblemDocument),
    /// Too late, or twice.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(ProblemDocument),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(ProblemDocument),
    /// The body is not JSON.
    #[response(status = 415, content_type = "application/problem+json")]
    ContentType(ProblemDocument),
    /// The request was meant for another host.
    #[response(status = 421, content_type = "application/problem+json")]
    Misdirected(ProblemDocument),
    /// The body does not fit.
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(ProblemDocument),
    /// Too many requests; `Retry-After` says when.
    #[response(status = 429, content_type = "application/problem+json")]
    Exhausted(ProblemDocument),
    /// The head is too large.
    #[response(status = 431, content_type = "application/problem+json")]
    Head(ProblemDocument),
    /// A bug.
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(ProblemDocument),
    /// Not now.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(ProblemDocument),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_came_too_often_is_always_told_when_to_come_back() {
        let told = |refused: Refused| refused.told(&RequestId::mint()).headers().get(header::RETRY_AFTER).cloned();
        let crowded = || Refused::new(StatusCode::TOO_MANY_REQUESTS, Problem::plain("too_many_calls", "too many"));
        assert_eq!(told(crowded()).unwrap(), "5");
        assert_eq!(told(crowded().retry_after(Duration::from_millis(1500))).unwrap(), "2");
        assert_eq!(told(Refused::malformed("x")), None);
    }
}
