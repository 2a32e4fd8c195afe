//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The tests call the same functions on the seeds, so that they are exercised wherever the tests run.

use crate::aead::Key;
use crate::binding::{BoundHost, HeaderTemplate, PathPattern};
use crate::envelope::{self, Envelope, Head, Kek, KekId, Part, VersionStamp};
use crate::header::SealedHeader;
use crate::redaction::{Mask, RedactionStream, Redactor, StreamEnd};
use crate::transfer::ExportHeader;
use crate::value::SecretValue;
use palyra_protocol::{SecretRef, Timestamp, VaultId};
use std::sync::Arc;

/// Reads the bytes as everything that the vault reads from a disk, and as a change to a blob.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn envelope(bytes: &[u8]) {
    if let Ok(head) = Head::parse(bytes) {
        assert_eq!(envelope::rewritten(&head), bytes[..head.len()], "a header has one spelling");
    }
    if let Ok(header) = SealedHeader::parse(bytes) {
        assert!(!header.unverified().slots.is_empty(), "a vault has a slot");
    }
    drop(ExportHeader::parse(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        words(text);
    }
    changed_blob(bytes);
}

/// Whatever is read reads the same again.
fn words(text: &str) {
    if let Ok(reference) = text.parse::<SecretRef>() {
        assert_eq!(reference.to_string(), text);
    }
    if let Ok(host) = text.parse::<BoundHost>() {
        assert_eq!(host.to_string().parse(), Ok(host));
    }
    if let Ok(template) = text.parse::<HeaderTemplate>() {
        assert_eq!(template.to_string(), text);
    }
    if let Ok(path) = text.parse::<PathPattern>() {
        assert_eq!(path.to_string(), text);
    }
}

/// A blob that was changed in any way opens for nobody. The first two bytes say where, the rest what is written there.
fn changed_blob(bytes: &[u8]) {
    let Some((at, change)) = bytes.split_first_chunk::<2>() else { return };
    let Some((blob, vault, kek, reference)) = whole_blob() else { return };
    let at = usize::from(u16::from_be_bytes(*at)) % (blob.len() + 1);
    let mut changed = blob[..at].to_vec();
    changed.extend_from_slice(change);
    if let Some(rest) = blob.get(changed.len()..) {
        changed.extend_from_slice(rest);
    }
    let opened = Head::parse(&changed)
        .and_then(|head| Envelope::open(&vault, &kek, &reference, head, &changed))
        .and_then(|envelope| envelope.value(&kek, 1));
    assert!(changed == blob || !matches!(opened, Ok(Some(_))), "a changed blob opens");
}

fn whole_blob() -> Option<(Vec<u8>, VaultId, Kek, SecretRef)> {
    let vault: VaultId = "vault_01K0000000000000000000000A".parse().ok()?;
    let reference: SecretRef = "vault://global/github".parse().ok()?;
    let kek = Kek::new(&vault, KekId([7; 16]), Key::from_slice(&[9; 32])?).ok()?;
    let value = SecretValue::new(b"s3cret".to_vec()).ok()?;
    let stamp = VersionStamp { number: 1, created_at: Timestamp::from_unix_ms(1), expires_at: None };
    let part = Part::seal(&vault, &kek, &reference, stamp, &value).ok()?;
    let blob = envelope::write(&vault, &kek, &reference, &[part]).ok()?;
    Some((blob, vault, kek, reference))
}

/// The first byte says how many values there are, one byte each their lengths, then come the values, then the text. The
/// text is cut after as many bytes as the values' first bytes say.
///
/// # Panics
/// When a value is left in the text, or the result depends on how the text was cut.
pub fn redaction(bytes: &[u8]) {
    let Some((&count, mut rest)) = bytes.split_first() else { return };
    let count = usize::from(count % 8);
    let Some((lengths, after)) = rest.split_at_checked(count) else { return };
    rest = after;
    let (mut builder, mut values) = (Redactor::builder(), Vec::new());
    for (at, length) in lengths.iter().enumerate() {
        let Some((value, after)) = rest.split_at_checked(usize::from(*length)) else { return };
        rest = after;
        let Ok(secret) = SecretValue::new(value.to_vec()) else { continue };
        let Ok(reference) = format!("vault://global/s{at}").parse() else { continue };
        if builder.add(&reference, &secret) == crate::redaction::Coverage::Full {
            values.push(value);
        }
    }
    let Ok(redactor) = builder.build().map(Arc::new) else { return };
    let cuts: Vec<usize> = lengths.iter().map(|length| usize::from(*length)).collect();
    for mask in [Mask::Marker, Mask::SameLength] {
        let whole = passed(&redactor, rest, &[], mask);
        assert_eq!(passed(&redactor, rest, &cuts, mask), whole, "cuts do not matter");
        let ones = vec![1; rest.len()];
        assert_eq!(passed(&redactor, rest, &ones, mask), whole, "nor do many");
        if mask == Mask::SameLength {
            assert_eq!(whole.len(), rest.len());
            // A value that is made of asterisks cannot be told from what hides it.
            let left = |value: &&&[u8]| {
                value.iter().any(|b| *b != b'*') && whole.windows(value.len()).any(|window| window == **value)
            };
            assert!(values.iter().find(left).is_none(), "a value is left");
        }
    }
}

fn passed(redactor: &Arc<Redactor>, text: &[u8], cuts: &[usize], mask: Mask) -> Vec<u8> {
    let (mut stream, mut out) = (RedactionStream::new(Arc::clone(redactor), mask), Vec::new());
    let mut rest = text;
    for cut in cuts {
        let (chunk, after) = rest.split_at((*cut).min(rest.len()));
        stream.push(chunk, &mut out);
        rest = after;
    }
    stream.push(rest, &mut out);
    stream.finish(StreamEnd::Whole, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_seeds(name: &str, entry: fn(&[u8])) {
        let seeds = format!("{}/../../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let seed = std::fs::read(seed.unwrap().path()).unwrap();
            entry(&seed);
            // And what is like them.
            for at in 0..seed.len().min(300) {
                let mut flipped = seed.clone();
                flipped[at] ^= 1 << (at % 8);
                entry(&flipped);
                entry(&seed[..at]);
            }
            count += 1;
        }
        assert!(count >= 3, "{name} has {count} seeds");
    }

    #[test]
    fn the_seeds_of_the_envelope_keep_every_promise() {
        on_seeds("vault_envelope", envelope);
    }

    #[test]
    fn the_seeds_of_the_redaction_keep_every_promise() {
        on_seeds("redaction", redaction);
    }

    proptest! {
        #[test]
        fn any_bytes_keep_every_promise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            envelope(&bytes);
            redaction(&bytes);
        }

        /// Few letters, so that values do occur.
        #[test]
        fn values_that_occur_keep_every_promise(
            values in prop::collection::vec("[ab]{4,12}", 0..5),
            text in "[ab]{0,200}",
        ) {
            let mut bytes = vec![values.len() as u8];
            bytes.extend(values.iter().map(|value| value.len() as u8));
            bytes.extend(values.iter().flat_map(|value| value.bytes()));
            bytes.extend_from_slice(text.as_bytes());
            redaction(&bytes);
        }
    }
}
