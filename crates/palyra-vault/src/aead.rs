//! XChaCha20-Poly1305 and HKDF-SHA-256, as the vault uses them.
//!
//! Nonces are 24 random bytes: random ones of this length do not repeat. Associated data is a list of fields, each
//! preceded by its length, with the purpose first: a ciphertext made for one purpose opens for no other.

use crate::error::VaultError;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut as _, KeyInit as _, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

pub(crate) const KEY: usize = 32;
pub(crate) const NONCE: usize = 24;
pub(crate) const TAG: usize = 16;
/// A wrapped key: its ciphertext and tag.
pub(crate) const WRAPPED: usize = KEY + TAG;

pub(crate) type Nonce = [u8; NONCE];
pub(crate) type Tag = [u8; TAG];

/// A ciphertext, a key or associated data that do not fit each other. Which of them it is cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unauthentic;

/// A key of 256 bits that is wiped when dropped and cannot be printed.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<[u8; KEY]>);

impl Key {
    /// A fresh random key.
    pub(crate) fn generate() -> Result<Self, VaultError> {
        let mut key = Self(Zeroizing::new([0; KEY]));
        random(&mut *key.0)?;
        Ok(key)
    }

    /// A key from exactly 32 bytes.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut key = Self(Zeroizing::new([0; KEY]));
        if bytes.len() != KEY {
            return None;
        }
        key.0.copy_from_slice(bytes);
        Some(key)
    }

    /// A key for one purpose, from this one: HKDF-SHA-256.
    pub(crate) fn derive(&self, salt: &[u8], purpose: &str) -> Result<Self, VaultError> {
        let mut key = Self(Zeroizing::new([0; KEY]));
        let expanded = Hkdf::<Sha256>::new(Some(salt), &*self.0).expand(purpose.as_bytes(), &mut *key.0);
        expanded.map_err(|_| VaultError::Internal { what: "a key is longer than HKDF gives" })?;
        Ok(key)
    }

    pub(crate) fn expose(&self) -> &[u8; KEY] {
        &self.0
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    /// Encrypts in place.
    pub(crate) fn seal(&self, nonce: &Nonce, aad: &[u8], buffer: &mut [u8]) -> Result<Tag, VaultError> {
        let nonce = XNonce::from(*nonce);
        let sealed = self.cipher().encrypt_inout_detached(&nonce, aad, InOutBuf::from(buffer));
        sealed.map(Into::into).map_err(|_| VaultError::Internal { what: "a value is too long for its cipher" })
    }

    /// Decrypts in place; on failure the buffer keeps the ciphertext.
    pub(crate) fn open(&self, nonce: &Nonce, aad: &[u8], buffer: &mut [u8], tag: &Tag) -> Result<(), Unauthentic> {
        let (nonce, tag) = (XNonce::from(*nonce), (*tag).into());
        self.cipher().decrypt_inout_detached(&nonce, aad, InOutBuf::from(buffer), &tag).map_err(|_| Unauthentic)
    }

    /// Encrypts a key under this one.
    pub(crate) fn wrap(&self, nonce: &Nonce, aad: &[u8], key: &Self) -> Result<[u8; WRAPPED], VaultError> {
        let mut wrapped = [0; WRAPPED];
        let (body, end) = wrapped.split_at_mut(KEY);
        body.copy_from_slice(key.expose());
        end.copy_from_slice(&self.seal(nonce, aad, body)?);
        Ok(wrapped)
    }

    /// Decrypts a key that was encrypted under this one.
    pub(crate) fn unwrap(&self, nonce: &Nonce, aad: &[u8], wrapped: &[u8; WRAPPED]) -> Result<Self, Unauthentic> {
        let (body, end) = wrapped.split_at(KEY);
        let mut key = Self::from_slice(body).ok_or(Unauthentic)?;
        let tag = Tag::try_from(end).map_err(|_| Unauthentic)?;
        self.open(nonce, aad, &mut *key.0, &tag)?;
        Ok(key)
    }
}

/// Fills a buffer with randomness.
pub(crate) fn random(buffer: &mut [u8]) -> Result<(), VaultError> {
    getrandom::fill(buffer).map_err(|_| VaultError::NoRandomness)
}

/// A fresh random array.
pub(crate) fn random_array<const N: usize>() -> Result<[u8; N], VaultError> {
    let mut bytes = [0; N];
    random(&mut bytes)?;
    Ok(bytes)
}

/// Associated data: the purpose and fields, each preceded by its length as eight big-endian bytes.
pub(crate) fn associated(purpose: &str, fields: &[&[u8]]) -> Vec<u8> {
    let length = fields.iter().map(|field| field.len() + 8).sum::<usize>() + purpose.len() + 8;
    let mut data = Vec::with_capacity(length);
    for field in std::iter::once(&purpose.as_bytes()).chain(fields) {
        data.extend_from_slice(&(field.len() as u64).to_be_bytes());
        data.extend_from_slice(field);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of draft-irtf-cfrg-xchacha-03, appendix A.3.1.
    #[test]
    fn the_cipher_is_the_one_of_the_draft() {
        let key: Vec<u8> = (0x80..=0x9f).collect();
        let nonce: Nonce = std::array::from_fn(|at| 0x40 + at as u8);
        let aad = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let mut text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                         sunscreen would be it."
            .to_vec();
        let tag = Key::from_slice(&key).unwrap().seal(&nonce, &aad, &mut text).unwrap();
        assert_eq!(hex::encode(&text[..16]), "bd6d179d3e83d43b9576579493c0e939");
        assert_eq!(hex::encode(tag), "c0875924c1c7987947deafd8780acf49");
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(associated("p", &[b"ab", b"c"]), associated("p", &[b"a", b"bc"]));
        assert_ne!(associated("p", &[b""]), associated("p", &[]));
    }

    #[test]
    fn a_wrapped_key_opens_with_its_key_and_data_alone() {
        let (outer, inner) = (Key::generate().unwrap(), Key::generate().unwrap());
        let nonce = random_array().unwrap();
        let wrapped = outer.wrap(&nonce, b"aad", &inner).unwrap();
        assert!(outer.unwrap(&nonce, b"aad", &wrapped).is_ok_and(|key| key.expose() == inner.expose()));
        assert!(outer.unwrap(&nonce, b"other", &wrapped).is_err());
        assert!(inner.unwrap(&nonce, b"aad", &wrapped).is_err());
        for at in 0..WRAPPED {
            let mut flipped = wrapped;
            flipped[at] ^= 1;
            assert!(outer.unwrap(&nonce, b"aad", &flipped).is_err());
        }
    }
}
