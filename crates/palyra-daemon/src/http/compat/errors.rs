//! Refusals in the shape of these routes: `{"error": {message, type, param, code}}`.

use super::super::problem::Refused;
use super::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use palyra_engine::{EngineError, ErrorKind};
use palyra_protocol::Problem;
use serde_json::{Value, json};
use std::time::Duration;

/// Why a request is not carried out.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    status: StatusCode,
    param: Option<String>,
    problem: Box<Problem>,
    retry_after: Option<Duration>,
}

impl Fault {
    fn new(status: StatusCode, problem: Problem) -> Self {
        Self { status, param: None, problem: Box::new(problem), retry_after: None }
    }

    /// A field makes no sense.
    pub(super) fn invalid(param: Option<&str>, message: impl Into<String>) -> Self {
        let problem = Problem::plain("invalid_request", message);
        Self { param: param.map(str::to_owned), ..Self::new(StatusCode::BAD_REQUEST, problem) }
    }

    /// A field asks for something that there is not here.
    pub(super) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        let problem = Problem::plain("unsupported_value", message);
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, problem) }
    }

    pub(super) fn too_large(most: usize) -> Self {
        let problem = Problem::plain("body_too_large", format!("a body has at most {most} bytes"));
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, problem)
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Problem::plain("not_found", format!("there is no such {what}")))
    }

    pub(super) fn internal(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Problem::plain("internal", message))
    }

    /// A model or a run that came to no good end.
    pub(super) fn of_end(problem: Problem) -> Self {
        let status = match problem.code.as_str() {
            "run_over_budget" | "model_rate_limited" => StatusCode::TOO_MANY_REQUESTS,
            "model_timeout" => StatusCode::GATEWAY_TIMEOUT,
            "cancelled" | "run_indeterminate" => StatusCode::CONFLICT,
            "forbidden" => StatusCode::FORBIDDEN,
            "unknown_model" => StatusCode::NOT_FOUND,
            "internal" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, problem)
    }

    /// The `error` object.
    pub(super) fn body(&self) -> Value {
        body(self.status, &self.problem, self.param.as_deref())
    }
}

fn body(status: StatusCode, problem: &Problem, param: Option<&str>) -> Value {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let hint = problem.hint.as_deref().map_or_else(String::new, |hint| format!(" ({hint})"));
    json!({ "message": format!("{}{hint}", problem.message), "type": kind, "param": param, "code": problem.code })
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        let status = match error.kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Unrecorded | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        Self { retry_after: error.retry_after, ..Self::new(status, error.problem) }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({ "error": self.body() }))).into_response();
        if let Some(wait) = self.retry_after {
            retry_after(&mut response, wait);
        }
        response
    }
}

/// A refusal of the gate, as these routes tell it.
pub(in super::super) fn told(refused: &Refused) -> Response {
    let (status, problem, wait) = refused.parts();
    let mut response = (status, Json(json!({ "error": body(status, problem, None) }))).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"palyra\""));
    }
    if let Some(wait) = wait.or((status == StatusCode::TOO_MANY_REQUESTS).then_some(Duration::from_secs(5))) {
        retry_after(&mut response, wait);
    }
    response
}

fn retry_after(response: &mut Response, wait: Duration) {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
}
