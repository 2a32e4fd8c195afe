//! The HTTP door: loopback only, one token per caller, and no web page.
//!
//! [`gate`](gate::gate) stands before every route and asks the one table of rights. Each file behind it adapts one
//! noun: it parses, calls the engine, and packs the answer. [`listen`](listen::Listening) holds the connections to
//! their limits.

mod approvals;
mod calls;
mod compat;
mod crowd;
mod error_responses;
mod events;
mod gate;
mod guests;
mod health;
mod kept;
mod listen;
mod payload;
mod problem;
mod records;
mod site;
mod tools;
mod unread_body;

#[cfg(test)]
pub(crate) use compat::ROUTES as COMPAT_ROUTES;
pub(crate) use error_responses::ErrorResponses;
pub(crate) use events::events as call_events;
pub(crate) use kept::keep;
pub(crate) use listen::{HttpError, Listening, MAX_HEAD, Port, WRITE_TIME, http1};
pub(crate) use payload::{Asked, Caller, Id, whole};
pub(crate) use problem::Refused;

use crate::doors::Doors;
use axum::Router;
use palyra_engine::Engine;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What every handler works with.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) engine: Engine,
    doors: Doors,
    /// Which callers it is for, and how they must name it.
    site: site::Site,
    crowd: crowd::Crowd,
    /// Cancelled when the daemon is about to end: whoever waits is answered.
    pub(crate) closing: CancellationToken,
    /// `/openapi.json`, written once.
    description: Arc<str>,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Palyra",
        description = "Propose tool calls, follow them, answer the questions they raise. Every route but the open ones \
                       needs `Authorization: Bearer TOKEN`; `palyra access token create` makes tokens.",
        license(name = "Apache-2.0")
    ),
    components(schemas(problem::ProblemDocument, events::Output)),
    modifiers(&TokenNeeded)
)]
struct Description;

/// Declares the token, and that every operation needs it unless it says otherwise.
struct TokenNeeded;

impl utoipa::Modify for TokenNeeded {
    fn modify(&self, openapi: &mut OpenApi) {
        use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("palyra_…").build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
        openapi.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    }
}

/// The routes, and what is said of them: one cannot be had without the other.
fn routes() -> OpenApiRouter<Door> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::openapi))
        .routes(routes!(tools::list))
        .routes(routes!(calls::invoke))
        .routes(routes!(calls::get, calls::cancel))
        .routes(routes!(events::events))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::show))
        .routes(routes!(approvals::decide))
}

/// The OpenAPI document.
pub(crate) fn description() -> OpenApi {
    let mut openapi = routes().into_openapi();
    describe_headers(&mut openapi);
    openapi
}

/// The headers of answers: the gate sets them for every route alike.
fn describe_headers(openapi: &mut OpenApi) {
    use utoipa::openapi::{HeaderBuilder, ObjectBuilder, RefOr, Type};
    let header = |description: &str| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        HeaderBuilder::new().schema(Some(text)).description(Some(description)).build()
    };
    let operations = openapi.paths.paths.values_mut();
    let operations = operations.flat_map(|item| [&mut item.get, &mut item.post, &mut item.delete]).flatten();
    for (status, response) in operations.flat_map(|operation| &mut operation.responses.responses) {
        let RefOr::T(response) = response else { continue };
        let own = match status.as_str() {
            "202" => Some(("Location", "Where to ask about the call")),
            "401" => Some(("WWW-Authenticate", "How to show a token")),
            "405" => Some(("Allow", "The methods that there are")),
            "429" | "503" => Some(("Retry-After", "When to come back, in seconds, where that is known")),
            _ => None,
        };
        let always = ("X-Request-Id", "The request, as the journal and the log name it");
        let headers = own.into_iter().chain([always]);
        response.headers.extend(headers.map(|(name, about)| (name.to_owned(), RefOr::T(header(about)))));
    }
}

/// The whole door as one service. Services that speak other protocols than the described one are added here, with
/// `route_service` and their lines in the table of rights: the gate stands before them as well, and leaves them the
/// `Arc<VerifiedPeer>` and the `RequestId` in the request's extensions.
fn router(door: Door) -> Router {
    let (router, _) = routes().split_for_parts();
    let gate = axum::middleware::from_fn_with_state(door.clone(), gate::gate);
    let mcp = crate::mcp::http::route(door.doors.clone());
    let router = compat::added_to(router).merge(crate::console::routes());
    router.route(crate::mcp::http::PATH, mcp).fallback(gate::nowhere).layer(gate).with_state(door)
}

/// The same door for paired devices: the gate knows them by their certificates, which the connection leaves as an
/// `Arc<ConnectedDevice>` in the request's extensions.
pub(crate) fn for_devices(doors: Doors) -> Result<Router, HttpError> {
    Ok(router(Door::new(doors, site::Site::Devices)?))
}

impl Door {
    /// The daemon's agent runs.
    pub(crate) fn runs(&self) -> &palyra_agent::Runs {
        &self.doors.runs
    }

    /// The origin of a page that this door serves, by the host that the request names and the gate has checked.
    pub(crate) fn origin(&self, headers: &axum::http::HeaderMap) -> Option<String> {
        let host = headers.get(axum::http::header::HOST)?.to_str().ok()?;
        let scheme = if self.site == site::Site::Devices { "https" } else { "http" };
        Some(format!("{scheme}://{}", host.to_ascii_lowercase()))
    }

    /// The door for paired devices, while the daemon has it.
    pub(crate) fn remote(&self) -> Option<crate::mtls::RemoteDoor> {
        self.doors.remote()
    }

    fn new(doors: Doors, site: site::Site) -> Result<Self, serde_json::Error> {
        let description = serde_json::to_string(&description())?;
        Ok(Self {
            engine: doors.engine.clone(),
            closing: doors.ending.closing().clone(),
            doors,
            site,
            crowd: crowd::Crowd::default(),
            description: description.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn operations_have_names_of_their_own_and_answers_their_headers() {
        let described = serde_json::to_value(description()).unwrap();
        let items = described["paths"].as_object().unwrap().values();
        let operations: Vec<&Value> = items.flat_map(|item| item.as_object().unwrap().values()).collect();
        let names: BTreeSet<&str> = operations.iter().map(|o| o["operationId"].as_str().unwrap()).collect();
        assert_eq!(names.len(), operations.len(), "{names:?}");
        for operation in operations {
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(response["headers"].get("X-Request-Id").is_some(), "{operation}: {status}");
            }
            assert!(operation["responses"]["429"]["headers"].get("Retry-After").is_some());
        }
    }
}
