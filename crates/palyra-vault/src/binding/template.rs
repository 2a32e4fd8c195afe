//! Header templates: `Authorization: Bearer {}`.
//!
//! The value stands where `{}` is. `{basic:USER}` stands for the Base64 of `USER:value`, which is what HTTP's basic
//! authentication sends. A value that could end the header early is refused.

use super::{BindingError, excerpt};
use crate::value::SecretValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use palyra_protocol::SecretRef;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

const MAX_TEMPLATE: usize = 512;

/// Headers that frame a request or belong to one connection.
const RESERVED: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];

/// A header with a place for a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct HeaderTemplate {
    name: String,
    before: String,
    value: Form,
    after: String,
}

/// How the value is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Form {
    Plain,
    /// The Base64 of this user, a colon and the value.
    Basic(String),
}

/// A header that is ready to be sent. It holds a secret, so it cannot be printed.
#[expect(missing_debug_implementations, reason = "it holds the value of a secret")]
pub struct RenderedHeader {
    name: String,
    value: Zeroizing<Vec<u8>>,
}

impl RenderedHeader {
    /// The name of the header.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What follows the colon. Every call site is a place to review.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.value
    }
}

impl HeaderTemplate {
    /// The name of the header.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a value in its place.
    ///
    /// # Errors
    /// The value holds a line end, another control character or something else than ASCII.
    pub fn render(&self, secret: &SecretRef, value: &SecretValue) -> Result<RenderedHeader, BindingError> {
        let unsafe_value = || BindingError::ValueUnsafe { secret: secret.clone() };
        let value = match &self.value {
            Form::Plain => Zeroizing::new(value.expose().to_vec()),
            Form::Basic(user) => {
                let mut pair = Zeroizing::new(Vec::with_capacity(user.len() + 1 + value.expose().len()));
                pair.extend_from_slice(user.as_bytes());
                pair.push(b':');
                pair.extend_from_slice(value.expose());
                // A line end in a password is a mistake of whoever put it, also where Base64 would carry it.
                if pair.iter().any(u8::is_ascii_control) {
                    return Err(unsafe_value());
                }
                Zeroizing::new(BASE64.encode(&*pair).into_bytes())
            }
        };
        if !value.iter().all(|b| matches!(b, b' '..=b'~')) {
            return Err(unsafe_value());
        }
        let mut whole = Zeroizing::new(Vec::with_capacity(self.before.len() + value.len() + self.after.len()));
        whole.extend_from_slice(self.before.as_bytes());
        whole.extend_from_slice(&value);
        whole.extend_from_slice(self.after.as_bytes());
        Ok(RenderedHeader { name: self.name.clone(), value: whole })
    }
}

impl FromStr for HeaderTemplate {
    type Err = BindingError;
    fn from_str(text: &str) -> Result<Self, BindingError> {
        let error = || BindingError::Header { given: excerpt(text) };
        if text.len() > MAX_TEMPLATE {
            return Err(error());
        }
        let (name, value) = text.split_once(": ").ok_or_else(error)?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(error());
        }
        if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
            return Err(BindingError::ReservedHeader { name: name.to_owned() });
        }
        let (before, rest) = value.split_once('{').ok_or_else(error)?;
        let (inside, after) = rest.split_once('}').ok_or_else(error)?;
        let form = match inside.strip_prefix("basic:") {
            Some(user) if !user.contains(':') => Form::Basic(user.to_owned()),
            None if inside.is_empty() => Form::Plain,
            _ => return Err(error()),
        };
        // No second place, and nothing that would be trimmed or end the header.
        let fits = |text: &str| text.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'{' && b != b'}');
        let trimmed = !before.starts_with(' ') && !after.ends_with(' ');
        if !fits(before) || !fits(inside) || !fits(after) || !trimmed {
            return Err(error());
        }
        Ok(Self { name: name.to_owned(), before: before.to_owned(), value: form, after: after.to_owned() })
    }
}

impl fmt::Display for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{{", self.name, self.before)?;
        if let Form::Basic(user) = &self.value {
            write!(f, "basic:{user}")?;
        }
        write!(f, "}}{}", self.after)
    }
}

impl TryFrom<String> for HeaderTemplate {
    type Error = BindingError;
    fn try_from(text: String) -> Result<Self, BindingError> {
        text.parse()
    }
}

impl Serialize for HeaderTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, value: &[u8]) -> String {
        let template: HeaderTemplate = template.parse().unwrap();
        let value = SecretValue::new(value.to_vec()).unwrap();
        match template.render(&"vault://global/x".parse().unwrap(), &value) {
            Ok(header) => format!("{}: {}", header.name(), String::from_utf8_lossy(header.expose())),
            Err(error) => error.code().to_owned(),
        }
    }

    #[test]
    fn a_value_takes_its_place() {
        assert_eq!(rendered("Authorization: Bearer {}", b"s3cret"), "Authorization: Bearer s3cret");
        assert_eq!(rendered("X-Key: {}", b"a b"), "X-Key: a b");
        assert_eq!(rendered("Cookie: session={}; x=1", b"v"), "Cookie: session=v; x=1");
        assert_eq!(rendered("Authorization: Basic {basic:git}", b"pw"), "Authorization: Basic Z2l0OnB3");
        assert_eq!(rendered("Authorization: Basic {basic:}", b"pw"), "Authorization: Basic OnB3");
    }

    #[test]
    fn a_value_cannot_end_the_header() {
        for bad in [&b"a\r\nX: y"[..], b"a\n", b"a\0", b"\x7f", "é".as_bytes(), b"a\tb"] {
            assert_eq!(rendered("X-Key: {}", bad), "secret_not_a_header");
        }
        assert_eq!(rendered("Authorization: Basic {basic:git}", b"pw\n"), "secret_not_a_header");
    }

    #[test]
    fn templates_are_strict() {
        for bad in [
            "",
            "Authorization",
            "Authorization:Bearer {}",
            "Authorization: Bearer",
            ": {}",
            "Auth orization: {}",
            "X: {}{}",
            "X: {x}",
            "X: {basic:a:b}",
            "X: }{",
            "X: {}\r\nY: z",
            "X:  {}",
            "X: {} ",
            "X\0: {}",
            "X: é{}",
        ] {
            assert!(matches!(bad.parse::<HeaderTemplate>(), Err(BindingError::Header { .. })), "{bad:?}");
        }
        for reserved in ["Host: {}", "content-length: {}", "Transfer-Encoding: {}", "Proxy-Authorization: Basic {}"] {
            assert!(
                matches!(reserved.parse::<HeaderTemplate>(), Err(BindingError::ReservedHeader { .. })),
                "{reserved}"
            );
        }
        for same in ["Authorization: Bearer {}", "Authorization: Basic {basic:x-token}", "X-A: a{}b"] {
            assert_eq!(same.parse::<HeaderTemplate>().unwrap().to_string(), same);
        }
    }
}
