//! Requests to hosts that the grant names.

use crate::ToolError;
use crate::bindings::palyra::skill::http as wit;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request that is being put together.
#[derive(Debug, Clone)]
pub struct Request(wit::Request);

/// A reply, whatever its status.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A request that only looks.
pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

/// A request that brings something.
pub fn post(url: impl Into<String>) -> Request {
    Request::new("POST", url)
}

impl Request {
    /// Any request.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        let (method, url) = (method.into(), url.into());
        Self(wit::Request { method, url, headers: Vec::new(), body: Vec::new(), timeout_ms: None })
    }

    /// One header more.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = body.into();
        self
    }

    /// With this body, as JSON.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn json(self, body: &impl Serialize) -> Result<Self, ToolError> {
        let body = serde_json::to_vec(body).map_err(|error| ToolError::new("invalid_request", error.to_string()))?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// Gives up after this many milliseconds.
    #[must_use]
    pub fn timeout_ms(mut self, ms: u32) -> Self {
        self.0.timeout_ms = Some(ms);
        self
    }

    /// Sends it and waits for the reply.
    ///
    /// # Errors
    /// When it is denied or there is no reply. A reply with an error status is a reply.
    pub fn send(self) -> Result<Reply, ToolError> {
        match wit::send(&self.0) {
            Ok(wit::Response { status, headers, body }) => Ok(Reply { status, headers, body }),
            Err(error) => Err(match error {
                wit::Error::Denied(why) => ToolError::new("http_denied", why),
                wit::Error::Invalid(why) => ToolError::new("http_invalid", why),
                wit::Error::Unreachable(why) => ToolError::new("http_unreachable", why),
                wit::Error::TimedOut => ToolError::new("http_timed_out", "there was no reply in time"),
                wit::Error::TooLarge(most) => {
                    ToolError::new("http_too_large", format!("the reply is larger than {most} bytes"))
                }
            }),
        }
    }
}

impl Reply {
    /// The body as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self) -> Result<&str, ToolError> {
        std::str::from_utf8(&self.body).map_err(|_| ToolError::new("http_not_text", "the reply is not text"))
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is something else.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_slice(&self.body).map_err(|error| ToolError::new("http_not_json", error.to_string()))
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}
