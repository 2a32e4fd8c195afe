//! What comes with a request: JSON bodies, ids in paths, queries. Each has its limit and its typed refusal.

use super::problem::Refused;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::BodyExt as _;
use palyra_engine::VerifiedPeer;
use palyra_protocol::{IdempotencyKey, Problem, RequestId};
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The largest body: the largest input of a tool, and what stands around it.
pub(super) const MAX_BODY: usize = (1 << 20) + (64 << 10);
/// How much of a body is read, and thrown away beyond what fits.
const MAX_READ: usize = 16 << 20;
/// How long the next piece of a body that is too large already is waited for.
const LINGER: Duration = Duration::from_secs(1);
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);

/// A JSON body.
#[derive(Debug)]
pub(super) struct Payload<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Payload<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        if !is_json(request.headers()) {
            let problem =
                Problem::new("not_json", "the body must be JSON, and say so", "send `Content-Type: application/json`");
            return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
        }
        let body = match tokio::time::timeout(BODY_TIME, whole(request.into_body(), MAX_BODY, |_| ())).await {
            Ok(Ok(Some(body))) => body,
            Ok(Ok(None)) => {
                let message = format!("a body has at most {MAX_BODY} bytes");
                return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, Problem::plain("body_too_large", message)));
            }
            Ok(Err(_)) => return Err(Refused::malformed("the body did not come whole")),
            Err(_) => {
                let message = format!("the body did not come within {} s", BODY_TIME.as_secs());
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, Problem::plain("body_too_slow", message)));
            }
        };
        serde_json::from_slice(&body).map(Self).map_err(|error| unreadable(&error, &body))
    }
}

/// The body, if it is no larger than `most`. One that is too large is read on for a while and thrown away, so that its
/// sender gets to hear the answer; `thrown` sees it pass, from its beginning.
pub(crate) async fn whole(
    mut body: Body,
    most: usize,
    mut thrown: impl FnMut(&[u8]),
) -> Result<Option<Bytes>, axum::Error> {
    if body.size_hint().lower() > MAX_READ as u64 {
        return Ok(None);
    }
    let (mut bytes, mut seen) = (Vec::new(), 0);
    loop {
        let frame = if seen <= most {
            body.frame().await
        } else {
            tokio::time::timeout(LINGER, body.frame()).await.unwrap_or(None)
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame?.into_data() else { continue };
        seen += data.len();
        if seen <= most {
            bytes.extend_from_slice(&data);
            continue;
        }
        thrown(&std::mem::take(&mut bytes));
        thrown(&data);
        if seen > MAX_READ {
            break;
        }
    }
    Ok((seen <= most).then(|| bytes.into()))
}

/// Not JSON at all, or JSON of another shape. The reader calls a wrong type where one of several names is expected a
/// mistake in the JSON, so whether it is one is looked at by itself.
fn unreadable(error: &serde_json::Error, body: &[u8]) -> Refused {
    let of_another_shape = error.classify() == serde_json::error::Category::Data
        || palyra_protocol::json::check_envelope(body, MAX_BODY, 1).is_ok();
    let (status, code) = match of_another_shape {
        true => (StatusCode::UNPROCESSABLE_ENTITY, "body_invalid"),
        false => (StatusCode::BAD_REQUEST, "malformed_json"),
    };
    let hint = "the shapes of all bodies are in `/openapi.json`";
    Refused::new(status, Problem::new(code, format!("the body cannot be read: {error}"), hint))
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(one), None) = (types.next(), types.next()) else { return false };
    let Ok(text) = one.to_str() else { return false };
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    essence && parts.all(|parameter| parameter.is_empty() || parameter.eq_ignore_ascii_case("charset=utf-8"))
}

/// An id in the path. One that cannot exist is one that does not.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let text = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(text) = text.map_err(|_| Refused::malformed("the path cannot be read"))?;
        text.parse().map(Self).map_err(|_| Refused::not_found("such thing as", &text))
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(QueryRejection::FailedToDeserializeQueryString(error)) => Err(Refused::malformed(error.body_text())),
            Err(_) => Err(Refused::malformed("the query cannot be read")),
        }
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The caller's promise that a repetition is the same call.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Refused> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (keys.next(), keys.next()) {
        (None, _) => Ok(None),
        (Some(key), None) => {
            let key = key.to_str().ok().and_then(|key| key.parse().ok());
            let plain = "an `Idempotency-Key` has 1 to 128 characters of A-Z a-z 0-9 . _ : / @ -";
            key.map(Some).ok_or_else(|| Refused::malformed(plain))
        }
        (Some(_), Some(_)) => Err(Refused::malformed("there is one `Idempotency-Key` at most")),
    }
}

/// Who is speaking, and in which request: what the gate has established.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) peer: Arc<VerifiedPeer>,
    pub(crate) request: RequestId,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let peer = parts.extensions.get::<Arc<VerifiedPeer>>().cloned();
        let request = parts.extensions.get::<RequestId>().cloned();
        let past = || {
            let problem = Problem::plain("internal", "a request came past the gate");
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, problem)
        };
        Ok(Self { peer: peer.ok_or_else(past)?, request: request.ok_or_else(past)? })
    }
}
