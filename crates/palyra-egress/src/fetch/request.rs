//! A request that may be sent: checked once, when it is made.

use super::super::http::{is_ours, token};
use super::error::FetchError;
use super::url::FetchUrl;
use crate::credentials::Attached;
use std::borrow::Cow;

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const MAX_FIELDS: usize = 64;
const MAX_FIELD_BYTES: usize = 16 * 1024;

/// What may follow a redirect to another origin: fields that say what is wanted and nothing of who wants it.
const HARMLESS: [&str; 5] = ["accept", "accept-encoding", "accept-language", "range", "user-agent"];

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    pub(super) method: String,
    pub(super) url: FetchUrl,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

fn invalid(reason: impl Into<String>) -> FetchError {
    FetchError::Request { reason: reason.into() }
}

impl FetchRequest {
    /// Checks a request.
    ///
    /// # Errors
    /// When it could not be sent, or not as it stands.
    pub fn new(
        method: &str,
        url: FetchUrl,
        headers: impl IntoIterator<Item = (String, String)>,
        body: Vec<u8>,
    ) -> Result<Self, FetchError> {
        if !METHODS.contains(&method) {
            return Err(invalid(format!("the methods are {}", METHODS.join(", "))));
        }
        if matches!(method, "GET" | "HEAD") && !body.is_empty() {
            return Err(invalid("GET and HEAD have no body"));
        }
        let headers: Vec<(String, String)> = headers.into_iter().map(checked_field).collect::<Result<_, _>>()?;
        if headers.len() > MAX_FIELDS || headers.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() > MAX_FIELD_BYTES
        {
            return Err(invalid(format!("at most {MAX_FIELDS} header fields and {MAX_FIELD_BYTES} bytes of them")));
        }
        Ok(Self { method: method.to_owned(), url, headers, body })
    }

    /// A request that a client made and that was read strictly: any method, the fields that go on.
    pub(crate) fn passed_on(method: &str, url: FetchUrl, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        // An answer that is compressed could not be looked at.
        let headers = headers.into_iter().filter(|(name, _)| name != "accept-encoding" && name != "expect").collect();
        Self { method: method.to_owned(), url, headers, body }
    }

    /// The values of its header fields.
    pub fn field_values(&self) -> impl Iterator<Item = &[u8]> {
        self.headers.iter().map(|(_, value)| value.as_bytes())
    }

    /// The request with what is attached to it in the place of fields of the same name.
    pub(super) fn carrying(&self, attached: &Attached) -> Result<Cow<'_, Self>, FetchError> {
        if attached.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let mut next = self.clone();
        next.headers.retain(|(name, _)| !attached.fields.iter().any(|(other, _)| name.eq_ignore_ascii_case(other)));
        for (name, value) in &attached.fields {
            let value = std::str::from_utf8(value.expose()).map_err(|_| invalid("a credential that is no text"))?;
            next.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Ok(Cow::Owned(next))
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Where it goes.
    #[must_use]
    pub fn url(&self) -> &FetchUrl {
        &self.url
    }

    /// The request that follows a redirect (RFC 9110, section 15.4).
    pub(super) fn redirected(&self, status: u16, location: &str) -> Result<Self, FetchError> {
        let url = self.url.join(location).map_err(FetchError::Redirect)?;
        if self.url.is_tls() && !url.is_tls() {
            return Err(FetchError::Downgrade { to: url.to_string() });
        }
        let becomes_get = match status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        let mut next = Self { url, ..self.clone() };
        if becomes_get {
            next.method = "GET".to_owned();
            next.body.clear();
            next.headers.retain(|(name, _)| !name.starts_with("content-"));
        }
        if !self.url.same_origin(&next.url) {
            // What changes something there, or tells something, was meant for the first origin alone.
            if !matches!(next.method.as_str(), "GET" | "HEAD") {
                return Err(FetchError::RequestElsewhere { method: next.method, to: next.url.to_string() });
            }
            next.headers.retain(|(name, _)| HARMLESS.contains(&name.as_str()));
        }
        Ok(next)
    }
}

fn checked_field((name, value): (String, String)) -> Result<(String, String), FetchError> {
    let lower = name.to_ascii_lowercase();
    if token(name.as_bytes()).is_none() {
        return Err(invalid(format!("`{}` is not the name of a header field", super::super::host::shown(&name))));
    }
    if is_ours(&lower) || lower == "expect" {
        return Err(invalid(format!("the header field `{lower}` is written by the daemon")));
    }
    if value.bytes().any(|b| !(0x20..=0x7e).contains(&b) && b != b'\t') {
        return Err(invalid(format!("the header field `{lower}` holds a control character or is not ASCII")));
    }
    Ok((lower, value.trim_matches([' ', '\t']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, body: &str) -> FetchRequest {
        let fields = [
            ("Authorization", "secret"),
            ("Cookie", "c"),
            ("X-Api-Key", "k"),
            ("Accept", "*/*"),
            ("Content-Type", "a/b"),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        FetchRequest::new(method, FetchUrl::parse("https://a.test/x").unwrap(), fields, body.into()).unwrap()
    }

    /// `METHOD url fields body`, or the code of the error.
    fn check(from: (&str, &str), status: u16, location: &str, expect: &str) {
        let found = match request(from.0, from.1).redirected(status, location) {
            Err(error) => error.code().to_owned(),
            Ok(next) => {
                let names: Vec<_> = next.headers.iter().map(|(name, _)| name.as_str()).collect();
                format!("{} {} {} {}", next.method, next.url, names.join(","), String::from_utf8_lossy(&next.body))
            }
        };
        assert_eq!(found.trim_end(), expect);
    }

    #[test]
    fn credentials_never_follow_to_another_origin() {
        let all = "authorization,cookie,x-api-key,accept,content-type";
        check(("GET", ""), 302, "/y", &format!("GET https://a.test/y {all}"));
        check(("GET", ""), 302, "https://b.test/y", "GET https://b.test/y accept");
        check(("GET", ""), 302, "https://a.test:444/y", "GET https://a.test:444/y accept");
        check(("GET", ""), 302, "//a.test.evil.test/", "GET https://a.test.evil.test/ accept");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            for body in ["b", ""] {
                check((method, body), 307, "https://b.test/y", "redirect_elsewhere");
                check((method, body), 308, "https://a.test:444/y", "redirect_elsewhere");
            }
        }
        check(("DELETE", ""), 302, "https://b.test/y", "redirect_elsewhere");
        check(("HEAD", ""), 307, "https://b.test/y", "HEAD https://b.test/y accept");
        check(("POST", "b"), 308, "/y", &format!("POST https://a.test/y {all} b"));
        check(("POST", "b"), 302, "https://b.test/y", "GET https://b.test/y accept");
    }

    #[test]
    fn methods_follow_the_standard_and_https_stays() {
        check(("POST", "b"), 303, "/y", "GET https://a.test/y authorization,cookie,x-api-key,accept");
        check(("PUT", "b"), 302, "/y", "PUT https://a.test/y authorization,cookie,x-api-key,accept,content-type b");
        check(("HEAD", ""), 303, "/y", "HEAD https://a.test/y authorization,cookie,x-api-key,accept,content-type");
        check(("GET", ""), 301, "http://a.test/y", "redirect_downgrade");
        check(("GET", ""), 301, "file:///etc/passwd", "redirect_invalid");
        check(("GET", ""), 301, "https://u:p@b.test/", "redirect_invalid");
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let url = || FetchUrl::parse("http://a.test/").unwrap();
        let field = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
        for (name, value) in [
            ("Host", "b.test"),
            ("content-length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "x"),
            ("Proxy-X", "y"),
            ("a b", "c"),
            ("", "c"),
            ("a", "b\r\nc: d"),
            ("a", "b\0"),
            ("a", "é"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
        ] {
            assert!(FetchRequest::new("GET", url(), field(name, value), vec![]).is_err(), "{name}: {value}");
        }
        for method in ["get", "CONNECT", "TRACE", "OPTIONS", "", "GET /"] {
            assert!(FetchRequest::new(method, url(), [], vec![]).is_err(), "{method}");
        }
        assert!(FetchRequest::new("GET", url(), [], b"x".to_vec()).is_err());
    }
}
