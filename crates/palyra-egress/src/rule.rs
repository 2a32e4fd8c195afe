//! One rule of the allow-list: who may be spoken to.
//!
//! ```text
//! example.org                        ports 443 and 80
//! example.org:8443   example.org:*   that port, any port
//! *.example.org                      any name below example.org, not example.org itself
//! 10.1.2.3:443  [fd12::1]:443        one address, always with a port
//! localhost:8080                     one port of this machine
//! http://example.org/status          plain HTTP only: this path
//! GET http://example.org/api/*       plain HTTP only: this method, everything below this path
//! ```
//!
//! A rule says exactly what it says: there is no rule for everything, none for a whole top-level domain, and none that
//! reaches a special address by anything but its number.

use super::address::is_unusable;
use super::host::{Host, HostError, parse_port, shown, split_port};
use super::path::{MAX_RULE_PATH, MAX_RULE_SEGMENTS, ambiguity};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

const MAX_RULE: usize = 2048;

/// One rule of the allow-list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EgressRule {
    pub(super) host: HostPattern,
    pub(super) ports: Ports,
    /// Set for a rule that speaks of plain HTTP alone.
    pub(super) http: Option<HttpScope>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum HostPattern {
    Exactly(Host),
    /// Any name that ends in a dot and this.
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ports {
    /// 443 and 80; 80 alone for plain HTTP.
    Web,
    One(u16),
    Any,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HttpScope {
    pub(super) method: Option<String>,
    pub(super) path: PathPattern,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum PathPattern {
    Any,
    Exactly(String),
    /// Ends in `/`.
    Below(String),
}

/// Why a rule cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the egress rule `{rule}` cannot be used: {fault} (at character {at})")]
pub struct RuleError {
    /// The rule, as far as it can be shown.
    pub rule: String,
    /// The character that is the trouble, counted from 1.
    pub at: usize,
    /// What is wrong, and what to write instead.
    pub fault: RuleFault,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// Nothing, or far too much.
    #[error("a rule is 1 to {MAX_RULE} characters")]
    Length,
    /// Everything would be allowed.
    #[error("`*` would allow every host; name the hosts, or set egress to `none` and say so")]
    Everything,
    /// A whole top-level domain would be allowed.
    #[error("a wildcard needs at least two names after it, as in `*.example.org`")]
    TooWide,
    /// A `*` somewhere else.
    #[error("`*` stands at the beginning of a host, as a port, or as the last part of a path; nowhere else")]
    Wildcard,
    /// The host is none.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The port is none.
    #[error("a port is a number from 1 to 65535, or `*`")]
    Port,
    /// An address or localhost without a port.
    #[error("an address and `localhost` need a port, as in `{0}:8080`")]
    PortNeeded(String),
    /// An address that nobody can be reached at.
    #[error("an unspecified, multicast or broadcast address is no host")]
    Unusable,
    /// A name below localhost.
    #[error("this machine is written `localhost:PORT`")]
    BelowLocalhost,
    /// A scheme other than http.
    #[error("only `http://` can be limited to methods and paths, since TLS hides them; for `https` write `{0}`")]
    Scheme(String),
    /// A method without a URL.
    #[error("a method goes with a URL, as in `GET http://example.org/api/*`")]
    Method,
    /// A path without a scheme.
    #[error("a path goes with `http://`, as in `http://example.org/api/*`")]
    PathAlone,
    /// A path that servers read differently.
    #[error("the path is ambiguous: {0}")]
    Path(&'static str),
    /// A path that is too long.
    #[error("a path has at most {MAX_RULE_PATH} characters and {MAX_RULE_SEGMENTS} parts")]
    PathLength,
    /// A query, fragment or user name.
    #[error("a rule has no user name, query or fragment")]
    Extra,
}

impl FromStr for EgressRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse(text).map_err(|(at, fault)| RuleError {
            rule: shown(text),
            at: text.get(..at).map_or(at, |before| before.chars().count()) + 1,
            fault,
        })
    }
}

type Fault = (usize, RuleFault);

fn parse(text: &str) -> Result<EgressRule, Fault> {
    if text.is_empty() || text.len() > MAX_RULE {
        return Err((0, RuleFault::Length));
    }
    let (method, start) = match text.split_once(' ') {
        Some((method, _)) => (Some(parse_method(method)?), method.len() + 1),
        None => (None, 0),
    };
    let rest = &text[start..];
    match rest.split_once("://") {
        Some((scheme, after)) => {
            let at = start + scheme.len() + 3;
            if !scheme.eq_ignore_ascii_case("http") {
                let host = after.split(['/', '?', '#']).next().unwrap_or(after);
                return Err((start, RuleFault::Scheme(shown(host))));
            }
            parse_url(after, at, method)
        }
        None if method.is_some() => Err((start, RuleFault::Method)),
        None => match rest.find(['/', '?', '#', '@']) {
            Some(at) if rest[at..].starts_with('/') => Err((at, RuleFault::PathAlone)),
            Some(at) => Err((at, RuleFault::Extra)),
            None => {
                let (host, ports) = parse_authority(rest, 0)?;
                Ok(EgressRule { host, ports, http: None })
            }
        },
    }
}

fn parse_method(text: &str) -> Result<String, Fault> {
    let word = (1..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
    if word && text != "CONNECT" { Ok(text.to_owned()) } else { Err((0, RuleFault::Method)) }
}

fn parse_url(text: &str, start: usize, method: Option<String>) -> Result<EgressRule, Fault> {
    if let Some(at) = text.find(['?', '#', '@']) {
        return Err((start + at, RuleFault::Extra));
    }
    let slash = text.find('/').unwrap_or(text.len());
    let (host, ports) = parse_authority(&text[..slash], start)?;
    let path = parse_path(&text[slash..]).map_err(|fault| (start + slash, fault))?;
    Ok(EgressRule { host, ports, http: Some(HttpScope { method, path }) })
}

fn parse_path(text: &str) -> Result<PathPattern, RuleFault> {
    let (fixed, below) = match text.strip_suffix("/*") {
        Some(prefix) => (format!("{prefix}/"), true),
        None => (text.to_owned(), false),
    };
    if fixed.contains('*') {
        return Err(RuleFault::Wildcard);
    }
    if fixed.len() > MAX_RULE_PATH || fixed.matches('/').count() > MAX_RULE_SEGMENTS {
        return Err(RuleFault::PathLength);
    }
    match (fixed.as_str(), below) {
        ("", _) | ("/", true) => Ok(PathPattern::Any),
        _ => match ambiguity(&fixed) {
            Some(reason) => Err(RuleFault::Path(reason)),
            None if below => Ok(PathPattern::Below(fixed)),
            None => Ok(PathPattern::Exactly(fixed)),
        },
    }
}

fn parse_authority(text: &str, start: usize) -> Result<(HostPattern, Ports), Fault> {
    let (host, port) = split_port(text);
    let ports = match port {
        None => Ports::Web,
        Some("*") => Ports::Any,
        Some(port) => Ports::One(parse_port(port).ok_or((start + host.len() + 1, RuleFault::Port))?),
    };
    let pattern = parse_host(host).map_err(|fault| (start, fault))?;
    let exact_port = matches!(ports, Ports::One(_));
    match &pattern {
        HostPattern::Exactly(Host::Ip(address)) if is_unusable(*address) => Err((start, RuleFault::Unusable)),
        HostPattern::Exactly(host) if !exact_port && (matches!(host, Host::Ip(_)) || is_localhost(host)) => {
            Err((start, RuleFault::PortNeeded(host.to_string())))
        }
        _ => Ok((pattern, ports)),
    }
}

fn parse_host(text: &str) -> Result<HostPattern, RuleFault> {
    if text == "*" {
        return Err(RuleFault::Everything);
    }
    let (name, below) = match text.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (text, false),
    };
    if name.contains('*') {
        return Err(RuleFault::Wildcard);
    }
    match (Host::parse(name)?, below) {
        (Host::Name(name), _) if name.ends_with(".localhost") => Err(RuleFault::BelowLocalhost),
        (host, false) => Ok(HostPattern::Exactly(host)),
        (Host::Name(name), true) if name.contains('.') => Ok(HostPattern::Below(name)),
        (_, true) => Err(RuleFault::TooWide),
    }
}

impl HostPattern {
    pub(super) fn fits(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exactly(listed), host) => listed == host,
            (Self::Below(parent), Host::Name(name)) => {
                name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            (Self::Below(_), Host::Ip(_)) => false,
        }
    }
}

pub(super) fn is_localhost(host: &Host) -> bool {
    matches!(host, Host::Name(name) if name == "localhost")
}

impl EgressRule {
    /// The ports this rule stands for; nothing for any.
    pub(super) fn port_list(&self) -> Vec<Option<u16>> {
        match (self.ports, &self.http) {
            (Ports::Web, None) => vec![Some(443), Some(80)],
            (Ports::Web, Some(_)) => vec![Some(80)],
            (Ports::One(port), _) => vec![Some(port)],
            (Ports::Any, _) => vec![None],
        }
    }

    /// The hosts this rule stands for: localhost is also its two usual addresses.
    pub(super) fn host_list(&self) -> Vec<HostPattern> {
        let mut hosts = vec![self.host.clone()];
        if let HostPattern::Exactly(host) = &self.host
            && is_localhost(host)
        {
            let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16])];
            hosts.extend(loopback.map(|address| HostPattern::Exactly(Host::Ip(address))));
        }
        hosts
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(http) = &self.http {
            if let Some(method) = &http.method {
                write!(f, "{method} ")?;
            }
            f.write_str("http://")?;
        }
        match &self.host {
            HostPattern::Exactly(host) => write!(f, "{host}")?,
            HostPattern::Below(name) => write!(f, "*.{name}")?,
        }
        match self.ports {
            Ports::Web => {}
            Ports::One(port) => write!(f, ":{port}")?,
            Ports::Any => f.write_str(":*")?,
        }
        match self.http.as_ref().map(|http| &http.path) {
            None | Some(PathPattern::Any) => Ok(()),
            Some(PathPattern::Exactly(path)) => f.write_str(path),
            Some(PathPattern::Below(prefix)) => write!(f, "{prefix}*"),
        }
    }
}

impl Serialize for EgressRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EgressRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        let found = match text.parse::<EgressRule>() {
            Ok(rule) => rule.to_string(),
            Err(error) => {
                format!("{} {}", error.at, format!("{:?}", error.fault).split(['(', ' ']).next().unwrap_or(""))
            }
        };
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn rules_are_read() {
        for same in [
            "example.org",
            "*.example.org",
            "example.org:8443",
            "example.org:*",
            "*.example.org:22",
            "localhost:8080",
            "127.0.0.1:80",
            "[::1]:8080",
            "http://example.org",
            "http://example.org:8080/",
            "GET http://example.org/api/*",
            "POST http://*.example.org:*/a/b",
            "http://localhost:80/x",
            "169.254.169.254:80",
        ] {
            check(same, same);
        }
        check("Example.ORG.", "example.org");
        check("HTTP://Example.org/*", "http://example.org");
        check("*.EXAMPLE.org:443", "*.example.org:443");
    }

    #[test]
    fn a_refused_rule_says_where_and_why() {
        check("", "1 Length");
        check("*", "1 Everything");
        check("*:443", "1 Everything");
        check("*.com", "1 TooWide");
        check("*.com.", "1 TooWide");
        check("*.localhost", "1 TooWide");
        check("foo.localhost:1", "1 BelowLocalhost");
        check("*.*.example.org", "1 Wildcard");
        check("ex*mple.org", "1 Wildcard");
        check("*.127.0.0.1:80", "1 TooWide");
        check("example.org:0", "13 Port");
        check("example.org:http", "13 Port");
        check("example.org:80:80", "13 Port");
        check("localhost", "1 PortNeeded");
        check("localhost:*", "1 PortNeeded");
        check("127.0.0.1", "1 PortNeeded");
        check("[::1]:*", "1 PortNeeded");
        check("http://127.0.0.1/x", "8 PortNeeded");
        check("0.0.0.0:80", "1 Unusable");
        check("[ff02::1]:80", "1 Unusable");
        check("127.1:80", "1 Host");
        check("[::ffff:10.0.0.1]:80", "1 Host");
        check("10.0.0.0/8", "9 PathAlone");
        check("https://example.org/x", "1 Scheme");
        check("GET https://example.org/x", "5 Scheme");
        check("GET example.org", "5 Method");
        check("get http://example.org", "1 Method");
        check("CONNECT http://example.org", "1 Method");
        check("example.org/x", "12 PathAlone");
        check("user@example.org", "5 Extra");
        check("http://a@example.org/", "9 Extra");
        check("http://example.org/x?y", "21 Extra");
        check("http://example.org/../x", "19 Path");
        check("http://example.org/a*", "19 Wildcard");
        check("http://example.org/*/a", "19 Wildcard");
        check("http://", "8 Host");
        check("müller.example", "1 Host");
    }

    #[test]
    fn rules_travel_as_text() {
        let rule: EgressRule = serde_json::from_str("\"*.Example.org\"").unwrap();
        assert_eq!(serde_json::to_string(&rule).unwrap(), "\"*.example.org\"");
        let error = serde_json::from_str::<EgressRule>("\"*\"").unwrap_err().to_string();
        assert!(error.contains("would allow every host"), "{error}");
    }

    proptest! {
        #[test]
        fn a_rule_that_is_read_reads_the_same_again(text in "[\\PC]{0,40}|(GET )?(http://)?(\\*\\.)?[a-z0-9.*:/\\[\\]-]{0,30}") {
            if let Ok(rule) = text.parse::<EgressRule>() {
                prop_assert_eq!(rule.to_string().parse::<EgressRule>(), Ok(rule));
            }
        }
    }
}
