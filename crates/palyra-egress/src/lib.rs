//! What a process or tool may reach over the network, and the proxy that sees to it.
//!
//! ```text
//! client ──HTTP CONNECT, plain HTTP, SOCKS5──▶ proxy: rule? ▶ resolve ▶ address? ▶ connect to that address ▶ bytes ▶ record
//! ```
//!
//! A process in Tier C with rules has no network but this proxy. The proxy alone resolves names, and it connects to the
//! addresses that it has checked. Everything is denied that no [`EgressRule`] allows, and each connection leaves one
//! [`EgressRecord`]. The parsers read hostile bytes: they have limits, take one spelling of everything, and are fuzzed.

#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "the proxy runs on Linux; elsewhere only the rules are asked")
)]

mod address;
mod cancel;
mod credentials;
mod denial;
#[cfg(target_os = "linux")]
mod dial;
#[cfg(target_os = "linux")]
mod fetch;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod host;
mod http;
#[cfg(target_os = "linux")]
mod inspection;
mod path;
#[cfg(target_os = "linux")]
mod proxy;
mod resolve;
mod rule;
mod rules;
mod socks;
mod tls_hello;
#[cfg(target_os = "linux")]
mod wait;

pub use address::special_range;
pub use cancel::{CancelHandle, CancelSignal};
pub use credentials::{AnswerFilter, Attached, Credentials, OutgoingRequest};
pub use denial::{Denial, DenialCode, Denials};
#[cfg(target_os = "linux")]
pub use fetch::{
    FetchError, FetchLimits, FetchRequest, FetchResponse, FetchSink, FetchUrl, FetchWatch, Fetcher, Redirect, Roots,
    UrlError,
};
pub use host::{Host, HostError};
#[cfg(target_os = "linux")]
pub use inspection::{InspectionAuthority, InspectionError};
pub use palyra_protocol::egress::{EgressEnd, EgressProtocol, EgressRecord, EgressVerdict, TlsName};
#[cfg(target_os = "linux")]
pub use proxy::{EgressObserver, Proxy, ProxyError, ProxyLimits, ProxySetup, ProxySummary};
pub use resolve::{Resolve, SystemResolver};
pub use rule::{EgressRule, RuleError, RuleFault};
pub use rules::{EgressRules, Purpose, Target, UnlistedHosts};
