//! Host names and addresses as rules and clients write them.
//!
//! A name is compared as bytes, so there is one spelling for each: ASCII, lower case, no final dot. Whatever a resolver
//! might read in a second way is refused before anybody asks one: `127.1`, `0x7f.1` and `2130706433` are an address to
//! some libraries and a name to others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name that DNS can carry.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host: a name in its one spelling, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name: ASCII, lower case, no final dot.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

/// Why something is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is nothing.
    #[error("the host is empty")]
    Empty,
    /// Longer than a name can be.
    #[error("the host is longer than {MAX_NAME} characters")]
    TooLong,
    /// A part between dots is empty or too long.
    #[error("the part `{0}` of the host is empty, longer than {MAX_LABEL} characters, or begins or ends with `-`")]
    Label(String),
    /// A character that no host name has.
    #[error(
        "the host holds {0:?}; names are ASCII letters, digits, `-`, `_` and dots: write a name in another script as `xn--…`"
    )]
    Character(char),
    /// Some libraries read it as an address, others as a name.
    #[error("`{0}` is an ambiguous spelling of an address; write four decimal numbers without leading zeros")]
    AmbiguousAddress(String),
    /// Brackets without an IPv6 address between them.
    #[error("`{0}` is not an IPv6 address in brackets")]
    Brackets(String),
    /// An IPv4 address in IPv6's clothes.
    #[error("`{0}` is an IPv4 address written as IPv6; write it as IPv4")]
    MappedAddress(String),
}

impl Host {
    /// Reads a host as it stands in a URL or a rule: IPv6 addresses in brackets.
    ///
    /// # Errors
    /// When it is no host, or could be read in two ways.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            let address = address.ok_or_else(|| HostError::Brackets(shown(text)))?;
            return Self::from_v6(address);
        }
        if let Some(odd) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))) {
            return Err(HostError::Character(odd));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() > MAX_NAME {
            return Err(HostError::TooLong);
        }
        if ends_in_number(&name) {
            // `Ipv4Addr` takes four decimal numbers without leading zeros and nothing else.
            let address = name.parse::<Ipv4Addr>().map_err(|_| HostError::AmbiguousAddress(shown(text)))?;
            return Ok(Self::Ip(address.into()));
        }
        for label in name.split('.') {
            if label.is_empty() || label.len() > MAX_LABEL || label.starts_with('-') || label.ends_with('-') {
                return Err(HostError::Label(label.to_owned()));
            }
        }
        Ok(Self::Name(name))
    }

    /// An address that came as bytes.
    ///
    /// # Errors
    /// When it is an IPv4 address in IPv6's clothes.
    pub fn from_v6(address: Ipv6Addr) -> Result<Self, HostError> {
        match address.to_ipv4_mapped() {
            Some(_) => Err(HostError::MappedAddress(address.to_string())),
            None => Ok(Self::Ip(address.into())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Whether the last label makes libraries think of an address.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or("");
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
}

/// Hostile text, cut to what a message can bear.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_default).collect()
}

/// Splits `host:port` or `host`; an IPv6 address is in brackets.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    let bracket = authority.find(']').map_or(0, |at| at + 1);
    match authority[bracket..].find(':') {
        Some(colon) => (&authority[..bracket + colon], Some(&authority[bracket + colon + 1..])),
        None => (authority, None),
    }
}

/// Reads a port: digits alone, no sign, no leading zero, not 0.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        let found = match Host::parse(text) {
            Ok(host) => host.to_string(),
            Err(error) => format!("{error:?}").split(['(', ' ']).next().unwrap_or("").to_owned(),
        };
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn names_have_one_spelling() {
        check("Example.ORG.", "example.org");
        check("a_b.example.org", "a_b.example.org");
        check("xn--mller-kva.example", "xn--mller-kva.example");
        check("", "Empty");
        check(".", "Label");
        check("example..org", "Label");
        check("example.org..", "Label");
        check("-a.example", "Label");
        check("müller.example", "Character");
        check("a b.example", "Character");
        check("user@example.org", "Character");
        check("example.org%00.test", "Character");
        check("例え.test", "Character");
        check(&"a.".repeat(200), "TooLong");
    }

    #[test]
    fn odd_spellings_of_addresses_are_refused() {
        check("127.0.0.1", "127.0.0.1");
        check("127.0.0.1.", "127.0.0.1");
        check("[::1]", "[::1]");
        for odd in
            ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.01", "0x7f000001", "1.2.3.4.5", "256.1.1.1", "0x"]
        {
            check(odd, "AmbiguousAddress");
        }
        check("a.0x7f", "AmbiguousAddress");
        check("[::ffff:127.0.0.1]", "MappedAddress");
        check("[::1", "Brackets");
        check("[fe80::1%eth0]", "Brackets");
        check("::1", "Character");
    }

    #[test]
    fn ports() {
        assert_eq!(split_port("[::1]:80"), ("[::1]", Some("80")));
        assert_eq!(split_port("a:b:c"), ("a", Some("b:c")));
        for bad in ["", "0", "080", "+80", "65536", "8 0", "80a"] {
            assert_eq!(parse_port(bad), None, "{bad}");
        }
        assert_eq!(parse_port("65535"), Some(65535));
    }

    proptest! {
        #[test]
        fn a_host_that_is_read_reads_the_same_again(text in "[\\PC]{0,40}|[0-9a-fxA-F.:\\[\\]-]{0,30}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
            }
        }
    }
}
