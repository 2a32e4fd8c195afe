//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.

use crate::chain::ChainVerifier;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::event::ChainedEvent;
use crate::json::CanonicalJson;
use crate::memory::{MemoryScope, recorded_output};
use crate::passkey::{Passkey, PasskeyAssertion};
use crate::principal::Principal;
use crate::routine::RoutinePlan;

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

/// Reads the bytes as a routine's plan, as a memory scope, and as an output whose texts are withheld.
///
/// # Panics
/// When one of them does not read the same again.
pub fn routine_plan(bytes: &[u8]) {
    if let Ok(scope) = std::str::from_utf8(bytes).unwrap_or_default().parse::<MemoryScope>() {
        assert_eq!(scope.to_string().parse(), Ok(scope), "a scope is its own name");
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let recorded = recorded_output(&value).into_owned();
    assert_eq!(*recorded_output(&recorded), recorded, "what is recorded is recorded as it is");
    let Ok(plan) = serde_json::from_value::<RoutinePlan>(value) else { return };
    let again = serde_json::to_value(&plan).ok().and_then(|plan| serde_json::from_value::<RoutinePlan>(plan).ok());
    assert_eq!(again.map(|plan| plan.digest()), Some(plan.digest()), "a plan has one digest");
}

/// Reads the bytes as what an authenticator and a browser say about a decision, for a passkey that signs nothing.
///
/// # Panics
/// When an assertion is accepted whose signature nobody made.
pub fn passkey_assertion(bytes: &[u8]) {
    const KEY: &str = "p256:046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c2964fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
    let Ok(assertion) = serde_json::from_slice::<PasskeyAssertion>(bytes) else { return };
    let Ok(key) = KEY.parse() else { return };
    let passkey = Passkey {
        id: assertion.passkey.clone(),
        principal: Principal::local_owner(),
        key,
        host: "localhost".to_owned(),
        label: String::new(),
        at: Timestamp::from_unix_ms(0),
    };
    assert!(assertion.verify(&passkey, &Digest::ZERO).is_err(), "nobody has signed this");
}
