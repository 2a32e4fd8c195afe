//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by the tests on the seeds, so that they are exercised wherever the tests run.

use crate::device_key::PublicKey;
use crate::names::{DeviceName, Host};
use crate::pairing::{FrameReader, Message, PairingCode};
use crate::signing_request;

/// Reads the bytes as frames and as a message of a pairing.
///
/// # Panics
/// When a promise of the parsers is broken.
pub fn pairing_message(bytes: &[u8]) {
    if let Ok(message) = Message::read(bytes) {
        assert_eq!(message.bytes(), bytes, "a message has one form");
    }
    // However bytes are cut into pieces, the same frames come out.
    let whole = frames(bytes, bytes.len().max(1));
    for size in [1, 7] {
        assert_eq!(frames(bytes, size), whole, "in pieces of {size}");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        words(text);
    }
}

/// The frames of a stream up to the first fault. A frame that is too large shows earlier in small pieces, so only whole
/// ones count.
fn frames(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (mut reader, mut came) = (FrameReader::default(), Vec::new());
    for piece in bytes.chunks(size).flat_map(|piece| piece.chunks(FrameReader::PIECE)) {
        if reader.push(piece).is_err() {
            return came;
        }
        while let Ok(next) = reader.take() {
            match next {
                Some(message) => came.push(message),
                None => break,
            }
        }
    }
    came
}

/// Codes and names.
fn words(text: &str) {
    if let Ok(PairingCode::Qr(code)) = text.parse() {
        assert_eq!(*code.reveal(), text, "a QR code has one form");
    }
    if let Ok(name) = text.parse::<DeviceName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(host) = text.parse::<Host>() {
        assert_eq!(host.to_string().parse(), Ok(host), "a host reads the same again");
    }
}

/// Reads the bytes as a request for a certificate.
///
/// # Panics
/// When a promise of the parser is broken.
pub fn signing_request(bytes: &[u8]) {
    if let Ok(key) = PublicKey::read(bytes) {
        assert_eq!(key.digest(), palyra_protocol::Digest::of(bytes));
    }
    if signing_request::read(bytes, "phone").is_ok() {
        assert!(signing_request::read(bytes, "laptop").is_err(), "a request is one device's");
        let longer = [bytes, &[0]].concat();
        assert!(signing_request::read(&longer, "phone").is_err(), "nothing is left over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn the_seeds_and_every_byte_of_them_hold() {
        for (target, entry) in [("pairing_message", pairing_message as fn(&[u8])), ("signing_request", signing_request)]
        {
            let seeds = seeds(target);
            assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
            for seed in seeds {
                entry(&seed);
                for at in 0..seed.len() {
                    let mut changed = seed.clone();
                    changed[at] ^= 0x41;
                    entry(&changed);
                    entry(&seed[..at]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_a_promise(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            pairing_message(&bytes);
            signing_request(&bytes);
        }

        #[test]
        fn no_text_breaks_a_promise(text in "(PALYRA:1/)?[A-Z0-9:/.\\[\\]a-f-]{0,80}") {
            pairing_message(text.as_bytes());
        }
    }
}
