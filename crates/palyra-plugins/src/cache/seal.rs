//! The seal at the end of a cache file: what the code is of, how long it is, and an authentication code over all of it.
//!
//! It stands at the end because wasmtime maps the file from its beginning. Reading one is reading hostile bytes.

use hmac::{Hmac, KeyInit as _, Mac as _};
use palyra_protocol::{Digest, DigestBuilder, Secret};
use sha2::Sha256;

/// How many bytes a seal takes.
pub(crate) const TRAILER_BYTES: usize = MAGIC.len() + 32 + 8 + 32;

const MAGIC: &[u8; 16] = b"palyra-code-v1\r\n";

/// Why a seal does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    #[error("this is no seal")]
    Malformed,
    #[error("the seal is of other code")]
    OtherCode,
    #[error("the seal is not ours")]
    NotOurs,
}

/// The daemon's key for seals. It is never shown.
#[derive(Clone)]
pub(crate) struct Key(Secret);

impl Key {
    /// Derives the key for this one purpose from a secret of the daemon.
    pub(crate) fn derive(secret: &Secret) -> Self {
        let digest = DigestBuilder::new("palyra.plugins.code_key.v1").field(secret.expose()).finish();
        Self(Secret::new(digest.as_bytes().to_vec()))
    }

    fn block(&self) -> [u8; 64] {
        let mut block = [0; 64];
        let length = self.0.expose().len().min(block.len());
        block[..length].copy_from_slice(&self.0.expose()[..length]);
        block
    }
}

/// A seal that is being computed.
pub(crate) struct Seal {
    code: Hmac<Sha256>,
    head: [u8; MAGIC.len() + 32 + 8],
}

impl Seal {
    /// Begins a seal for this many bytes of code.
    pub(crate) fn begin(key: &Key, entry: &Digest, length: u64) -> Self {
        let mut head = [0; MAGIC.len() + 32 + 8];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        head[MAGIC.len()..MAGIC.len() + 32].copy_from_slice(entry.as_bytes());
        head[MAGIC.len() + 32..].copy_from_slice(&length.to_be_bytes());
        let mut code = Hmac::<Sha256>::new(&key.block().into());
        code.update(&head);
        Self { code, head }
    }

    /// Adds code.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.code.update(bytes);
    }

    /// The seal of everything that was added.
    pub(crate) fn finish(self) -> [u8; TRAILER_BYTES] {
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..self.head.len()].copy_from_slice(&self.head);
        trailer[self.head.len()..].copy_from_slice(&self.code.finalize().into_bytes());
        trailer
    }

    /// Compares with a seal that was read.
    pub(crate) fn verify(self, trailer: &[u8]) -> Result<(), SealError> {
        let (head, code) = trailer.split_at_checked(self.head.len()).ok_or(SealError::Malformed)?;
        if !head.starts_with(MAGIC) || code.len() != 32 {
            return Err(SealError::Malformed);
        }
        if head != self.head {
            return Err(SealError::OtherCode);
        }
        // In constant time.
        self.code.verify_slice(code).map_err(|_| SealError::NotOurs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_that_is_flipped_breaks_the_seal() {
        let entry = Digest::of(b"entry");
        let seal = |key: &[u8], entry: &Digest, code: &[u8]| {
            let mut seal = Seal::begin(&Key::derive(&Secret::new(key.to_vec())), entry, code.len() as u64);
            seal.add(code);
            seal
        };
        let trailer = seal(b"key", &entry, b"code").finish();
        assert_eq!(seal(b"key", &entry, b"code").verify(&trailer), Ok(()));
        for at in 0..trailer.len() {
            let mut other = trailer;
            other[at] ^= 1;
            assert!(seal(b"key", &entry, b"code").verify(&other).is_err(), "{at}");
        }
        assert_eq!(seal(b"key", &entry, b"coda").verify(&trailer), Err(SealError::NotOurs));
        assert_eq!(seal(b"yek", &entry, b"code").verify(&trailer), Err(SealError::NotOurs));
        assert_eq!(seal(b"key", &Digest::ZERO, b"code").verify(&trailer), Err(SealError::OtherCode));
        assert_eq!(seal(b"key", &entry, b"code").verify(&trailer[1..]), Err(SealError::Malformed));
        assert_eq!(seal(b"key", &entry, b"code").verify(&[]), Err(SealError::Malformed));
    }
}
