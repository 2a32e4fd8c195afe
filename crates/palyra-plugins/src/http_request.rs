//! Requests that guests send, checked before any door sees them.
//!
//! The URL is read strictly: scheme, host, port, path and query, all in printable ASCII, nothing that two readers could
//! take for different hosts. Fields that belong to the connection are refused, because the door writes them itself.

use crate::hosts::{Host, parse_port, split_port};
use palyra_protocol::{Digest, DigestBuilder};
use std::fmt::Write as _;

pub(crate) const MOST_URL_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 128;
const MOST_HEADER_BYTES: usize = 32 << 10;

/// Fields that the door writes, or that would change what the connection is.
const CONNECTION_FIELDS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// One request of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    method: String,
    secure: bool,
    host: Host,
    port: u16,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpRequest {
    /// Checks what a guest wants to send.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn new(method: &str, url: &str, headers: Vec<(String, String)>, body: Vec<u8>) -> Result<Self, String> {
        let url = Url::parse(url)?;
        check_method(method)?;
        let headers = check_headers(headers)?;
        let Url { secure, host, port, target } = url;
        Ok(Self { method: method.to_owned(), secure, host, port, target, headers, body })
    }

    /// `GET`, `POST`, …
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Whether it goes over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, also where the URL leaves it out.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query; begins with `/`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Names in lower case, and values, in the guest's order.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The body; empty for none.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The URL as it was understood.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, usual) = if self.secure { ("https", 443) } else { ("http", 80) };
        let mut url = format!("{scheme}://{}", self.host);
        if self.port != usual {
            // Writing to a string cannot fail.
            let _infallible = write!(url, ":{}", self.port);
        }
        url.push_str(&self.target);
        url
    }

    /// What a record knows a request by.
    pub(crate) fn digest(&self) -> Digest {
        let digest = DigestBuilder::new("palyra.plugins.http.v1")
            .field(self.method.as_bytes())
            .field(self.url().as_bytes())
            .number(self.headers.len() as u64);
        let named = self.headers.iter();
        named
            .fold(digest, |digest, (name, value)| digest.field(name.as_bytes()).field(value.as_bytes()))
            .field(&self.body)
            .finish()
    }
}

struct Url {
    secure: bool,
    host: Host,
    port: u16,
    target: String,
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_URL_BYTES {
            return Err(format!("a URL has at most {MOST_URL_BYTES} bytes"));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&b)) {
            return Err("a URL is made of printable ASCII; everything else is written as %XX".to_owned());
        }
        let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
        let (secure, rest) = if lower.starts_with("https://") {
            (true, &text[8..])
        } else if lower.starts_with("http://") {
            (false, &text[7..])
        } else {
            return Err("a URL begins with https:// or http://".to_owned());
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err("a URL holds no user name or password".to_owned());
        }
        let authority = authority.to_ascii_lowercase();
        let (host, port) = split_port(&authority);
        let host = host.parse::<Host>().map_err(|why| format!("the host of the URL: {why}"))?;
        let port = match port {
            None => {
                if secure {
                    443
                } else {
                    80
                }
            }
            Some(port) => parse_port(port).ok_or("the port of the URL is not a number from 1 to 65535")?,
        };
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { secure, host, port, target })
    }
}

pub(crate) fn check_method(method: &str) -> Result<(), String> {
    if !(1..=32).contains(&method.len()) || !method.bytes().all(is_token) {
        return Err("a method is a short word".to_owned());
    }
    if ["CONNECT", "TRACE"].iter().any(|barred| barred.eq_ignore_ascii_case(method)) {
        return Err(format!("{method} is not available"));
    }
    Ok(())
}

fn check_headers(headers: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
    if headers.len() > MOST_HEADERS {
        return Err(format!("a request has at most {MOST_HEADERS} headers"));
    }
    let size: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MOST_HEADER_BYTES {
        return Err(format!("headers have at most {MOST_HEADER_BYTES} bytes in all"));
    }
    headers
        .into_iter()
        .map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            if !is_header_name(&name) {
                return Err(format!("`{}` is not the name of a header", name.escape_default()));
            }
            if is_connection_field(&name) {
                return Err(format!("`{name}` is written by the host"));
            }
            if !value.bytes().all(is_header_byte) {
                return Err(format!("the value of `{name}` holds a control character"));
            }
            Ok((name, value))
        })
        .collect()
}

/// Whether the door writes this field itself.
pub(crate) fn is_connection_field(name: &str) -> bool {
    CONNECTION_FIELDS.contains(&name) || name.starts_with("proxy-")
}

/// Whether this is a field name in lower case.
pub(crate) fn is_header_name(name: &str) -> bool {
    (1..=256).contains(&name.len()) && name.bytes().all(|b| is_token(b) && !b.is_ascii_uppercase())
}

/// Whether a value may hold this byte.
pub(crate) fn is_header_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(url: &str) -> Result<HttpRequest, String> {
        HttpRequest::new("GET", url, Vec::new(), Vec::new())
    }

    #[test]
    fn urls_are_read_one_way() {
        for (given, read) in [
            ("https://example.org", "https://example.org/"),
            ("HTTP://Example.ORG:8080/a?b#c", "http://example.org:8080/a?b"),
            ("https://example.org?q=1", "https://example.org/?q=1"),
            ("https://[::1]:443/", "https://[::1]/"),
        ] {
            assert_eq!(get(given).map(|request| request.url()), Ok(read.to_owned()), "{given}");
        }
        for bad in [
            "",
            "example.org",
            "ftp://example.org/",
            "https://",
            "https://user@example.org/",
            "https://a.org\\@b.org/",
            "https://exa mple.org/",
            "https://a.org:0/",
            "https://a.org:x/",
            "https://grüße.org/",
            "https://0x7f.0.0.1/",
            "https://2130706433/",
            "https://1.2.3/",
            "https://a.org:80:80/",
        ] {
            assert!(get(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_cannot_smuggle() {
        let with = |name: &str, value: &str| {
            HttpRequest::new("POST", "https://a.org/", vec![(name.to_owned(), value.to_owned())], Vec::new())
        };
        assert_eq!(with("Accept", "x").unwrap().headers(), [("accept".to_owned(), "x".to_owned())]);
        for (name, value) in [
            ("host", "b.org"),
            ("Content-Length", "0"),
            ("transfer-encoding", "chunked"),
            ("proxy-x", ""),
            ("a b", ""),
            ("", ""),
            ("x", "a\r\nb: c"),
            ("x", "a\0"),
        ] {
            assert!(with(name, value).is_err(), "{name}: {value:?}");
        }
        assert!(HttpRequest::new("CONNECT", "https://a.org/", Vec::new(), Vec::new()).is_err());
        assert!(HttpRequest::new("GE T", "https://a.org/", Vec::new(), Vec::new()).is_err());
    }

    #[test]
    fn every_part_changes_the_digest() {
        let base = HttpRequest::new("GET", "https://a.org/", vec![("x".into(), "y".into())], b"b".to_vec()).unwrap();
        let others = [
            HttpRequest::new("PUT", "https://a.org/", vec![("x".into(), "y".into())], b"b".to_vec()),
            HttpRequest::new("GET", "https://a.org/?", vec![("x".into(), "y".into())], b"b".to_vec()),
            HttpRequest::new("GET", "https://a.org/", vec![("x".into(), "z".into())], b"b".to_vec()),
            HttpRequest::new("GET", "https://a.org/", vec![("x".into(), "y".into())], b"c".to_vec()),
        ];
        for other in others {
            assert_ne!(base.digest(), other.unwrap().digest());
        }
    }
}
