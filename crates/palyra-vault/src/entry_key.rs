//! A key of its own for one text: destroying the key destroys every copy of the ciphertext with it.
//!
//! The memory uses it. The journal keeps the ciphertext for ever; the key is kept elsewhere and is deleted when the
//! entry is forgotten.

use crate::aead::{KEY, Key, NONCE, Nonce, TAG, Tag, associated, random_array};
use crate::error::VaultError;
use zeroize::Zeroizing;

/// What the ciphertext is for.
const PURPOSE: &str = "palyra.memory-entry.v1";

/// A key for one text. It cannot be printed.
#[expect(missing_debug_implementations, reason = "it is a key")]
pub struct EntryKey(Key);

impl EntryKey {
    /// A fresh random key.
    ///
    /// # Errors
    /// The host gives no randomness.
    pub fn generate() -> Result<Self, VaultError> {
        Key::generate().map(Self)
    }

    /// A key that was stored; nothing if these are not 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Key::from_slice(bytes).map(Self)
    }

    /// The key itself, for the one place that stores it.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY] {
        self.0.expose()
    }

    /// Encrypts a text that belongs to an entry: nonce, ciphertext, tag.
    ///
    /// # Errors
    /// The host gives no randomness, or the text is longer than the cipher takes.
    pub fn seal(&self, entry: &str, text: &str) -> Result<Vec<u8>, VaultError> {
        let nonce: Nonce = random_array()?;
        let mut body = Zeroizing::new(text.as_bytes().to_vec());
        let tag = self.0.seal(&nonce, &associated(PURPOSE, &[entry.as_bytes()]), &mut body)?;
        Ok([&nonce[..], &body, &tag].concat())
    }

    /// Decrypts what [`EntryKey::seal`] made for the same entry; nothing if it was changed, or is another's.
    #[must_use]
    pub fn open(&self, entry: &str, sealed: &[u8]) -> Option<String> {
        let (nonce, rest) = sealed.split_at_checked(NONCE)?;
        let (body, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let (nonce, tag) = (Nonce::try_from(nonce).ok()?, Tag::try_from(tag).ok()?);
        let mut text = body.to_vec();
        self.0.open(&nonce, &associated(PURPOSE, &[entry.as_bytes()]), &mut text, &tag).ok()?;
        String::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_opens_with_its_key_for_its_entry_alone() {
        let (key, other) = (EntryKey::generate().unwrap(), EntryKey::generate().unwrap());
        let sealed = key.seal("mem_1", "tea, not coffee").unwrap();
        assert_eq!(EntryKey::from_bytes(key.expose()).unwrap().open("mem_1", &sealed).unwrap(), "tea, not coffee");
        assert!(key.open("mem_2", &sealed).is_none() && other.open("mem_1", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1;
            assert!(key.open("mem_1", &flipped).is_none());
            assert!(key.open("mem_1", &sealed[..at]).is_none());
        }
    }
}
