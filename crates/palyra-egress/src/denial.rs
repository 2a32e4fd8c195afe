//! The denial of a connection: a code, a message and a hint for its client.
//!
//! The reader is an agent that sees one failed request. A denial therefore names the host, what was missing and what to
//! ask for; a bare 403 looks like a broken network and is retried for ever.

use serde::Serialize;
use std::fmt;

/// Why a connection was refused; the words are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DenialCode {
    /// No rule allows it.
    EgressDenied,
    /// The rules allow it; whoever decides about calls does not.
    PolicyDenied,
    /// The name leads to an address that no rule names.
    AddressDenied,
    /// A path that servers read differently, where the rule names a path.
    AmbiguousPath,
    /// The name in the TLS greeting is not the one the connection was opened for.
    SniMismatch,
    /// The plain HTTP request at the beginning of a tunnel is not clearly for the host the tunnel was opened for.
    HostMismatch,
    /// The TLS greeting cannot be read.
    BadTlsHello,
    /// The request cannot be read, or could be read in two ways.
    BadRequest,
    /// The request is too large.
    RequestTooLarge,
    /// The request did not arrive in time.
    RequestTimeout,
    /// Too many connections at once, or over the whole run.
    TooManyConnections,
    /// A request that concerns a binding which does not cover it.
    CredentialEndpointMismatch,
    /// Something that cannot be looked at, on its way to a host that credentials are bound to.
    CredentialProtocolRefused,
}

impl DenialCode {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EgressDenied => "egress_denied",
            Self::PolicyDenied => "policy_denied",
            Self::AddressDenied => "address_denied",
            Self::AmbiguousPath => "ambiguous_path",
            Self::SniMismatch => "sni_mismatch",
            Self::HostMismatch => "host_mismatch",
            Self::BadTlsHello => "bad_tls_hello",
            Self::BadRequest => "bad_request",
            Self::RequestTooLarge => "request_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::TooManyConnections => "too_many_connections",
            Self::CredentialEndpointMismatch => "credential_endpoint_mismatch",
            Self::CredentialProtocolRefused => "credential_protocol_refused",
        }
    }
}

impl fmt::Display for DenialCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal that says what would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    /// Why, as a word.
    pub code: DenialCode,
    /// The host that was asked for, if it got that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Why, as a sentence.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl Denial {
    /// A refusal of something that never named a host.
    pub(super) fn unreadable(code: DenialCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, host: None, port: None, message: message.into(), hint: hint.into() }
    }

    /// A refusal of a host.
    #[must_use]
    pub fn of(
        code: DenialCode,
        (host, port): (impl fmt::Display, u16),
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { code, host: Some(host.to_string()), port: Some(port), message: message.into(), hint: hint.into() }
    }
}

/// The different refusals of one run, as many as somebody would read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Denials {
    /// The first that differ.
    pub denials: Vec<Denial>,
    /// Refused connections besides, of which none is like one of those.
    #[serde(skip_serializing_if = "is_zero")]
    pub further_denials: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Denials {
    /// No more than this are told apart.
    pub const MOST: usize = 16;

    /// Adds one, if it is new.
    pub(super) fn add(&mut self, denial: &Denial) {
        if self.denials.contains(denial) {
            return;
        }
        if self.denials.len() < Self::MOST {
            self.denials.push(denial.clone());
        } else {
            self.further_denials += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_told_once_and_not_without_end() {
        let mut denials = Denials::default();
        let denial = |n: u16| Denial::of(DenialCode::EgressDenied, (format!("h{n}.test"), 443), "no rule", "ask");
        for _ in 0..3 {
            (0..20).for_each(|n| denials.add(&denial(n)));
        }
        assert_eq!((denials.denials.len(), denials.further_denials), (Denials::MOST, 12));
        let told = serde_json::to_value(&denials).unwrap();
        let first = serde_json::json!({ "code": "egress_denied", "host": "h0.test", "port": 443, "message": "no rule", "hint": "ask" });
        assert_eq!(told["denials"][0], first);
    }
}
