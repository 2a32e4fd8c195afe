//! A token's text: `palyra_` + the id's part + `_` + 48 characters.
//!
//! The id's part (26 characters) finds the record, so a check costs the same with ten tokens and with a hundred
//! thousand. The rest is base64url of 32 random bytes and a CRC-32 of everything before it: a token that was cut or
//! mistyped is refused without looking anything up, and scanners for leaked secrets can tell a token from noise.
//!
//! The registry keeps SHA-256 of the whole text. A password would need a slow hash; a secret of 256 random bits cannot
//! be guessed from a fast one, and a slow one would let strangers keep the daemon busy.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use palyra_protocol::{Digest, Secret, TokenId};
use subtle::ConstantTimeEq as _;

/// What every token begins with.
const PREFIX: &str = "palyra_";
const ID_CHARS: usize = 26;
const SECRET_BYTES: usize = 32;
const TAIL_CHARS: usize = 48;
/// How long a token is.
pub(crate) const TOKEN_CHARS: usize = PREFIX.len() + ID_CHARS + 1 + TAIL_CHARS;

/// A token whose form is right. Nothing is known yet about whether it opens anything.
#[derive(Debug)]
pub(crate) struct PresentedToken {
    id: TokenId,
    hash: Digest,
}

impl PresentedToken {
    /// Reads what a stranger sent. One answer for every flaw: which one it was helps nobody honest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != TOKEN_CHARS || !text.is_ascii() {
            return None;
        }
        let rest = text.strip_prefix(PREFIX)?;
        let (body, tail) = rest.split_at(ID_CHARS);
        let tail = tail.strip_prefix('_')?;
        let mut bytes = [0; SECRET_BYTES + 4];
        let read = URL_SAFE_NO_PAD.decode_slice(tail, &mut bytes).ok()?;
        let (secret, sum) = bytes.split_at(SECRET_BYTES);
        if read != bytes.len() || sum != checksum(body, secret) {
            return None;
        }
        let id = format!("tok_{body}").parse().ok()?;
        Some(Self { id, hash: Digest::of(text.as_bytes()) })
    }

    pub(crate) fn id(&self) -> &TokenId {
        &self.id
    }

    pub(crate) fn hash(&self) -> Digest {
        self.hash
    }
}

/// Whether two hashes are the same, in a time that does not depend on where they differ.
pub(crate) fn same(a: &Digest, b: &Digest) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// Makes the text of a token with a fresh secret, and its hash.
///
/// # Errors
/// The system has no randomness to give.
pub fn fresh(id: &TokenId) -> Result<(Secret, Digest), getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES + 4];
    getrandom::fill(&mut bytes[..SECRET_BYTES])?;
    let sum = checksum(id.body(), &bytes[..SECRET_BYTES]);
    bytes[SECRET_BYTES..].copy_from_slice(&sum);
    let text = format!("{PREFIX}{}_{}", id.body(), URL_SAFE_NO_PAD.encode(bytes));
    let hash = Digest::of(text.as_bytes());
    Ok((Secret::new(text.into_bytes()), hash))
}

fn checksum(body: &str, secret: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(PREFIX.as_bytes());
    hasher.update(body.as_bytes());
    hasher.update(secret);
    hasher.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made() -> (TokenId, String, Digest) {
        let id = TokenId::mint();
        let (secret, hash) = fresh(&id).unwrap();
        (id, String::from_utf8(secret.expose().to_vec()).unwrap(), hash)
    }

    #[test]
    fn a_fresh_token_is_read_back() {
        let (id, text, hash) = made();
        assert_eq!(text.len(), TOKEN_CHARS);
        let read = PresentedToken::parse(&text).unwrap();
        assert_eq!((read.id(), read.hash()), (&id, hash));
        assert_ne!(made().1, made().1);
    }

    #[test]
    fn a_hash_is_the_sha256_of_the_text() {
        let (_, text, hash) = made();
        assert_eq!(hash, Digest::of(text.as_bytes()));
        assert!(same(&hash, &hash) && !same(&hash, &Digest::ZERO));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let (_, text, _) = made();
        for bad in [
            String::new(),
            "palyra_".to_owned(),
            text[1..].to_owned(),
            text[..text.len() - 1].to_owned(),
            format!("{text} "),
            format!(" {text}"),
            text.to_uppercase(),
            text.replacen("palyra_", "github_", 1),
            text.replacen("palyra_", "Palyra_", 1),
            "é".repeat(TOKEN_CHARS / 2),
        ] {
            assert!(PresentedToken::parse(&bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,120}") {
            prop_assert!(PresentedToken::parse(&text).is_none());
        }

        #[test]
        fn any_changed_character_is_noticed(at in 0..TOKEN_CHARS, new in prop::char::range('!', '~')) {
            let (_, text, _) = made();
            let mut changed: Vec<char> = text.chars().collect();
            prop_assume!(changed[at] != new);
            changed[at] = new;
            let changed: String = changed.into_iter().collect();
            prop_assert!(PresentedToken::parse(&changed).is_none());
        }
    }
}
