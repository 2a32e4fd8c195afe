//! Answers of the console: fragments of a page, and documents.
//!
//! Templates escape everything for HTML. That does not make text honest: whatever somebody else wrote goes through
//! [`seen`] or [`cut`] first, which make characters visible that reorder or hide text.

use crate::http::Refused;
use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use palyra_protocol::display::safe;
use palyra_protocol::review::utc;
use palyra_protocol::{Problem, Timestamp};
use serde::Serialize;
use std::fmt;

/// A fragment of a page.
pub(super) fn fragment(template: &impl Template) -> Result<Response, Refused> {
    let text = template.render().map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a page cannot be rendered");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, Problem::plain("internal", "the page cannot be rendered"))
    })?;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, html)], text).into_response())
}

/// A document.
pub(super) fn document<T: Serialize>(document: &T) -> Result<Response, Refused> {
    let text = serde_json::to_vec(document).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a record has no document");
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, Problem::plain("internal", "a record cannot be told"))
    })?;
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], text).into_response())
}

/// Somebody else's text on one line, with everything that could deceive made visible.
pub(super) fn seen(text: impl AsRef<str>) -> String {
    safe(text.as_ref())
}

/// The beginning of somebody else's text.
pub(super) fn cut(text: &str, most: usize) -> String {
    let mut kept: String = text.chars().take(most).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    safe(&kept)
}

/// A time as an element that the page puts into the reader's own zone. Templates take it as it is: it consists of
/// digits alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct When(pub(super) Timestamp);

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<time data-ms=\"{}\">{}</time>", self.0.unix_ms(), utc(self.0))
    }
}
