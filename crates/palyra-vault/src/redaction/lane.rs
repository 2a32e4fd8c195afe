//! One pass over a text for pieces of about the same length.
//!
//! Each piece has an anchor: `width` bytes from its middle, where values differ most. A text that holds the piece holds
//! the anchor, and one of the anchor's first `step` places is a multiple of `step` in the text. So it is enough to look
//! at the `gram` bytes at every such multiple: if they are at one of the first `step` places of any anchor, the anchor
//! may be here.

use super::{Found, Piece};
use crate::aead::random_array;
use crate::error::VaultError;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use std::collections::HashMap;

/// The longest anchor.
const WIDEST: usize = 16;
/// From this width on, eight bytes are looked at instead of four.
const WIDE: usize = 12;

pub(super) struct Lane {
    width: usize,
    gram: usize,
    step: usize,
    grams: Grams,
    anchors: AhoCorasick,
    /// The pieces that have an anchor, by its number.
    owners: Vec<Vec<Owner>>,
}

struct Owner {
    piece: usize,
    /// Where in the piece the anchor is.
    at: usize,
}

impl Lane {
    /// A lane for some of the pieces; nothing if there are none.
    pub(super) fn new(pieces: &[Piece], of_lane: impl Fn(&Piece) -> bool) -> Result<Option<Self>, VaultError> {
        let chosen = || pieces.iter().enumerate().filter(|(_, piece)| of_lane(piece));
        let Some(width) = chosen().map(|(_, piece)| piece.bytes.len().min(WIDEST)).min() else { return Ok(None) };
        let gram = if width >= WIDE { 8 } else { 4 };
        let step = width - gram + 1;
        let mut anchors: HashMap<&[u8], Vec<Owner>> = HashMap::new();
        for (piece, Piece { bytes, .. }) in chosen() {
            let at = (bytes.len() - width) / 2;
            anchors.entry(&bytes[at..at + width]).or_default().push(Owner { piece, at });
        }
        let (texts, owners): (Vec<&[u8]>, Vec<Vec<Owner>>) = anchors.into_iter().unzip();
        let mut grams = Grams::new(texts.len() * step)?;
        for text in &texts {
            for place in 0..step {
                grams.add(load(&text[place..], gram));
            }
        }
        let anchors = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .match_kind(MatchKind::Standard)
            .build(&texts)
            .map_err(|_| VaultError::Internal { what: "there are too many values to look for" })?;
        Ok(Some(Self { width, gram, step, grams, anchors, owners }))
    }

    /// Adds every occurrence in a text.
    pub(super) fn find(&self, pieces: &[Piece], text: &[u8], found: &mut Vec<Found>) {
        match self.gram {
            8 => self.scan(text, |bytes| bytes.first_chunk().map(|gram| u64::from_le_bytes(*gram)), pieces, found),
            _ => {
                let load = |bytes: &[u8]| bytes.first_chunk().map(|gram| u64::from(u32::from_le_bytes(*gram)));
                self.scan(text, load, pieces, found);
            }
        }
    }

    fn scan(&self, text: &[u8], load: impl Fn(&[u8]) -> Option<u64>, pieces: &[Piece], found: &mut Vec<Found>) {
        let mut at = 0;
        while let Some(gram) = text.get(at..).and_then(&load) {
            if self.grams.may_have(gram) {
                self.look_closer(text, at, pieces, found);
            }
            at += self.step;
        }
    }

    /// Looks for anchors that begin at most `step` places before this one, and for their pieces around them.
    fn look_closer(&self, text: &[u8], at: usize, pieces: &[Piece], found: &mut Vec<Found>) {
        let from = (at + 1).saturating_sub(self.step);
        let to = text.len().min(at + self.width);
        for anchor in self.anchors.find_overlapping_iter(&text[from..to]) {
            let start = from + anchor.start();
            for owner in &self.owners[anchor.pattern().as_usize()] {
                let piece = &pieces[owner.piece];
                let Some(start) = start.checked_sub(owner.at) else { continue };
                if text[start..].starts_with(&piece.bytes) {
                    found.push(Found { start, end: start + piece.bytes.len(), value: piece.value });
                }
            }
        }
    }
}

/// The first bytes as a number.
fn load(bytes: &[u8], count: usize) -> u64 {
    bytes[..count].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A set of numbers that may say yes to others too: two bits of a bitmap for each.
struct Grams {
    bits: Vec<u64>,
    shift: u32,
    keys: [u64; 2],
}

impl Grams {
    fn new(count: usize) -> Result<Self, VaultError> {
        // Few bits are set then, and the bitmap still fits the cache.
        let bits = (count * 32).next_power_of_two().clamp(1 << 12, 1 << 23);
        let keys: [u8; 16] = random_array()?;
        let (first, second) = keys.split_at(8);
        Ok(Self {
            bits: vec![0; bits / 64],
            shift: 64 - bits.trailing_zeros(),
            keys: [load(first, 8) | 1, load(second, 8) | 1],
        })
    }

    fn add(&mut self, gram: u64) {
        for key in self.keys {
            let (word, bit) = self.place(gram, key);
            self.bits[word] |= bit;
        }
    }

    #[inline]
    fn may_have(&self, gram: u64) -> bool {
        let [first, second] = self.keys;
        self.is_set(gram, first) && self.is_set(gram, second)
    }

    #[inline]
    fn is_set(&self, gram: u64, key: u64) -> bool {
        let (word, bit) = self.place(gram, key);
        self.bits[word] & bit != 0
    }

    #[inline]
    fn place(&self, gram: u64, key: u64) -> (usize, u64) {
        let hash = gram.wrapping_mul(key) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }
}
