//! `[http]`: the HTTP door.

use crate::http::Port;
use serde::Deserialize;

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawHttp {
    enabled: bool,
    port: Option<u16>,
}

impl Default for RawHttp {
    fn default() -> Self {
        Self { enabled: true, port: None }
    }
}

impl RawHttp {
    /// Where the door is, if it is to be open.
    pub(super) fn validate(self) -> Option<Port> {
        self.enabled.then(|| self.port.map_or(Port::Default, Port::This))
    }
}
