//! Whether the daemon is there and can work, and what its interface is. Open to whoever is on this machine.

use super::Door;
use super::problem::{Refusals, Refused};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

/// The process answers.
#[utoipa::path(
    get,
    path = "/healthz",
    security(()),
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"), Refusals)
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Calls can be taken.
#[utoipa::path(
    get,
    path = "/readyz",
    security(()),
    responses((status = 200, description = "They can", body = String, content_type = "text/plain"), Refusals)
)]
pub(super) async fn readyz(State(door): State<Door>) -> Result<&'static str, Refused> {
    door.engine.ready().await?;
    Ok("ready\n")
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object), Refusals)
)]
pub(super) async fn openapi(State(door): State<Door>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], door.description.to_string())
}
