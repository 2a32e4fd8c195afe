//! The compat door: `/v1/chat/completions`, `/v1/responses` and `/v1/models`, for programs that speak OpenAI's API.
//!
//! It has no flow of its own. A model id that names an agent begins a run, whose calls go the one path; any other is
//! asked as it is, and the caller's tools go back to the caller. Requests are read strictly ([`request`]), answers are
//! made of [`source::Piece`]s that come from either, and refusals have the shape that these clients read ([`errors`]).

mod chat;
mod errors;
mod items;
mod models;
mod request;
mod responses;
mod responses_request;
mod source;

pub(super) use errors::told;

use super::Door;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use errors::Fault;
use palyra_engine::VerifiedPeer;
use palyra_protocol::RequestId;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The largest body: a client sends its whole conversation each time.
const MAX_BODY: usize = 16 << 20;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How often a client that waits hears that it still does.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Every route here, for the table of rights' own test: they are described by OpenAI, not by `/openapi.json`.
#[cfg(test)]
pub(crate) const ROUTES: [&str; 5] = [
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "GET /v1/responses/{response_id}",
    "POST /v1/responses/{response_id}/cancel",
    "GET /v1/models",
];

/// Whether a path is one of these, so that a refusal has the shape that its clients read.
pub(super) fn is_route(pattern: &str) -> bool {
    pattern == "/v1/chat/completions" || pattern == "/v1/models" || pattern.starts_with("/v1/responses")
}

/// Adds the routes.
pub(super) fn added_to(router: Router<Door>) -> Router<Door> {
    router
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{response_id}", get(responses::show))
        .route("/v1/responses/{response_id}/cancel", post(responses::cancel))
        .route("/v1/models", get(models::list))
}

/// A request as these routes read it.
struct Asked {
    peer: Arc<VerifiedPeer>,
    request: RequestId,
    fields: Map<String, Value>,
}

impl Asked {
    async fn read(request: Request) -> Result<Self, Fault> {
        let (parts, body) = request.into_parts();
        let (Some(peer), Some(id)) =
            (parts.extensions.get::<Arc<VerifiedPeer>>().cloned(), parts.extensions.get::<RequestId>().cloned())
        else {
            return Err(Fault::internal("a request came past the gate"));
        };
        let body = whole(body).await?;
        palyra_protocol::json::check_envelope(&body, MAX_BODY, 1)
            .map_err(|e| Fault::invalid(None, format!("the body is not usable JSON: {e}")))?;
        match serde_json::from_slice(&body) {
            Ok(Value::Object(fields)) => Ok(Self { peer, request: id, fields }),
            Ok(_) => Err(Fault::invalid(None, "the body must be a JSON object")),
            Err(error) => Err(Fault::invalid(None, format!("the body is not JSON: {error}"))),
        }
    }
}

async fn whole(body: Body) -> Result<Bytes, Fault> {
    match tokio::time::timeout(BODY_TIME, super::whole(body, MAX_BODY, |_| ())).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => Err(Fault::too_large(MAX_BODY)),
        Ok(Err(_)) => Err(Fault::invalid(None, "the body did not come whole")),
        Err(_) => Err(Fault::invalid(None, format!("the body did not come within {} s", BODY_TIME.as_secs()))),
    }
}

/// What is left of the caller's rate, as these clients read it.
fn rate_headers(door: &Door, peer: &VerifiedPeer, headers: &mut HeaderMap) {
    let Some(rate) = door.engine.rate_of(peer) else { return };
    let reset = format!("{}s", rate.full_in.as_secs().max(1));
    for (name, value) in [
        ("x-ratelimit-limit-requests", rate.per_minute.to_string()),
        ("x-ratelimit-remaining-requests", rate.left.to_string()),
        ("x-ratelimit-reset-requests", reset),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

fn now() -> u64 {
    palyra_protocol::Clock::now(&palyra_protocol::SystemClock).unix_ms() / 1000
}

/// A JSON document as an answer.
struct Json(Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, kind)], self.0.to_string()).into_response()
    }
}
