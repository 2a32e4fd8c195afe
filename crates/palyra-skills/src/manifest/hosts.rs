//! The hosts that a skill asks to reach, in the spelling that egress rules use.
//!
//! ```text
//! example.org                        ports 443 and 80
//! example.org:8443                   that port
//! example.org:*                      any port: a wildcard
//! *.example.org                      any name below example.org: a wildcard
//! 10.1.2.3:443  [fd12::1]:443        one address, always with a port
//! ```
//!
//! There is no entry for every host: the daemon could not grant it.

use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// One entry of the egress allow-list, in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EgressHost {
    host: String,
    below: bool,
    port: Port,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Port {
    Web,
    One(u16),
    Any,
}

impl EgressHost {
    /// Whether it stands for more than one host or for every port.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.below || self.port == Port::Any
    }

    /// Whether everything that `other` reaches is reached by this one too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let name = self.host == other.host && self.below == other.below
            || self.below && other.host.strip_suffix(&self.host).is_some_and(|head| head.ends_with('.'));
        let port = match (self.port, other.port) {
            (Port::Any, _) => true,
            (Port::Web, Port::One(443 | 80)) => true,
            (mine, theirs) => mine == theirs,
        };
        name && port
    }

    /// Whether a skill that asks for `asked` could reach something that this entry stands for. Without a port, this
    /// entry stands for every port: whoever forbids a host means the host.
    #[must_use]
    pub fn forbids(&self, asked: &Self) -> bool {
        let any_port = |host: &Self| Self { port: Port::Any, ..host.clone() };
        let names = any_port(self).covers(&any_port(asked)) || any_port(asked).covers(&any_port(self));
        let ports = match (self.port, asked.port) {
            (Port::One(mine), Port::One(theirs)) => mine == theirs,
            (Port::One(mine), Port::Web) => matches!(mine, 443 | 80),
            _ => true,
        };
        names && ports
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = split_port(text);
        let port = match port {
            None => Port::Web,
            Some("*") => Port::Any,
            Some(digits) => Port::One(parse_port(digits).ok_or("a port is a number from 1 to 65535, or `*`")?),
        };
        let (name, below) = host.strip_prefix("*.").map_or((host, false), |name| (name, true));
        if host == "*" {
            return Err("no skill can be granted every host; name the hosts");
        }
        if name.contains('*') {
            return Err("`*` stands at the beginning of a host or as the port, nowhere else");
        }
        let (host, is_address) = parse_host(name)?;
        if is_address && (below || !matches!(port, Port::One(_))) {
            return Err("an address stands alone and has a port, as in `10.1.2.3:443`");
        }
        if below && !host.contains('.') {
            return Err("a wildcard needs at least two names after it, as in `*.example.org`");
        }
        let local = host == "localhost" || host.ends_with(".localhost");
        if local && (below || !matches!(port, Port::One(_))) {
            return Err("`localhost` needs a port, as in `localhost:8080`");
        }
        Ok(Self { host, below, port })
    }
}

impl fmt::Display for EgressHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        match self.port {
            Port::Web => write!(f, "{below}{}", self.host),
            Port::One(port) => write!(f, "{below}{}:{port}", self.host),
            Port::Any => write!(f, "{below}{}:*", self.host),
        }
    }
}

impl Serialize for EgressHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rfind(':') {
        // The colons of an address in brackets are its own.
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    }
}

fn parse_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

/// A host in its one spelling, and whether it is an address.
fn parse_host(text: &str) -> Result<(String, bool), &'static str> {
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        let address = address.filter(|address| address.to_ipv4_mapped().is_none());
        return address.map(|a| (format!("[{a}]"), true)).ok_or("this is no IPv6 address in brackets");
    }
    if text.is_empty() || text.len() > MAX_NAME {
        return Err("a host is 1 to 253 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Err("a host is ASCII letters, digits, `-`, `_` and dots, without a scheme or a path");
    }
    let name = text.to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
        // `Ipv4Addr` takes four decimal numbers without leading zeros and nothing else.
        return match name.parse::<Ipv4Addr>() {
            Ok(address) => Ok((address.to_string(), true)),
            Err(_) => Err("this is an ambiguous spelling of an address"),
        };
    }
    let good = |label: &str| (1..=MAX_LABEL).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
    if name.split('.').all(good) {
        Ok((name, false))
    } else {
        Err("a part of the host is empty, too long, or begins or ends with `-`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_spelling() {
        for (text, shown, wildcard) in [
            ("Example.ORG", "example.org", false),
            ("example.org:8443", "example.org:8443", false),
            ("example.org:*", "example.org:*", true),
            ("*.example.org", "*.example.org", true),
            ("10.1.2.3:443", "10.1.2.3:443", false),
            ("[fd12::1]:443", "[fd12::1]:443", false),
            ("localhost:8080", "localhost:8080", false),
        ] {
            let host = EgressHost::parse(text).unwrap();
            assert_eq!((host.to_string().as_str(), host.is_wildcard()), (shown, wildcard));
            assert_eq!(EgressHost::parse(shown).as_ref(), Ok(&host));
        }
        for bad in [
            "",
            "*",
            "*:443",
            "*.org",
            "a.*.org",
            "https://a.org",
            "a.org/x",
            "a.org:0",
            "a.org:99999",
            "a.org:",
            "127.1:80",
            "0x7f.1:80",
            "2130706433:80",
            "10.1.2.3",
            "[fd12::1]",
            "[::ffff:1.2.3.4]:80",
            "localhost",
            "*.localhost:80",
            "-a.org",
            "a..org",
            "user@a.org",
            "é.org",
            "a.org.",
        ] {
            assert!(EgressHost::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_forbidden_host_is_forbidden_on_every_port() {
        let host = |text: &str| EgressHost::parse(text).unwrap();
        for (forbidden, asked, clash) in [
            ("x.a.org", "x.a.org:8443", true),
            ("x.a.org", "*.a.org", true),
            ("*.a.org", "x.a.org:1", true),
            ("*.a.org", "a.org", false),
            ("x.a.org:443", "x.a.org", true),
            ("x.a.org:8443", "x.a.org", false),
            ("x.a.org:8443", "x.a.org:*", true),
            ("x.a.org", "y.a.org", false),
        ] {
            assert_eq!(host(forbidden).forbids(&host(asked)), clash, "{forbidden} {asked}");
        }
    }

    #[test]
    fn wider_entries_cover_narrower_ones() {
        let host = |text: &str| EgressHost::parse(text).unwrap();
        for (wide, narrow, covers) in [
            ("*.a.org", "x.a.org", true),
            ("*.a.org", "*.x.a.org", true),
            ("*.a.org", "a.org", false),
            ("*.a.org", "xa.org", false),
            ("x.a.org", "*.a.org", false),
            ("a.org", "a.org:443", true),
            ("a.org", "a.org:8443", false),
            ("a.org:*", "a.org", true),
            ("a.org", "a.org:*", false),
        ] {
            assert_eq!(host(wide).covers(&host(narrow)), covers, "{wide} {narrow}");
        }
    }
}
