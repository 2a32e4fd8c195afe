//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! Unit tests call the same functions on seeds.

use crate::document::RegistryDocument;
use crate::token::PresentedToken;

/// Reads the bytes as a registry's file.
///
/// # Panics
/// When a document that is accepted does not read the same again.
pub fn fuzz_registry(bytes: &[u8]) {
    let Ok(mut document) = RegistryDocument::parse(bytes) else { return };
    let sealed = document.sealed(0);
    assert!(sealed.is_ok() || document.revision() == u64::MAX, "a document that was accepted can be written");
    let Ok(written) = sealed else { return };
    assert_eq!(RegistryDocument::parse(&written), Ok(document), "what was written is read back");
}

/// Reads the bytes as a token that a stranger presents.
///
/// # Panics
/// When a token has an id that is none of ours.
pub fn fuzz_token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(token) = PresentedToken::parse(text) {
        assert!(text.contains(token.id().body()), "the id is the one that the text names");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_protocol::TokenId;

    #[test]
    fn seeds() {
        let empty = RegistryDocument::empty().sealed(0).unwrap();
        for seed in [&b""[..], b"{}", br#"{"schema":1}"#, &empty, &empty[..empty.len() / 2], &[0xff; 64]] {
            fuzz_registry(seed);
            fuzz_token(seed);
        }
        let (secret, _) = crate::token::fresh(&TokenId::mint()).unwrap();
        fuzz_token(secret.expose());
    }
}
