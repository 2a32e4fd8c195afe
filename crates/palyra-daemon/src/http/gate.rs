//! The gate: every request passes it before any handler sees it.
//!
//! In this order: where it comes from, which route it is, who is speaking, whether they may, whether they have room. A
//! handler finds the [`RequestId`] and, unless its route is open, the [`VerifiedPeer`] in the request's extensions.

use super::Door;
use super::compat;
use super::crowd::{Place, Visitor};
use super::guests::{Busy, Guest};
use super::kept::keep;
use super::listen::MAX_HEAD;
use super::problem::Refused;
use super::site::Site;
use super::unread_body::{Discarded, UnreadBody};
use crate::console::signed::{self, ClaimedBody};
use crate::doors::DoorName;
use crate::mcp;
use crate::mtls::token_of_a_device;
use crate::rights::{self, Need};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use palyra_engine::{VerifiedPeer, WorkspaceNaming};
use palyra_identity::ConnectedDevice;
use palyra_protocol::{Problem, RequestId};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument as _;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What no answer is without: nothing is kept, guessed, framed or read by other sites.
pub(super) const ALWAYS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Lets a request in, or answers it.
pub(super) async fn gate(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let id = RequestId::mint();
    let span = tracing::info_span!("http", request = %id);
    let entered = door.enter(&mut request);
    let asked = Asked::of(&request);
    let unread = UnreadBody::of(&mut request);
    let mut response = match entered {
        Ok(inside) => {
            request.extensions_mut().insert(id.clone());
            let response = next.run(request).instrument(span.clone()).await;
            match inside {
                Some(inside) => keep(response, inside),
                None => response,
            }
        }
        Err(refused) => refused.into_response(),
    };
    let refused = response.extensions_mut().remove::<Refused>();
    asked.log(&span, response.status(), refused.as_ref());
    if let Some(refused) = refused {
        let compat = asked.route.as_ref().is_some_and(|route| compat::is_route(route.as_str()));
        response = if compat { compat::told(&refused) } else { refused.told(&id) };
    }
    let discarded = unread.discard().await;
    let headers = response.headers_mut();
    if discarded == Discarded::Partly {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in ALWAYS {
        // A page of the console has a policy of its own; what holds for documents would keep it from being a page.
        if name != header::CONTENT_SECURITY_POLICY || !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        headers.insert(X_REQUEST_ID, value);
    }
    response
}

/// What is told in the log of a request that was refused.
struct Asked {
    verb: Method,
    route: Option<MatchedPath>,
    by: Option<Arc<VerifiedPeer>>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        Self { verb: request.method().clone(), route: extensions.get().cloned(), by: extensions.get().cloned() }
    }

    /// Refusals of those who showed a token that opens are worth a line, and as many as their rate allows. Those of
    /// strangers could fill a disk: the access registry counts them.
    fn log(&self, span: &tracing::Span, status: StatusCode, refused: Option<&Refused>) {
        let Some(by) = self.by.as_ref().filter(|_| status.is_client_error() || status.is_server_error()) else {
            return;
        };
        let route = self.route.as_ref().map_or("", MatchedPath::as_str);
        let (verb, code) = (&self.verb, refused.map_or("", Refused::code));
        tracing::info!(parent: span, by = %by.effective(), %verb, route, status = status.as_u16(), code, "refused");
    }
}

/// Where no route leads; the gate has answered before.
pub(super) async fn nowhere() -> Refused {
    no_such_route()
}

fn no_room() -> Refused {
    let problem = Problem::new("too_many_connections", "every connection there may be is in use", "come back later");
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, problem).retry_after(Duration::from_secs(1))
}

fn no_such_route() -> Refused {
    let problem = Problem::new("no_such_route", "there is no such path", "see `/openapi.json`");
    Refused::new(StatusCode::NOT_FOUND, problem)
}

impl Door {
    fn enter(&self, request: &mut Request) -> Result<Option<(Place, Option<Busy>)>, Refused> {
        let guest = request.extensions().get::<Arc<Guest>>().cloned();
        let entered = self.admit(request);
        match (&entered, guest) {
            (Ok(Some(_)), Some(guest)) => {
                let busy = guest.admitted().ok_or_else(no_room)?;
                Ok(entered?.map(|place| (place, Some(busy))))
            }
            (_, guest) => {
                if let Some(guest) = guest {
                    guest.is_a_stranger();
                }
                Ok(entered?.map(|place| (place, None)))
            }
        }
    }

    fn admit(&self, request: &mut Request) -> Result<Option<Place>, Refused> {
        if head_size(request) > MAX_HEAD {
            let message = format!("a head has at most {MAX_HEAD} bytes");
            let problem = Problem::plain("head_too_large", message);
            return Err(Refused::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, problem));
        }
        self.site.check(request.uri(), request.headers())?;
        let right = match self.need(request)? {
            Need::Open => return Ok(None),
            Need::Right(right) => right,
        };
        let peer = Arc::new(self.identify(request)?);
        request.extensions_mut().insert(Arc::clone(&peer));
        self.engine.admit(&peer, right.action, right.on.resource())?;
        let by = Visitor::of(&peer);
        by.map(|by| self.crowd.enter(by)).transpose()
    }

    /// What the route needs, by the one table of rights.
    fn need(&self, request: &Request) -> Result<Need, Refused> {
        let pattern = request.extensions().get::<MatchedPath>();
        let verb = request.method().as_str();
        if let Some(need) = pattern.and_then(|pattern| rights::of_route(verb, pattern.as_str())) {
            return Ok(need);
        }
        let verbs: Vec<_> = pattern.into_iter().flat_map(|pattern| rights::verbs(pattern.as_str())).collect();
        if verbs.is_empty() {
            return Err(no_such_route());
        }
        let verbs = verbs.join(", ");
        let problem = Problem::plain("method_not_allowed", format!("this path answers to {verbs}"));
        Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, problem).allow(verbs))
    }

    /// Who is speaking: whoever opened the console session that a request is signed in, the device at the other end of
    /// the connection, or whoever the token speaks for.
    fn identify(&self, request: &mut Request) -> Result<VerifiedPeer, Refused> {
        let pattern = request.extensions().get::<MatchedPath>();
        if pattern.is_some_and(|pattern| pattern.as_str().starts_with(signed::SIGNED)) {
            let said = signed::read(request)?;
            request.extensions_mut().insert(ClaimedBody::of(&said));
            let device = request.extensions().get::<Arc<ConnectedDevice>>();
            return Ok(VerifiedPeer::by_console(&self.engine, &said, device, DoorName::Console.channel())?);
        }
        if let Some(device) = request.extensions().get::<Arc<ConnectedDevice>>() {
            if request.headers().contains_key(header::AUTHORIZATION) {
                return Err(Refused::new(StatusCode::UNAUTHORIZED, token_of_a_device()));
            }
            let naming = named_workspace(request)?;
            return Ok(VerifiedPeer::by_device(&self.engine, device, &naming, DoorName::Remote.channel())?);
        }
        if self.site == Site::Devices {
            let problem = Problem::plain("internal", "a request came past the handshake");
            return Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, problem));
        }
        let mut shown = request.headers().get_all(header::AUTHORIZATION).iter();
        let token = match (shown.next(), shown.next()) {
            (Some(one), None) => one.to_str().ok().and_then(bearer),
            (None, _) => {
                let problem = Problem::new(
                    "token_missing",
                    "this needs a token",
                    "send `Authorization: Bearer TOKEN`; `palyra access token create` makes one",
                );
                return Err(Refused::new(StatusCode::UNAUTHORIZED, problem));
            }
            (Some(_), Some(_)) => None,
        };
        let pattern = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let door = if pattern == Some(mcp::http::PATH) { DoorName::Mcp } else { DoorName::Http };
        // What is no bearer token is refused like a wrong one.
        let peer = VerifiedPeer::by_token(&self.engine, token.unwrap_or(""), "loopback http", door.channel())?;
        // The token says which workspace it opens; a client that names another has the wrong one.
        Ok(self.engine.in_named_workspace(peer, &named_workspace(request)?)?)
    }
}

/// The workspace that a request names: by its id, or by its path, percent-encoded where it is not plain text.
fn named_workspace(request: &Request) -> Result<WorkspaceNaming, Refused> {
    let mut named = request.headers().get_all(palyra_api::WORKSPACE).iter();
    let unclear = || {
        let problem =
            Problem::plain("workspace_malformed", "`palyra-workspace` names one workspace, by its id or path");
        Refused::new(StatusCode::BAD_REQUEST, problem)
    };
    let name = match (named.next(), named.next()) {
        (None, _) => None,
        (Some(one), None) => Some(one.to_str().ok().and_then(palyra_api::unescaped).ok_or_else(unclear)?),
        (Some(_), Some(_)) => return Err(unclear()),
    };
    Ok(WorkspaceNaming::parse(name.as_deref(), None)?)
}

/// How long a request's head is, as short as it can be written. The HTTP library looks at its buffer while it waits for
/// more, so a head that comes at once may be twice as long as it allows.
fn head_size(request: &Request) -> usize {
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let host = uri.authority().map_or(0, |host| host.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    request.method().as_str().len() + host + path + "  HTTP/1.1\r\n\r\n".len() + headers.sum::<usize>()
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}
