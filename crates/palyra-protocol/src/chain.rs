//! The hash chain over the journal, and signed checkpoints of it.
//!
//! Each event's hash covers its place, time, kind, call, body and the hash before it, length-prefixed. That shows edits
//! in the middle, not a cut-off end or a chain rewritten as a whole: for those, a [`Checkpoint`] is signed and kept
//! where the daemon's host cannot change it, and the journal is verified against it later.

use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::event::ChainedEvent;
use crate::id::JournalId;
use crate::signing::{DaemonKey, PublicKey, Signature, SignatureError};
use serde::{Deserialize, Serialize};

/// The parts of an event that its hash covers.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// Its place.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its kind.
    pub kind: &'a str,
    /// The call it is about, or empty.
    pub call_id: &'a str,
    /// Its body.
    pub body: &'a str,
}

impl Link<'_> {
    /// The event's hash, given the one before it.
    #[must_use]
    pub fn hash(&self, prev: &Digest) -> Digest {
        DigestBuilder::new("palyra.journal-event.v1")
            .field(prev.as_bytes())
            .number(self.seq)
            .number(self.at.unix_ms())
            .field(self.kind.as_bytes())
            .field(self.call_id.as_bytes())
            .field(self.body.as_bytes())
            .finish()
    }
}

/// How an event fails to fit the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// Its number does not follow.
    #[error("event {found} stands where event {expected} should: events are missing or out of order")]
    Sequence {
        /// What should stand here.
        expected: u64,
        /// What does.
        found: u64,
    },
    /// It points at another predecessor.
    #[error("event {seq} does not follow the event before it: an event was removed, inserted or replaced")]
    Predecessor {
        /// The event.
        seq: u64,
    },
    /// Its content does not hash to its hash.
    #[error("event {seq} was changed after it was recorded: its content does not fit its hash")]
    Content {
        /// The event.
        seq: u64,
    },
    /// It cannot be read at all.
    #[error("event {seq} cannot be read: {reason}")]
    Unreadable {
        /// The event.
        seq: u64,
        /// Why.
        reason: String,
    },
}

impl ChainFault {
    /// The first event that does not fit.
    #[must_use]
    pub fn seq(&self) -> u64 {
        match self {
            Self::Sequence { expected, .. } => *expected,
            Self::Predecessor { seq } | Self::Content { seq } | Self::Unreadable { seq, .. } => *seq,
        }
    }
}

/// Follows a chain from its start.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    size: u64,
    head: Digest,
}

impl Default for ChainVerifier {
    fn default() -> Self {
        Self { size: 0, head: Digest::ZERO }
    }
}

impl ChainVerifier {
    /// Follows only the end of a chain, trusting everything up to and including event `size`.
    #[must_use]
    pub fn starting_after(size: u64, head: Digest) -> Self {
        Self { size, head }
    }

    /// How many events fitted so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The hash of the last one.
    #[must_use]
    pub fn head(&self) -> Digest {
        self.head
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// How it does not fit.
    pub fn follow(&mut self, link: Link<'_>, prev: &Digest, hash: &Digest) -> Result<(), ChainFault> {
        if link.seq != self.size + 1 {
            return Err(ChainFault::Sequence { expected: self.size + 1, found: link.seq });
        }
        if *prev != self.head {
            return Err(ChainFault::Predecessor { seq: link.seq });
        }
        if link.hash(prev) != *hash {
            return Err(ChainFault::Content { seq: link.seq });
        }
        self.size = link.seq;
        self.head = *hash;
        Ok(())
    }

    /// Takes the next event of an export.
    ///
    /// # Errors
    /// How it does not fit.
    pub fn follow_event(&mut self, event: &ChainedEvent) -> Result<(), ChainFault> {
        self.follow(event.link(), &event.prev, &event.hash)
    }
}

impl ChainedEvent {
    /// The parts that the hash covers.
    #[must_use]
    pub fn link(&self) -> Link<'_> {
        Link { seq: self.seq, at: self.at, kind: &self.kind, call_id: &self.call_id, body: &self.body }
    }
}

/// A signed statement of how long the journal was and what its last hash was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The journal.
    pub origin: JournalId,
    /// How many events it had.
    pub size: u64,
    /// The hash of the last one.
    pub head: Digest,
    /// When.
    pub at: Timestamp,
    /// The key that signed.
    pub public_key: PublicKey,
    /// The signature.
    pub signature: Signature,
}

impl Checkpoint {
    fn digest(origin: &JournalId, size: u64, head: &Digest, at: Timestamp) -> Digest {
        DigestBuilder::new("palyra.journal-checkpoint.v1")
            .field(origin.as_str().as_bytes())
            .number(size)
            .field(head.as_bytes())
            .number(at.unix_ms())
            .finish()
    }

    /// Signs the state of a journal.
    #[must_use]
    pub fn sign(origin: JournalId, size: u64, head: Digest, at: Timestamp, key: &DaemonKey) -> Self {
        let signature = key.sign(&Self::digest(&origin, size, &head, at));
        Self { origin, size, head, at, public_key: key.public(), signature }
    }

    /// Checks the signature.
    ///
    /// # Errors
    /// It does not fit.
    pub fn verify_signature(&self) -> Result<(), SignatureError> {
        self.public_key.verify(&Self::digest(&self.origin, self.size, &self.head, self.at), &self.signature)
    }
}

/// How a journal contradicts a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFault {
    /// The checkpoint itself is forged or damaged.
    #[error("the checkpoint's own signature does not hold")]
    Signature,
    /// Signed by another daemon.
    #[error("the checkpoint was signed by {found}; this journal's daemon signs with {expected}")]
    OtherKey {
        /// The key in the checkpoint.
        found: PublicKey,
        /// The daemon's key.
        expected: PublicKey,
    },
    /// Of another journal.
    #[error("the checkpoint is of journal {found}; this is journal {expected}")]
    OtherJournal {
        /// The journal in the checkpoint.
        found: JournalId,
        /// This journal.
        expected: JournalId,
    },
    /// The journal is shorter than it was.
    #[error("the journal has {found} events, the checkpoint saw {expected}: its end was cut off or it was rolled back")]
    Truncated {
        /// How many there are.
        found: u64,
        /// How many there were.
        expected: u64,
    },
    /// The journal says something else than it did.
    #[error("event {seq} is not the one the checkpoint saw: the journal was rewritten")]
    Rewritten {
        /// The checkpoint's last event.
        seq: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain(bodies: &[String]) -> Vec<ChainedEvent> {
        let mut prev = Digest::ZERO;
        let mut seq = 0;
        bodies
            .iter()
            .map(|body| {
                seq += 1;
                let link = Link { seq, at: Timestamp::from_unix_ms(seq), kind: "k", call_id: "", body };
                let hash = link.hash(&prev);
                let event = ChainedEvent {
                    seq,
                    at: link.at,
                    kind: "k".into(),
                    call_id: String::new(),
                    body: body.clone(),
                    prev,
                    hash,
                };
                prev = hash;
                event
            })
            .collect()
    }

    fn verify(events: &[ChainedEvent]) -> Result<Digest, ChainFault> {
        let mut verifier = ChainVerifier::default();
        events.iter().try_for_each(|event| verifier.follow_event(event))?;
        Ok(verifier.head())
    }

    proptest! {
        #[test]
        fn any_flipped_byte_is_found_at_its_event(
            bodies in proptest::collection::vec("[a-z]{1,12}", 2..8), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let mut events = chain(&bodies);
            prop_assert!(verify(&events).is_ok());
            let at = at.index(events.len());
            let mut bytes = events[at].body.clone().into_bytes();
            bytes[0] ^= 1 << bit;
            events[at].body = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert_eq!(verify(&events).unwrap_err().seq(), at as u64 + 1);
        }

        #[test]
        fn removing_or_swapping_is_found(bodies in proptest::collection::vec("[a-z]{1,12}", 3..8), at in any::<prop::sample::Index>()) {
            let events = chain(&bodies);
            let at = at.index(events.len() - 1);
            let mut removed = events.clone();
            removed.remove(at);
            prop_assert_eq!(verify(&removed).unwrap_err().seq(), at as u64 + 1);
            let mut swapped = events;
            swapped.swap(at, at + 1);
            prop_assert!(verify(&swapped).is_err());
        }
    }

    #[test]
    fn checkpoints_notice_every_change() {
        let key = DaemonKey::generate().unwrap();
        let now = Timestamp::from_unix_ms(5);
        let good = Checkpoint::sign(JournalId::mint(), 3, Digest::of(b"head"), now, &key);
        assert_eq!(good.verify_signature(), Ok(()));
        for forged in [
            Checkpoint { size: 2, ..good.clone() },
            Checkpoint { head: Digest::ZERO, ..good.clone() },
            Checkpoint { at: Timestamp::from_unix_ms(6), ..good.clone() },
            Checkpoint { origin: JournalId::mint(), ..good },
        ] {
            assert!(forged.verify_signature().is_err());
        }
    }
}
