//! The hosts of bindings. A host has one spelling, the one that the proxy uses: lower case, no final dot, addresses as
//! the standard library writes them. Anything else is refused instead of being read in a way that somebody else may not
//! share.

use super::{BindingError, excerpt};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Whether a request is encrypted on its way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// TLS.
    Https,
    /// Plain HTTP: anybody on the way can read the credential.
    Http,
}

impl Scheme {
    const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// A host that a secret is bound to: `api.example.com`, `api.example.com:8443`, `http://localhost:8080`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct BoundHost {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl BoundHost {
    /// Whether TLS is demanded.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The name or address, IPv6 in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for BoundHost {
    type Err = BindingError;
    fn from_str(text: &str) -> Result<Self, BindingError> {
        let error = || BindingError::Host { given: excerpt(text) };
        if text.len() > 300 {
            return Err(error());
        }
        let (scheme, authority) = match text.split_once("://") {
            Some(("https", authority)) => (Scheme::Https, authority),
            Some(("http", authority)) => (Scheme::Http, authority),
            Some(_) => return Err(error()),
            None => (Scheme::Https, text),
        };
        let bracket = authority.find(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[bracket..].split_once(':') {
            Some((_, port)) => (&authority[..authority.len() - port.len() - 1], Some(port)),
            None => (authority, None),
        };
        let port = match port {
            None => scheme.port(),
            Some(port) => {
                let plain = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
                port.parse().ok().filter(|_| plain).ok_or_else(error)?
            }
        };
        if !is_host(host) {
            return Err(error());
        }
        Ok(Self { scheme, host: host.to_owned(), port })
    }
}

/// Whether this is a host in its one spelling.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| Some((inner, inner.parse::<Ipv6Addr>().ok()?)));
        // An IPv4 address in IPv6's clothes is another spelling of one.
        return address.is_some_and(|(text, ip)| ip.to_string() == text && ip.to_ipv4_mapped().is_none());
    }
    if host.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // Some libraries take a name that ends in a number for an address.
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(label) && !number
}

impl fmt::Display for BoundHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme == Scheme::Http {
            f.write_str("http://")?;
        }
        f.write_str(&self.host)?;
        if self.port == self.scheme.port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl TryFrom<String> for BoundHost {
    type Error = BindingError;
    fn try_from(text: String) -> Result<Self, BindingError> {
        text.parse()
    }
}

impl Serialize for BoundHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        let found = text.parse::<BoundHost>().map_or_else(|error| error.code().to_owned(), |host| host.to_string());
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn hosts_have_one_spelling() {
        for same in [
            "api.example.com",
            "api.example.com:8443",
            "http://localhost",
            "http://localhost:8080",
            "127.0.0.1:8443",
            "[::1]:8443",
            "a_b.example",
            "xn--mller-kva.example",
        ] {
            check(same, same);
        }
        check("https://api.example.com:443", "api.example.com");
        check("http://api.example.com:80", "http://api.example.com");
        for bad in [
            "",
            "*",
            "*.example.com",
            "Example.com",
            "example.com.",
            "a..b",
            "-a.example",
            "a b.example",
            "user@example.com",
            "example.com/path",
            "example.com:0",
            "example.com:080",
            "example.com:65536",
            "example.com:443:443",
            "example.com:+443",
            "example.com:",
            "ftp://example.com",
            "127.1",
            "0x7f.1",
            "2130706433",
            "127.0.0.01",
            "[::ffff:127.0.0.1]:80",
            "[0:0::1]:80",
            "[::1",
            "::1",
            "müller.example",
            "example.com\0",
        ] {
            check(bad, "binding_host");
        }
    }

    proptest! {
        #[test]
        fn a_host_that_is_read_reads_the_same_again(text in "(https?://)?[a-z0-9.:\\[\\]_-]{0,30}|\\PC{0,20}") {
            if let Ok(host) = text.parse::<BoundHost>() {
                prop_assert_eq!(host.to_string().parse::<BoundHost>(), Ok(host));
            }
        }
    }
}
