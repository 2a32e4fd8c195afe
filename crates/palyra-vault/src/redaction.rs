//! Redaction: released values, in any usual encoding, never reach an agent, a log or the journal.
//!
//! A [`Redactor`] is made from the values that a run was given. It finds each of them as it is, in Base64 in its three
//! alignments and two alphabets, in hexadecimal digits, percent-encoded and escaped for JSON; [`forms`] has the list. A
//! value that is longer than a line is looked for in pieces, so that a part of it is found too. [`RedactionStream`]
//! does the same for bytes that arrive in chunks, whatever the chunks are.
//!
//! How it is fast: an automaton over ten thousand patterns misses the cache at every byte. So [`lane`] looks at a few
//! bytes every few positions and asks a small bitmap whether they are part of any pattern; only where the bitmap says
//! yes is the automaton run, over a few bytes. The work is bounded for each byte, whatever the text is, and the
//! bitmap's hash is keyed by random numbers, so that no text can be made to hit it.
//!
//! What it does not find: a value that was reversed, encrypted, compressed, cut into parts of less than a piece, or
//! wrapped at odd widths. It is the last net under secrets that a process should not have held in the first place. The
//! automaton keeps up to sixteen bytes of each pattern in memory that is not wiped; everything else here is.

mod forms;
mod lane;
mod stream;

pub use stream::{Mask, RedactionStream, StreamEnd};

use crate::error::VaultError;
use crate::value::SecretValue;
use lane::Lane;
use palyra_protocol::SecretRef;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What stands in a text where a value was.
pub const MARKER: &str = "[redacted]";
/// The shortest value that is looked for: anything shorter is part of every other text.
pub const MIN_REDACTED: usize = 4;
/// Patterns from this length on are looked for in long steps.
const LONG: usize = 12;

/// How well a value can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// In every encoding of the list.
    Full,
    /// Not at all: it is shorter than [`MIN_REDACTED`].
    TooShort,
}

/// A part of a form of a value.
pub(crate) struct Piece {
    /// Which value.
    value: usize,
    bytes: Zeroizing<Vec<u8>>,
}

/// Where a value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    start: usize,
    end: usize,
    value: usize,
}

/// Collects the values that a run was given.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "it holds values of secrets")]
pub struct RedactorBuilder {
    references: Vec<SecretRef>,
    pieces: Vec<Piece>,
}

impl RedactorBuilder {
    /// Also looks for this value.
    pub fn add(&mut self, reference: &SecretRef, value: &SecretValue) -> Coverage {
        let forms = forms::of(value.expose());
        if forms.is_empty() {
            return Coverage::TooShort;
        }
        let known = self.references.iter().position(|known| known == reference);
        let value = known.unwrap_or_else(|| {
            self.references.push(reference.clone());
            self.references.len() - 1
        });
        self.pieces.extend(forms.into_iter().map(|bytes| Piece { value, bytes }));
        Coverage::Full
    }

    /// The redactor.
    ///
    /// # Errors
    /// There are more patterns than the automaton takes, or the machine gives no randomness.
    pub fn build(self) -> Result<Redactor, VaultError> {
        let Self { references, mut pieces } = self;
        pieces.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.value.cmp(&b.value)));
        pieces.dedup_by(|a, b| a.bytes == b.bytes);
        let longest = pieces.iter().map(|piece| piece.bytes.len()).max().unwrap_or(0);
        let mut begins = vec![0_u64; 1024];
        for piece in &pieces {
            let (word, bit) = pair(&piece.bytes);
            begins[word] |= bit;
        }
        let mut lanes = Vec::new();
        for is_long in [true, false] {
            let of_lane = |piece: &Piece| (piece.bytes.len() >= LONG) == is_long;
            lanes.extend(Lane::new(&pieces, of_lane)?);
        }
        Ok(Redactor { references, pieces, lanes, longest, begins })
    }
}

/// Finds released values.
pub struct Redactor {
    references: Vec<SecretRef>,
    /// Sorted by their bytes, each once.
    pieces: Vec<Piece>,
    lanes: Vec<Lane>,
    longest: usize,
    /// Which pairs of bytes a piece begins with.
    begins: Vec<u64>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("references", &self.references).finish_non_exhaustive()
    }
}

/// What was found, by secret.
pub type Redactions = Vec<(SecretRef, u64)>;

impl Redactor {
    /// Collects values.
    #[must_use]
    pub fn builder() -> RedactorBuilder {
        RedactorBuilder::default()
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The secrets whose values occur in a text.
    #[must_use]
    pub fn contained(&self, text: &[u8]) -> Vec<&SecretRef> {
        let mut values: Vec<usize> = self.find(text).iter().map(|found| found.value).collect();
        values.sort_unstable();
        values.dedup();
        values.into_iter().filter_map(|value| self.references.get(value)).collect()
    }

    /// A text without the values that occur in it; nothing if none does.
    #[must_use]
    pub fn redact(self: &Arc<Self>, text: &[u8], mask: Mask) -> Option<(Vec<u8>, Redactions)> {
        if self.find(text).is_empty() {
            return None;
        }
        let mut stream = RedactionStream::new(Arc::clone(self), mask);
        let mut out = Vec::with_capacity(text.len());
        stream.push(text, &mut out);
        stream.finish(StreamEnd::Whole, &mut out);
        Some((out, stream.redactions()))
    }

    /// The same for a text in UTF-8.
    #[must_use]
    pub fn redact_text(self: &Arc<Self>, text: &str) -> Option<(String, Redactions)> {
        let (bytes, redactions) = self.redact(text.as_bytes(), Mask::Marker)?;
        // A value may begin or end within a character.
        Some((String::from_utf8_lossy(&bytes).into_owned(), redactions))
    }

    /// Redacts every text and every key of a JSON document, in place.
    pub fn redact_json(self: &Arc<Self>, document: &mut serde_json::Value) -> Redactions {
        let mut counts = HashMap::new();
        self.redact_value(document, &mut counts);
        let mut redactions: Redactions = counts.into_iter().collect();
        redactions.sort();
        redactions
    }

    fn redact_value(self: &Arc<Self>, value: &mut serde_json::Value, counts: &mut HashMap<SecretRef, u64>) {
        use serde_json::Value;
        match value {
            Value::Null | Value::Bool(_) => {}
            // A value of digits alone would be a number here.
            Value::Number(number) => {
                if let Some(text) = self.replaced(&number.to_string(), counts) {
                    *value = Value::String(text);
                }
            }
            Value::String(text) => {
                if let Some(redacted) = self.replaced(text, counts) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item, counts)),
            Value::Object(map) => {
                for (key, mut value) in std::mem::take(map) {
                    self.redact_value(&mut value, counts);
                    map.insert(self.replaced(&key, counts).unwrap_or(key), value);
                }
            }
        }
    }

    fn replaced(self: &Arc<Self>, text: &str, counts: &mut HashMap<SecretRef, u64>) -> Option<String> {
        let (redacted, redactions) = self.redact_text(text)?;
        for (reference, count) in redactions {
            *counts.entry(reference).or_default() += count;
        }
        Some(redacted)
    }

    /// Every occurrence, in order of where it starts.
    fn find(&self, text: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        for lane in &self.lanes {
            lane.find(&self.pieces, text, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Where the longest end of a text starts that may be the beginning of a piece; the text's length if none may.
    fn open_end(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.longest.saturating_sub(1));
        (from..text.len()).find(|start| self.may_begin(&text[*start..])).unwrap_or(text.len())
    }

    /// Whether a piece begins with this and is longer.
    fn may_begin(&self, end: &[u8]) -> bool {
        if end.len() >= 2 {
            let (word, bit) = pair(end);
            if self.begins[word] & bit == 0 {
                return false;
            }
        }
        // The first piece that is not less than `end`, and not `end` itself: pieces that begin with it follow here.
        let at = self.pieces.partition_point(|piece| piece.bytes.as_slice() <= end);
        self.pieces.get(at).is_some_and(|piece| piece.bytes.starts_with(end))
    }
}

/// Where the first two bytes are in a bitmap of all pairs.
fn pair(bytes: &[u8]) -> (usize, u64) {
    let pair = usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    (pair / 64, 1 << (pair % 64))
}

#[cfg(test)]
mod tests;
