//! What is kept of each connection to another host, allowed or denied.
//!
//! The record is made once, when the connection has ended, from what really happened: the address that was connected
//! to, the bytes that were moved. A query string may hold secrets and is left out.

use crate::clock::Timestamp;
use crate::vault::SecretRef;
use serde::{Deserialize, Serialize};

/// How a client spoke to the proxy, or that no proxy was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EgressProtocol {
    /// An HTTP tunnel.
    HttpConnect,
    /// A plain HTTP request.
    Http,
    /// A request of our own over TLS.
    Https,
    /// A SOCKS5 tunnel.
    Socks5,
    /// It never became clear.
    Unknown,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressVerdict {
    /// A rule allowed it.
    Allowed,
    /// It was refused; `code` says why.
    Denied,
}

impl EgressVerdict {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

/// What the TLS greeting in a tunnel showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TlsName {
    /// It was for the host that the tunnel was opened for.
    Matched,
    /// It named no host; the address was pinned all the same.
    Absent,
    /// The stream is not TLS.
    NotTls,
}

/// How a connection came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EgressEnd {
    /// Both sides were done.
    Closed,
    /// It was refused.
    Refused,
    /// The name could not be resolved.
    ResolveFailed,
    /// None of its addresses answered.
    ConnectFailed,
    /// Nothing moved for too long.
    IdleTimeout,
    /// The run ended first.
    Stopped,
    /// The client vanished or broke off.
    ClientError,
    /// The server vanished, broke off or answered nonsense.
    ServerError,
}

impl EgressEnd {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::ResolveFailed => "resolve_failed",
            Self::ConnectFailed => "connect_failed",
            Self::IdleTimeout => "idle_timeout",
            Self::Stopped => "stopped",
            Self::ClientError => "client_error",
            Self::ServerError => "server_error",
        }
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRecord {
    /// When it came in, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// How it was asked for.
    pub protocol: EgressProtocol,
    /// The host that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The method of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of a request, without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The address that was connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What was decided.
    pub verdict: EgressVerdict,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The rule that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the TLS greeting showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsName>,
    /// The secrets that the proxy attached to the request, by reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<SecretRef>,
    /// Bytes that went to the server.
    pub bytes_sent: u64,
    /// Bytes that came from it.
    pub bytes_received: u64,
    /// How long it lasted.
    pub duration_ms: u64,
    /// How it ended.
    pub ended: EgressEnd,
    /// How many connections this record stands for: more than one only where a flood was refused.
    pub count: u64,
}

impl EgressRecord {
    /// A connection of which nothing is known yet: refused, until something allows it.
    #[must_use]
    pub fn new(protocol: EgressProtocol, started_at: Timestamp) -> Self {
        Self {
            started_at_ms: started_at.unix_ms(),
            protocol,
            host: None,
            port: None,
            method: None,
            path: None,
            address: None,
            verdict: EgressVerdict::Denied,
            code: None,
            rule: None,
            tls: None,
            credentials: Vec::new(),
            bytes_sent: 0,
            bytes_received: 0,
            duration_ms: 0,
            ended: EgressEnd::Refused,
            count: 1,
        }
    }
}
