//! `/v1/models`.

use super::Json;
use super::errors::Fault;
use crate::http::Door;
use crate::http::payload::Caller;
use axum::extract::State;
use serde_json::{Value, json};

/// The models that the caller may ask.
pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Json, Fault> {
    let models = door.doors.runs.models();
    let seen = models.list().into_iter().filter(|model| models.may_ask(&caller.peer, model));
    let data: Vec<Value> = seen
        .map(|model| json!({ "id": model.name, "object": "model", "created": 0, "owned_by": model.kind }))
        .collect();
    Ok(Json(json!({ "object": "list", "data": data })))
}
