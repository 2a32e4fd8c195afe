//! MCP over HTTP: `/mcp` on the HTTP door, behind its gate.
//!
//! The gate has checked where a request comes from and who makes it. Messages are looked at here as strictly as on the
//! socket before the SDK reads them. Whatever goes wrong is told in the way of whoever asked: an answer to a message is
//! a message, an answer to anything else a problem document.

use super::lines::{self, Told};
use super::sessions::Sessions;
use super::whose::Whose;
use super::{Caller, MAX_MESSAGE_BYTES, McpServer};
use crate::doors::Doors;
use crate::http::{Refused, keep, whole};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, any};
use http_body_util::BodyExt as _;
use palyra_engine::VerifiedPeer;
use palyra_protocol::Problem;
use palyra_protocol::access::Credential;
use rmcp::ErrorData;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The path.
pub(crate) const PATH: &str = "/mcp";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(20);
/// How the SDK begins to say that a message is none that it knows; it calls that a media type.
const UNREADABLE: &str = "fail to deserialize request body";
/// How much of the SDK's own words is read.
const MAX_WORDS: usize = 4096;

#[derive(Clone)]
struct Mcp {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Sessions,
    doors: Doors,
}

/// The route.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(doors: Doors) -> MethodRouter<S> {
    let sessions = Sessions::new();
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        // The gate has looked at where a request comes from, on either listener.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        .with_cancellation_token(doors.ending.ended().child_token());
    let serve = {
        let doors = doors.clone();
        move || Ok(McpServer::new(doors.clone(), Caller::Http))
    };
    let service = StreamableHttpService::new(serve, sessions.kept(), config);
    any(handle).with_state(Mcp { service, sessions, doors })
}

/// What a request is, as far as it has been looked at.
#[derive(Debug, Default)]
struct Asked {
    /// It brings a message.
    message: bool,
    id: Option<Box<RawValue>>,
    method: Option<String>,
}

async fn handle(State(mcp): State<Mcp>, request: Request) -> Response {
    let mut asked = Asked { message: request.method() == Method::POST, ..Asked::default() };
    match mcp.answer(request, &mut asked).await {
        Ok(response) => understood(response, &asked).await,
        Err(refused) => asked.told(refused),
    }
}

impl Mcp {
    async fn answer(&self, request: Request, asked: &mut Asked) -> Result<Response, Refusal> {
        let token = token_of(&request).ok_or_else(Refusal::past_the_gate)?;
        // First, so that a refusal can name the request.
        let request = checked(request, asked).await?;
        let session = request.headers().get(SESSION).map(|id| id.to_str().unwrap_or("").to_owned());
        let in_use = match &session {
            Some(id) => Some(self.sessions.enter(id, &token).ok_or_else(Refusal::no_session)?),
            None => None,
        };
        let ends = request.method() == Method::DELETE;
        let begins = asked.method.as_deref() == Some("initialize") && session.is_none();
        let _place = match begins {
            true => Some(self.sessions.begin(&token).await.ok_or_else(Refusal::too_many_sessions)?),
            false => None,
        };
        let owed = asked.message.then(|| self.doors.ending.owe());
        let mut response = self.service.handle(request).await.map(Body::new);
        if ends && response.status() == StatusCode::ACCEPTED {
            // It has ended by now, and clients that look expect to hear so.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if let Some(begun) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).filter(|_| begins) {
            self.sessions.begun(begun, token);
        }
        if let (true, Some(session)) = (ends, &session) {
            self.sessions.forget(session);
        }
        Ok(keep(response, (in_use, owed)))
    }
}

/// The token or device that the gate let in.
fn token_of(request: &Request) -> Option<Credential> {
    request.extensions().get::<Arc<VerifiedPeer>>().and_then(|peer| peer.credential().cloned())
}

/// The request, if its body is a message.
async fn checked(request: Request, asked: &mut Asked) -> Result<Request, Refusal> {
    if !asked.message {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = read(body, asked).await?;
    let seen = lines::look(&bytes).map_err(|lines::Refusal { error, id }| {
        asked.id = id;
        Refusal { status: StatusCode::BAD_REQUEST, error: *error, retry_after: None }
    })?;
    asked.method = seen.method.map(Cow::into_owned);
    asked.id = seen.id;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The body, if it is small enough. One that is too large is read on for a while, so that its sender gets to hear the
/// answer.
async fn read(body: Body, asked: &mut Asked) -> Result<Bytes, Refusal> {
    let mut whose = Whose::new();
    let read = whole(body, MAX_MESSAGE_BYTES, |piece| whose.feed(piece));
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None) | Err(_)) => {
            asked.id = whose.told();
            let why = format!("the body broke off, or is larger than {MAX_MESSAGE_BYTES} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "input_too_large", &why))
        }
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "the body did not come")),
    }
}

/// Why a request is not carried out.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    error: ErrorData,
    retry_after: Option<Duration>,
}

impl Refusal {
    fn new(status: StatusCode, code: &str, message: &str) -> Self {
        let data = json!({ "code": code, "message": message });
        Self { status, error: ErrorData::invalid_request(message.to_owned(), Some(data)), retry_after: None }
    }

    fn no_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "session_not_found", "there is no such session; begin another")
    }

    fn too_many_sessions() -> Self {
        let why = "every session that this token may have is at work; end one, or wait until it does";
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", why);
        Self { retry_after: Some(Duration::from_secs(5)), ..refusal }
    }

    fn past_the_gate() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a request came past the gate")
    }

    fn code(&self) -> &str {
        self.error.data.as_ref().and_then(|data| data.get("code")?.as_str()).unwrap_or("malformed_request")
    }
}

impl Asked {
    /// A refusal, in the way of whoever asked.
    fn told(&self, refusal: Refusal) -> Response {
        if !self.message {
            let problem = Problem::plain(refusal.code(), refusal.error.message.to_string());
            let refused = Refused::new(refusal.status, problem);
            return match refusal.retry_after {
                Some(wait) => refused.retry_after(wait).into_response(),
                None => refused.into_response(),
            };
        }
        let Refusal { status, error, retry_after } = refusal;
        let body = serde_json::to_string(&Told::new(self.id.as_deref(), &error)).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(wait) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

/// The SDK's answer; where it is a text that nobody can act on, the same as everybody else would say it.
async fn understood(response: Response, asked: &Asked) -> Response {
    let status = response.status();
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    if !(status.is_client_error() || status.is_server_error())
        || response.headers().get(header::CONTENT_TYPE).is_some_and(is_json)
    {
        return response;
    }
    let words = http_body_util::Limited::new(response.into_body(), MAX_WORDS).collect().await;
    let words = words.map(|words| String::from_utf8_lossy(&words.to_bytes()).into_owned()).unwrap_or_default();
    if words.starts_with(UNREADABLE) {
        let seen = lines::Seen { id: asked.id.clone(), method: asked.method.as_deref().map(Cow::Borrowed) };
        let error = *seen.refused().error;
        return asked.told(Refusal { status: StatusCode::BAD_REQUEST, error, retry_after: None });
    }
    let code = match status {
        StatusCode::NOT_FOUND => "session_not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::NOT_ACCEPTABLE => "not_acceptable",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
        _ if status.is_server_error() => "internal",
        _ => "malformed_request",
    };
    if status.is_server_error() {
        tracing::error!(words, "a request failed");
        return asked.told(Refusal::new(status, code, "the daemon could not answer; its log says why"));
    }
    asked.told(Refusal::new(status, code, &words))
}
