//! Signed requests: what their headers say, and bodies that are what was signed.

use crate::http::{Refused, whole};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use palyra_engine::ConsoleRequest;
use palyra_protocol::{Digest, Problem};
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::time::Duration;

/// Where the routes are whose requests are signed.
pub(crate) const SIGNED: &str = "/console/api/";

const SESSION: HeaderName = HeaderName::from_static("x-palyra-session");
const TIME: HeaderName = HeaderName::from_static("x-palyra-time");
const NONCE: HeaderName = HeaderName::from_static("x-palyra-nonce");
const BODY: HeaderName = HeaderName::from_static("x-palyra-body");
const SIGNATURE: HeaderName = HeaderName::from_static("x-palyra-signature");

/// The largest body: a candidate for the rules.
const MAX_BODY: usize = 1 << 20;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);

/// SHA-256 of the body, as the signature covers it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimedBody(Digest);

impl ClaimedBody {
    pub(crate) fn of(request: &ConsoleRequest) -> Self {
        Self(request.body)
    }
}

/// What a request's headers say about its signature.
pub(crate) fn read(request: &Request) -> Result<ConsoleRequest, Refused> {
    let headers = request.headers();
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let read = || {
        Some(ConsoleRequest {
            session: one(headers, &SESSION)?,
            method: request.method().as_str().to_owned(),
            path: path.to_owned(),
            body: one(headers, &BODY)?,
            at_ms: one(headers, &TIME)?,
            nonce: one(headers, &NONCE)?,
            signature: one(headers, &SIGNATURE)?,
        })
    };
    read().ok_or_else(|| {
        let problem = Problem::new(
            "console_unsigned",
            "requests of the console are signed by their browser, and this one is not",
            "run `palyra console` to open it; programs use `/v1/`",
        );
        Refused::new(StatusCode::UNAUTHORIZED, problem)
    })
}

/// A header that stands there once and is what it should be.
fn one<T: FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok()?.parse().ok(),
        _ => None,
    }
}

/// A JSON body that is the one that was signed.
#[derive(Debug)]
pub(crate) struct Signed<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Signed<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let claimed = request.extensions().get::<ClaimedBody>().copied();
        let claimed = claimed.ok_or_else(|| Refused::malformed("this request was not signed"))?;
        let body = posted(request).await?;
        if Digest::of(&body) != claimed.0 {
            let problem = Problem::new(
                "console_signature",
                "the body is not the one that was signed",
                "load the page again; if that does not help, something between browser and daemon changes requests",
            );
            return Err(Refused::new(StatusCode::UNAUTHORIZED, problem));
        }
        let shape = |error: serde_json::Error| {
            let problem = Problem::plain("body_invalid", format!("the body cannot be read: {error}"));
            Refused::new(StatusCode::UNPROCESSABLE_ENTITY, problem)
        };
        serde_json::from_slice(&body).map(Self).map_err(shape)
    }
}

/// A whole body, within the limits.
pub(super) async fn posted(request: Request) -> Result<axum::body::Bytes, Refused> {
    match tokio::time::timeout(BODY_TIME, whole(request.into_body(), MAX_BODY, |_| ())).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => {
            let message = format!("a body has at most {MAX_BODY} bytes");
            Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, Problem::plain("body_too_large", message)))
        }
        Ok(Err(_)) => Err(Refused::malformed("the body did not come whole")),
        Err(_) => {
            let message = format!("the body did not come within {} s", BODY_TIME.as_secs());
            Err(Refused::new(StatusCode::REQUEST_TIMEOUT, Problem::plain("body_too_slow", message)))
        }
    }
}
