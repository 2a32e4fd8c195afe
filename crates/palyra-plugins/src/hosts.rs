//! Hosts that a skill may reach: patterns, and what two of them have in common.
//!
//! A pattern is `example.org`, `*.example.org` (everything below, not the name itself), an address, or `localhost`;
//! with `:8443` for one port and `:*` for any. Without a port it stands for 443 and 80. An address and `localhost` need
//! a port. There is no pattern for everything and none for a whole top-level domain. Intersection is exact: what two
//! patterns have in common is one pattern or nothing, so a grant never covers a host that either side left out.

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host as a URL names it: lower case, strictly parsed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern {
    hosts: Hosts,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Hosts {
    One(Host),
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Ports {
    Web,
    One(u16),
    Any,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a host pattern: {why}")]
pub struct HostPatternError {
    given: String,
    why: &'static str,
}

impl FromStr for Host {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("an IPv6 address stands between brackets")?;
            let address = inner.parse::<Ipv6Addr>().map_err(|_| "this is not an IPv6 address")?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        check_name(text)?;
        Ok(Self::Name(text.to_owned()))
    }
}

/// Names are what DNS knows: labels of lower-case letters, digits and hyphens. The last one is no number, so that
/// nothing that a resolver might read as an address passes as a name.
fn check_name(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.len() > 253 {
        return Err("a name has 1 to 253 characters");
    }
    let good = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !text.split('.').all(good) {
        return Err("a name is made of lower-case letters, digits, hyphens and dots");
    }
    let last = text.rsplit('.').next().unwrap_or("");
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err("a name does not end in a number");
    }
    Ok(())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl HostPattern {
    /// Whether it stands for this host and port.
    #[must_use]
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        self.hosts.include(host) && self.ports.include(port)
    }

    /// What both stand for.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let hosts = self.hosts.intersect(&other.hosts)?;
        let ports = self.ports.intersect(other.ports)?;
        Some(Self { hosts, ports })
    }
}

impl Hosts {
    fn include(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::One(one), host) => one == host,
            (Self::Below(top), Host::Name(name)) => is_below(name, top),
            (Self::Below(_), Host::Address(_)) => false,
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::One(one), more) | (more, Self::One(one)) => more.include(one).then(|| Self::One(one.clone())),
            (Self::Below(a), Self::Below(b)) if a == b || is_below(a, b) => Some(Self::Below(a.clone())),
            (Self::Below(a), Self::Below(b)) if is_below(b, a) => Some(Self::Below(b.clone())),
            (Self::Below(_), Self::Below(_)) => None,
        }
    }
}

fn is_below(name: &str, top: &str) -> bool {
    name.strip_suffix(top).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

impl Ports {
    fn include(self, port: u16) -> bool {
        match self {
            Self::Web => port == 443 || port == 80,
            Self::One(one) => one == port,
            Self::Any => true,
        }
    }

    fn intersect(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, ports) | (ports, Self::Any) => Some(ports),
            (Self::Web, Self::Web) => Some(Self::Web),
            (Self::One(one), ports) | (ports, Self::One(one)) => ports.include(one).then_some(Self::One(one)),
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;
    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let refuse = |why| HostPatternError { given: text.chars().take(80).collect(), why };
        let (host, port) = split_port(text);
        let ports = match port {
            None => Ports::Web,
            Some("*") => Ports::Any,
            Some(port) => Ports::One(parse_port(port).ok_or_else(|| refuse("a port is a number from 1 to 65535"))?),
        };
        let hosts = match host.strip_prefix("*.") {
            Some(top) => {
                check_name(top).map_err(refuse)?;
                if !top.contains('.') {
                    return Err(refuse("a whole top-level domain cannot be named"));
                }
                Hosts::Below(top.to_owned())
            }
            None => Hosts::One(host.parse().map_err(refuse)?),
        };
        let special = match &hosts {
            Hosts::One(Host::Address(_)) => true,
            Hosts::One(Host::Name(name)) => name == "localhost",
            Hosts::Below(_) => false,
        };
        if special && !matches!(ports, Ports::One(_)) {
            return Err(refuse("an address, and localhost, need a port"));
        }
        Ok(Self { hosts, ports })
    }
}

/// A host and what stands behind its colon.
pub(crate) fn split_port(text: &str) -> (&str, Option<&str>) {
    let after_brackets = text.rfind(']').map_or(0, |at| at + 1);
    match text[after_brackets..].rfind(':') {
        Some(at) => (&text[..after_brackets + at], Some(&text[after_brackets + at + 1..])),
        None => (text, None),
    }
}

/// A port without leading zeroes.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if digits { text.parse().ok() } else { None }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::One(host) => write!(f, "{host}")?,
            Hosts::Below(top) => write!(f, "*.{top}")?,
        }
        match self.ports {
            Ports::Web => Ok(()),
            Ports::One(port) => write!(f, ":{port}"),
            Ports::Any => f.write_str(":*"),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostPatternError;
    fn try_from(text: String) -> Result<Self, HostPatternError> {
        text.parse()
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap()
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "*",
            "*.org",
            "*.",
            "a b",
            "EXAMPLE.org",
            "example.org:0",
            "example.org:080",
            "example.org:99999",
            "ex..org",
            "-a.org",
            "10.0.0.1",
            "localhost",
            "localhost:*",
            "[::1]",
            "[::1",
            "1.2.3",
            "0x7f.1",
            "example.0x7f",
            "a.org:",
            "*.*.a.org",
            "http://a.org",
            "a.org/x",
            "user@a.org",
        ] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_allow_what_they_say() {
        let name = |text: &str| text.parse::<Host>().unwrap();
        assert!(pattern("example.org").allows(&name("example.org"), 443));
        assert!(!pattern("example.org").allows(&name("example.org"), 8443));
        assert!(!pattern("example.org").allows(&name("a.example.org"), 443));
        assert!(pattern("*.example.org:*").allows(&name("a.b.example.org"), 1));
        assert!(!pattern("*.example.org").allows(&name("example.org"), 443));
        assert!(!pattern("*.example.org").allows(&name("badexample.org"), 443));
        assert!(pattern("[::1]:80").allows(&name("[::1]"), 80));
    }

    #[test]
    fn intersections_are_exact() {
        for (a, b, both) in [
            ("example.org", "example.org:443", Some("example.org:443")),
            ("*.example.org", "api.example.org:*", Some("api.example.org")),
            ("*.example.org", "*.api.example.org", Some("*.api.example.org")),
            ("example.org", "*.example.org", None),
            ("example.org:81", "example.org", None),
            ("10.0.0.1:80", "10.0.0.1:81", None),
        ] {
            assert_eq!(pattern(a).intersect(&pattern(b)), both.map(pattern), "{a} {b}");
        }
    }

    fn any_pattern() -> impl Strategy<Value = HostPattern> {
        let host = prop::sample::select(vec!["a.test", "b.a.test", "*.a.test", "*.b.a.test", "c.b.a.test", "z.test"]);
        let port = prop::sample::select(vec!["", ":443", ":81", ":*"]);
        (host, port).prop_map(|(host, port)| format!("{host}{port}").parse().unwrap())
    }

    proptest! {
        /// What an intersection allows is what both allow.
        #[test]
        fn an_intersection_is_both(a in any_pattern(), b in any_pattern()) {
            let both = a.intersect(&b);
            prop_assert_eq!(&both, &b.intersect(&a));
            for host in ["a.test", "b.a.test", "c.b.a.test", "d.c.b.a.test", "x.a.test", "z.test"] {
                let host: Host = host.parse().unwrap();
                for port in [80, 443, 81, 9] {
                    let expected = a.allows(&host, port) && b.allows(&host, port);
                    prop_assert_eq!(both.as_ref().is_some_and(|both| both.allows(&host, port)), expected);
                }
            }
        }

        #[test]
        fn a_pattern_reads_the_same_again(text in "[a-z*.:0-9\\[\\]-]{0,20}") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
        }
    }
}
