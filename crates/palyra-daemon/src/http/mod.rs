//! The HTTP door: loopback only, one token per caller, and no web page.
//!
//! [`gate`](gate::gate) stands before every route and asks the one table of rights. Each file behind it adapts one noun: it
//! parses, calls the engine, and packs the answer. [`listen`](listen::Listening) holds the connections to their limits.

mod approvals;
mod calls;
mod crowd;
mod events;
mod gate;
mod health;
mod listen;
mod payload;
mod problem;
mod records;
mod site;
mod tools;

pub(crate) use listen::{HttpError, Listening, Port};
pub(crate) use payload::whole;

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
    /// The port that callers must name.
    port: u16,
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
        .routes(routes!(approvals::decide))
}

/// The OpenAPI document.
pub(crate) fn description() -> OpenApi {
    routes().into_openapi()
}

/// The whole door as one service. Services that speak other protocols than the described one are added here, with
/// `route_service` and their lines in the table of rights: the gate stands before them as well, and leaves them the
/// `Arc<VerifiedPeer>` and the `RequestId` in the request's extensions.
pub(crate) fn router(door: Door) -> Router {
    let (router, _) = routes().split_for_parts();
    let gate = axum::middleware::from_fn_with_state(door.clone(), gate::gate);
    let mcp = crate::mcp::http::route(door.engine.clone(), &door.closing);
    router.route(crate::mcp::http::PATH, mcp).fallback(gate::nowhere).layer(gate).with_state(door)
}

impl Door {
    /// The door of this engine, on this port.
    pub(crate) fn new(engine: Engine, port: u16) -> Result<Self, serde_json::Error> {
        let description = serde_json::to_string(&description())?;
        Ok(Self {
            engine,
            port,
            crowd: crowd::Crowd::default(),
            closing: CancellationToken::new(),
            description: description.into(),
        })
    }
}
