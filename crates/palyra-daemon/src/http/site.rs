//! Where a request comes from: programs, and no web page of another origin.
//!
//! A page in a browser can send requests to loopback in three ways, and each shows itself. A name that was rebound to
//! this address stands in `Host`. A script of another origin cannot leave `Origin` out, save for plain `GET`s; those,
//! and images, forms and links, carry `Sec-Fetch-Site` in every current browser. No answer has CORS headers, so what a
//! preflight asks for is never granted.

use super::problem::Refused;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use palyra_protocol::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which callers a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    /// Programs on this machine, which name the port.
    Loopback(u16),
    /// Paired devices. TLS has shown each of them whom it speaks with, whatever name it used.
    Devices,
}

impl Site {
    /// Lets in what this site is for.
    pub(super) fn check(self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        match self {
            Self::Loopback(port) => check(uri, headers, port),
            Self::Devices => check_device(uri, headers),
        }
    }
}

/// Lets in what does not come from a page of another origin: a browser shows a device's certificate for any page that
/// asks.
fn check_device(uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let host = match (uri.authority(), only(headers, &header::HOST)) {
        (Some(authority), Only::None) => authority.as_str(),
        (None, Only::One(host)) => host,
        (Some(authority), Only::One(host)) if authority.as_str() == host => host,
        _ => return Err(Refused::malformed("a request names its host once")),
    };
    match only(headers, &header::ORIGIN) {
        Only::None => {}
        Only::One(origin) if origin.strip_prefix("https://") == Some(host) => {}
        Only::One(_) | Only::Several => return Err(foreign()),
    }
    same_site(headers)
}

/// Lets in what names this listener by a loopback name and does not come from a page of another origin.
fn check(uri: &Uri, headers: &HeaderMap, port: u16) -> Result<(), Refused> {
    // The target's own authority, where a client sends one, counts as much as the header.
    if let Some(authority) = uri.authority()
        && !is_ours(authority.as_str(), port)
    {
        return Err(misdirected());
    }
    match only(headers, &header::HOST) {
        Only::One(host) if is_ours(host, port) => {}
        Only::One(_) => return Err(misdirected()),
        Only::None | Only::Several => return Err(Refused::malformed("a request has exactly one `Host` header")),
    }
    match only(headers, &header::ORIGIN) {
        Only::None => {}
        Only::One(origin) if origin.strip_prefix("http://").is_some_and(|host| is_ours(host, port)) => {}
        Only::One(_) | Only::Several => return Err(foreign()),
    }
    same_site(headers)
}

fn same_site(headers: &HeaderMap) -> Result<(), Refused> {
    match only(headers, &SEC_FETCH_SITE) {
        Only::None | Only::One("none" | "same-origin") => Ok(()),
        Only::One(_) | Only::Several => Err(foreign()),
    }
}

/// A loopback name of this listener.
fn is_ours(authority: &str, port: u16) -> bool {
    let Some((name, given)) = authority.rsplit_once(':') else { return false };
    let plain = given.bytes().all(|byte| byte.is_ascii_digit());
    (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) && plain && given.parse() == Ok(port)
}

enum Only<'a> {
    None,
    One(&'a str),
    Several,
}

/// The value of a header that may stand there once. What is not text counts as one that fits nothing.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Only<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Only::None,
        (Some(value), None) => Only::One(value.to_str().unwrap_or("")),
        (Some(_), Some(_)) => Only::Several,
    }
}

fn misdirected() -> Refused {
    let problem = Problem::new(
        "wrong_host",
        "this listener answers only to its own loopback names",
        "ask for `127.0.0.1` or `localhost` with the port that `palyra status` shows",
    );
    Refused::new(StatusCode::MISDIRECTED_REQUEST, problem)
}

fn foreign() -> Refused {
    let problem = Problem::new(
        "foreign_origin",
        "web pages of other origins get nothing here",
        "call from a program, without an `Origin` header",
    );
    Refused::new(StatusCode::FORBIDDEN, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        lines.iter().map(line).collect()
    }

    fn admits(uri: &str, lines: &[(&'static str, &str)]) -> bool {
        check(&uri.parse().unwrap(), &headers(lines), 7142).is_ok()
    }

    #[test]
    fn only_loopback_names_with_our_port_are_ours() {
        for host in ["127.0.0.1:7142", "localhost:7142", "LocalHost:7142"] {
            assert!(admits("/", &[("host", host)]), "{host}");
        }
        for host in [
            "",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:7143",
            "127.0.0.1:+7142",
            "127.0.0.1:",
            "127.0.0.2:7142",
            "0.0.0.0:7142",
            "[::1]:7142",
            "localhost.:7142",
            "localhost.evil.example:7142",
            "evil.example:7142",
            "evil.example",
            "user@localhost:7142",
            "localhost:7142:7142",
            "localhost:7142/",
            " localhost:7142",
        ] {
            assert!(!admits("/", &[("host", host)]), "{host:?}");
        }
        assert!(!admits("/", &[]));
        assert!(!admits("/", &[("host", "localhost:7142"), ("host", "localhost:7142")]));
        assert!(admits("http://localhost:7142/x", &[("host", "localhost:7142")]));
        assert!(!admits("http://evil.example/x", &[("host", "localhost:7142")]));
        assert!(!admits("http://localhost:7142/x", &[("host", "evil.example")]));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = ("host", "localhost:7142");
        for (name, value) in
            [("origin", "http://localhost:7142"), ("sec-fetch-site", "none"), ("sec-fetch-site", "same-origin")]
        {
            assert!(admits("/", &[host, (name, value)]), "{name}: {value}");
        }
        for (name, value) in [
            ("origin", "null"),
            ("origin", ""),
            ("origin", "http://localhost:3000"),
            ("origin", "https://localhost:7142"),
            ("origin", "http://localhost:7142/"),
            ("origin", "http://localhost:7142.evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "file://"),
            ("origin", "chrome-extension://abc"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "Same-Origin"),
            ("sec-fetch-site", ""),
        ] {
            assert!(!admits("/", &[host, (name, value)]), "{name}: {value}");
        }
        assert!(!admits("/", &[host, ("origin", "http://localhost:7142"), ("origin", "http://evil.example")]));
    }

    #[test]
    fn a_page_of_another_origin_gets_nothing_by_a_devices_certificate() {
        let admits = |uri: &str, lines: &[(&'static str, &str)]| {
            Site::Devices.check(&uri.parse().unwrap(), &headers(lines)).is_ok()
        };
        assert!(admits("/", &[("host", "home.lan:7443")]));
        assert!(admits("https://home.lan:7443/x", &[]));
        assert!(admits("/", &[("host", "home.lan:7443"), ("origin", "https://home.lan:7443")]));
        for (uri, lines) in [
            ("/", &[][..]),
            ("https://home.lan:7443/x", &[("host", "evil.example")][..]),
            ("/", &[("host", "home.lan:7443"), ("origin", "https://evil.example")][..]),
            ("/", &[("host", "home.lan:7443"), ("origin", "http://home.lan:7443")][..]),
            ("/", &[("host", "home.lan:7443"), ("origin", "null")][..]),
            ("/", &[("host", "home.lan:7443"), ("sec-fetch-site", "cross-site")][..]),
        ] {
            assert!(!admits(uri, lines), "{uri} {lines:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_passes_for_ours(text in "[ -~]{0,40}") {
            let ours = ["127.0.0.1:7142", "localhost:7142"].iter().any(|ours| text.eq_ignore_ascii_case(ours));
            prop_assert_eq!(is_ours(&text, 7142), ours);
        }
    }
}
