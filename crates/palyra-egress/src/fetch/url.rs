//! URLs as `fetch` reads them: strictly, and into the parts that rules speak about.
//!
//! A host that is read in one way when it is checked and in another when it is connected to is the oldest trick there
//! is. So a URL is taken apart once, here, and everything after works with the parts.

use super::super::host::{Host, HostError, parse_port, split_port};
use std::fmt;

const MAX_URL: usize = 8192;

/// An http or https URL without a user name and without a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchUrl {
    tls: bool,
    host: Host,
    port: u16,
    /// Begins with `/`.
    path: String,
    query: Option<String>,
}

/// Why a text is no URL to fetch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Empty or endless.
    #[error("a URL is 1 to {MAX_URL} characters")]
    Length,
    /// A character that has to be encoded, or a backslash.
    #[error("a URL holds printable ASCII without spaces and backslashes; encode everything else as `%XX`")]
    Character,
    /// Another scheme, or none.
    #[error("a URL begins with `https://` or `http://`")]
    Scheme,
    /// A user name or password.
    #[error("a URL holds no user name and no password; send an Authorization header")]
    UserInfo,
    /// The port is none.
    #[error("the port of a URL is a number from 1 to 65535")]
    Port,
    /// The host is none.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl FetchUrl {
    /// Reads a URL. A fragment is left out: it is not for the server.
    ///
    /// # Errors
    /// It is not one that can be fetched.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        check_characters(text)?;
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(UrlError::Scheme),
        };
        Self::parse_authority(tls, rest)
    }

    fn parse_authority(tls: bool, rest: &str) -> Result<Self, UrlError> {
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let authority = &rest[..end];
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = split_port(authority);
        let port = match port {
            Some(port) => parse_port(port).ok_or(UrlError::Port)?,
            None if tls => 443,
            None => 80,
        };
        let (path, query) = split_query(&rest[end..]);
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { tls, host: Host::parse(host)?, port, path: path.to_owned(), query })
    }

    /// Where a `Location` leads from here (RFC 3986, section 5.2).
    ///
    /// # Errors
    /// It is not a URL that can be fetched.
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        check_characters(location)?;
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse_authority(self.tls, rest);
        }
        let first = location.split(['/', '?', '#']).next().unwrap_or("");
        if first.contains(':') {
            return Self::parse(location);
        }
        let location = location.split('#').next().unwrap_or(location);
        let (path, query) = split_query(location);
        let base = || self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (path, query) = match path {
            "" => (self.path.clone(), query.or_else(|| self.query.clone())),
            path if path.starts_with('/') => (without_dots(path), query),
            path => (without_dots(&format!("{}/{path}", base())), query),
        };
        Ok(Self { path, query, ..self.clone() })
    }

    /// A URL of parts that were read strictly already. `target` is a path with its query.
    pub(crate) fn of_parts(tls: bool, host: &Host, port: u16, target: &str) -> Self {
        let (path, query) = split_query(target);
        Self { tls, host: host.clone(), port, path: path.to_owned(), query }
    }

    /// Whether this goes over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether both have scheme, host and port in common.
    #[must_use]
    pub fn same_origin(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port) == (other.tls, &other.host, other.port)
    }
}

impl fmt::Display for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.host)?;
        if self.port != (if self.tls { 443 } else { 80 }) {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

fn check_characters(text: &str) -> Result<(), UrlError> {
    if text.is_empty() || text.len() > MAX_URL {
        return Err(UrlError::Length);
    }
    let printable = text.bytes().all(|b| (0x21..=0x7e).contains(&b) && !matches!(b, b'\\' | b'"' | b'<' | b'>'));
    if printable { Ok(()) } else { Err(UrlError::Character) }
}

fn split_query(text: &str) -> (&str, Option<String>) {
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (text, None),
    }
}

/// Takes `.` and `..` out of a path that begins with `/`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        let found = FetchUrl::parse(text).map_or_else(|e| format!("{e:?}"), |url| url.to_string());
        assert!(found.starts_with(expect), "{text}: {found}");
    }

    #[test]
    fn urls_are_read_in_one_way() {
        check("https://Example.org", "https://example.org/");
        check("HTTPS://example.org:443/a?b=c#d", "https://example.org/a?b=c");
        check("http://example.org:8080?q", "http://example.org:8080/?q");
        check("http://[::1]:80/", "http://[::1]/");
        check("ftp://example.org/", "Scheme");
        check("file:///etc/passwd", "Scheme");
        check("example.org", "Scheme");
        check("http://u:p@example.org/", "UserInfo");
        check("http://example.org@evil.test/", "UserInfo");
        check("http://evil.test\\@example.org/", "Character");
        check("http://example.org/a b", "Character");
        check("http://example.org/\u{e9}", "Character");
        check("http://example.org:0/", "Port");
        check("http://127.1/", "Host");
        check("http:///x", "Host");
        check("http://0x7f000001/", "Host");
    }

    #[test]
    fn a_location_leads_where_the_standard_says() {
        let base = FetchUrl::parse("https://a.test/b/c/d?q").unwrap();
        for (location, expect) in [
            ("https://x.test/y", "https://x.test/y"),
            ("http://x.test", "http://x.test/"),
            ("//x.test:1/y", "https://x.test:1/y"),
            ("/y?z", "https://a.test/y?z"),
            ("y", "https://a.test/b/c/y"),
            ("./y", "https://a.test/b/c/y"),
            ("../y", "https://a.test/b/y"),
            ("../../../../y/..", "https://a.test/"),
            ("?z", "https://a.test/b/c/d?z"),
            ("#f", "https://a.test/b/c/d?q"),
        ] {
            assert_eq!(base.join(location).map(|url| url.to_string()).as_deref(), Ok(expect), "{location}");
        }
        for bad in ["javascript:alert(1)", "file:///x", "https://u@x.test/", "", "a b"] {
            assert!(base.join(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_url_that_is_read_reads_the_same_again(text in "(http|https)://[a-z0-9.:@\\[\\]/?#%-]{0,30}", location in "\\PC{0,30}") {
            if let Ok(url) = FetchUrl::parse(&text) {
                prop_assert_eq!(FetchUrl::parse(&url.to_string()), Ok(url.clone()));
                if let Ok(next) = url.join(&location) {
                    prop_assert_eq!(FetchUrl::parse(&next.to_string()), Ok(next));
                }
            }
        }
    }
}
