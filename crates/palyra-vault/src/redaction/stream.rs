//! Redaction of bytes that arrive in chunks.
//!
//! What was read is passed on at once, but for an end that may be the beginning of a value: that waits for the next
//! chunk. So the result does not depend on how the bytes were cut, and at most a piece's length is held back.

use super::{Found, MARKER, MIN_REDACTED, Redactions, Redactor};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What stands where a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// The word `[redacted]`, once for each run of values.
    Marker,
    /// An asterisk for each byte: where lengths must stay, as in an HTTP body.
    SameLength,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// By itself.
    Whole,
    /// It was cut off: what may be the beginning of a value is redacted too.
    Cut,
}

/// Redacts a stream.
pub struct RedactionStream {
    redactor: Arc<Redactor>,
    mask: Mask,
    /// What was read and not passed on.
    held: Zeroizing<Vec<u8>>,
    /// How many of the held bytes are part of a value that began before.
    covered: usize,
    /// Whether the last byte that was passed on stands for a value.
    masked: bool,
    counts: Vec<u64>,
}

impl std::fmt::Debug for RedactionStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedactionStream").field("mask", &self.mask).finish_non_exhaustive()
    }
}

impl RedactionStream {
    /// A stream that has not begun.
    #[must_use]
    pub fn new(redactor: Arc<Redactor>, mask: Mask) -> Self {
        let counts = vec![0; redactor.references.len()];
        Self { redactor, mask, held: Zeroizing::default(), covered: 0, masked: false, counts }
    }

    /// Reads a chunk and passes on what is certain.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        if self.redactor.is_empty() {
            out.extend_from_slice(chunk);
            return;
        }
        if self.held.is_empty() {
            self.pass(chunk, out);
        } else {
            let mut text = Zeroizing::new(Vec::with_capacity(self.held.len() + chunk.len()));
            text.extend_from_slice(&self.held);
            text.extend_from_slice(chunk);
            self.pass(&text, out);
        }
    }

    /// `text` is what was held and what came.
    fn pass(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let found = self.count(text, self.held.len());
        let certain = self.redactor.open_end(text);
        self.emit(text, &found, certain, out);
        self.held = Zeroizing::new(text[certain..].to_vec());
    }

    /// Passes on what was held back.
    pub fn finish(&mut self, end: StreamEnd, out: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.held);
        let mut found = self.count(&text, text.len());
        let open = self.redactor.open_end(&text);
        if end == StreamEnd::Cut && text.len() - open >= MIN_REDACTED {
            found.push(Found { start: open, end: text.len(), value: 0 });
        }
        self.emit(&text, &found, text.len(), out);
    }

    /// What was found until now, by secret.
    #[must_use]
    pub fn redactions(&self) -> Redactions {
        let counted = self.redactor.references.iter().zip(&self.counts).filter(|(_, count)| **count > 0);
        counted.map(|(reference, count)| (reference.clone(), *count)).collect()
    }

    /// Finds values, and counts those that end after what was known before.
    fn count(&mut self, text: &[u8], known: usize) -> Vec<Found> {
        let found = self.redactor.find(text);
        for new in found.iter().filter(|found| found.end > known) {
            self.counts[new.value] += 1;
        }
        found
    }

    /// Passes on the text up to `certain`.
    fn emit(&mut self, text: &[u8], found: &[Found], certain: usize, out: &mut Vec<u8>) {
        let mut at = 0;
        let mut hidden = self.covered;
        let before = (hidden > 0).then_some((0, hidden));
        for (start, end) in before.into_iter().chain(found.iter().map(|found| (found.start, found.end))) {
            if start >= certain {
                break;
            }
            if start > at {
                self.show(&text[at..start], out);
                at = start;
            }
            if end > at {
                self.hide(end.min(certain) - at, out);
                at = end.min(certain);
            }
            hidden = hidden.max(end);
        }
        if certain > at {
            self.show(&text[at..certain], out);
        }
        self.covered = hidden.saturating_sub(certain);
    }

    fn show(&mut self, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(text);
        self.masked = false;
    }

    fn hide(&mut self, count: usize, out: &mut Vec<u8>) {
        match self.mask {
            Mask::SameLength => out.resize(out.len() + count, b'*'),
            Mask::Marker if !self.masked => out.extend_from_slice(MARKER.as_bytes()),
            Mask::Marker => {}
        }
        self.masked = true;
    }
}
