//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.

use crate::chain::ChainVerifier;
use crate::event::ChainedEvent;
use crate::json::CanonicalJson;

/// Reads the bytes as JSON from a stranger.
///
/// # Panics
/// When what was accepted does not read the same again.
pub fn json(bytes: &[u8]) {
    let Ok(read) = CanonicalJson::parse(bytes) else { return };
    let again = CanonicalJson::parse(read.as_str().as_bytes());
    assert_eq!(again.as_ref().map(CanonicalJson::as_str), Ok(read.as_str()), "the canonical form is its own");
}

/// Reads the bytes as an export of a journal, line by line.
///
/// # Panics
/// When an event is followed whose hash does not cover it.
pub fn journal_export(bytes: &[u8]) {
    let mut verifier = ChainVerifier::default();
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(event) = serde_json::from_slice::<ChainedEvent>(line) else { return };
        let before = verifier.head();
        if verifier.follow_event(&event).is_err() {
            return;
        }
        assert_eq!(event.link().hash(&before), event.hash, "a followed event fits its hash");
        assert_eq!(verifier.head(), event.hash, "the head is the last event's hash");
    }
}
