//! Digests with domain separation.
//!
//! Every hash that Palyra publishes is SHA-256 over a domain and a list of fields, each preceded by its length as eight
//! big-endian bytes. Joining fields with a separator would let two different lists share a hash; lengths do not. The
//! domain is the first field, so a hash made for one purpose never fits another.

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest([u8; 32]);

/// A text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// All zeroes: what the first link of a chain points at.
    pub const ZERO: Self = Self([0; 32]);

    /// Wraps the bytes of a digest that was stored.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// SHA-256 of one byte string, with no domain: for content that others hash too, such as files and outputs.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The raw bytes.
    /// Hashes whatever a reader gives, to its end.
    ///
    /// # Errors
    /// The reader's own.
    pub fn of_reader(mut reader: impl std::io::Read) -> std::io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self(hash.finalize().into())),
                Ok(length) => hash.update(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve digits: enough to recognise, too few to rely on.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hexadecimal(&self.0, &mut [0; 64]))
    }
}

/// Bytes as lower-case digits, in a buffer of twice their length.
pub(crate) fn hexadecimal<'a>(bytes: &[u8], buffer: &'a mut [u8]) -> &'a str {
    match hex::encode_to_slice(bytes, buffer) {
        Ok(()) => std::str::from_utf8(buffer).unwrap_or_default(),
        Err(_) => "",
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| DigestError)?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(hexadecimal(&self.0, &mut [0; 64]))
    }
}

/// Builds a digest field by field.
#[derive(Debug, Clone)]
pub struct DigestBuilder(Sha256);

impl DigestBuilder {
    /// Starts a digest for one purpose.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        Self(Sha256::new()).field(domain.as_bytes())
    }

    /// Adds one field.
    #[must_use]
    pub fn field(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds a number as eight big-endian bytes.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.field(&number.to_be_bytes())
    }

    /// Adds a field that may be absent; absent and empty differ.
    #[must_use]
    pub fn optional(self, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.number(1).field(bytes),
            None => self.number(0),
        }
    }

    /// The digest.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_byte_between_fields_changes_the_digest() {
        let ab_c = DigestBuilder::new("t").field(b"ab").field(b"c").finish();
        let a_bc = DigestBuilder::new("t").field(b"a").field(b"bc").finish();
        let abc = DigestBuilder::new("t").field(b"abc").finish();
        assert!(ab_c != a_bc && ab_c != abc && a_bc != abc);
        let none = DigestBuilder::new("t").optional(None).finish();
        let empty = DigestBuilder::new("t").optional(Some(b"")).finish();
        assert_ne!(none, empty);
    }

    #[test]
    fn text_form_is_strict() {
        let digest = Digest::of(b"x");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
        assert!("00".parse::<Digest>().is_err());
    }
}
