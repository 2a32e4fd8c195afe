//! MCP over HTTP: `/mcp` on the HTTP door, behind its gate.
//!
//! The gate has checked where a request comes from and who makes it. Messages are read here as strictly as on the socket
//! before the SDK sees them. A session, which only the revision before the current one has, belongs to the token that
//! began it: to everybody else it does not exist.

use super::lines;
use super::{Caller, MAX_MESSAGE_BYTES, McpServer};
use crate::http::whole;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, any};
use palyra_engine::{Engine, VerifiedPeer};
use palyra_protocol::TokenId;
use rmcp::ErrorData;
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The path.
pub(crate) const PATH: &str = "/mcp";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How long a session without a word is kept: longer than a person is usually waited for.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How many sessions one token may have.
const SESSIONS_PER_TOKEN: usize = 32;
/// How many sessions there may be.
const MAX_SESSIONS: usize = 1024;
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Mcp {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    owners: Arc<Mutex<HashMap<String, TokenId>>>,
}

/// The route.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(engine: Engine, closing: &CancellationToken) -> MethodRouter<S> {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(closing.child_token());
    let serve = move || Ok(McpServer::new(engine.clone(), Caller::Http));
    let service = StreamableHttpService::new(serve, Arc::clone(&sessions), config);
    any(handle).with_state(Mcp { service, sessions, owners: Arc::default() })
}

async fn handle(State(mcp): State<Mcp>, request: Request) -> Response {
    let Some(token) = token_of(&request) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let session = request.headers().get(SESSION).map(|id| id.to_str().unwrap_or("").to_owned());
    if let Some(session) = &session
        && mcp.owner(session).as_ref() != Some(&token)
    {
        return refused(StatusCode::NOT_FOUND, "session_not_found", "there is no such session; begin another", None);
    }
    if session.is_none() && !mcp.has_room(&token).await {
        let why = "too many sessions are open; end some, or wait until they do";
        return refused(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", why, None);
    }
    let ends = request.method() == Method::DELETE;
    let request = match checked(request).await {
        Ok(request) => request,
        Err(response) => return response,
    };
    let mut response = mcp.service.handle(request).await.map(Body::new);
    if ends && response.status() == StatusCode::ACCEPTED {
        // It has ended by now, and clients that look expect to hear so.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if let Some(begun) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
        mcp.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(begun.to_owned(), token);
    }
    if let (true, Some(session)) = (ends, session) {
        mcp.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
    response
}

impl Mcp {
    fn owner(&self, session: &str) -> Option<TokenId> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// Whether a token may begin another session. Those that have ended are forgotten first.
    async fn has_room(&self, token: &TokenId) -> bool {
        let live = self.sessions.sessions.read().await;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|session, _| live.contains_key(session.as_str()));
        owners.len() < MAX_SESSIONS && owners.values().filter(|owner| *owner == token).count() < SESSIONS_PER_TOKEN
    }
}

/// The token that the gate let in.
fn token_of(request: &Request) -> Option<TokenId> {
    request.extensions().get::<Arc<VerifiedPeer>>().and_then(|peer| peer.token_id().cloned())
}

/// The request, if its body is a message.
async fn checked(request: Request) -> Result<Request, Response> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = read(body).await?;
    if let Err(refusal) = lines::message(&bytes) {
        return Err(told(StatusCode::BAD_REQUEST, *refusal.error, refusal.id));
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The body, if it is small enough. One that is too large is read on for a while, so that its sender gets to hear the answer.
async fn read(body: Body) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIME, whole(body, MAX_MESSAGE_BYTES)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None) | Err(_)) => {
            let why = format!("the body broke off, or is larger than {MAX_MESSAGE_BYTES} bytes");
            Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "input_too_large", &why, None))
        }
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body did not come", None)),
    }
}

fn refused(status: StatusCode, code: &str, message: &str, id: Option<RequestId>) -> Response {
    let data = json!({ "code": code, "message": message });
    told(status, ErrorData::invalid_request(message.to_owned(), Some(data)), id)
}

fn told(status: StatusCode, error: ErrorData, id: Option<RequestId>) -> Response {
    let body = serde_json::to_string(&ServerJsonRpcMessage::error(error, id)).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
