//! What a running process writes, for whoever watches while it runs.
//!
//! The newest part of the output is kept in a ring of fixed size. The process's own thread puts pieces in and never
//! waits; a watcher takes them at its own speed and learns from the offsets what it was too slow for. Nothing depends
//! on it: what is kept of the output is in the outcome, whether or not anybody watched.

use palyra_sandbox::{OutputSink, OutputStream};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// How much of the output waits for slow watchers.
const RING_BYTES: usize = 256 << 10;
/// How many pieces wait: a process that writes single bytes to both streams by turns must not make the ring costly.
const RING_PIECES: usize = 8192;
/// The largest piece that a watcher is given.
const PIECE_BYTES: usize = 16 << 10;

/// A piece of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Which stream.
    pub stream: OutputStream,
    /// Where in that stream it begins. More than where the last piece ended: what lies between was dropped.
    pub offset: u64,
    /// The bytes, as they were written.
    pub bytes: Vec<u8>,
}

/// The newest output of one call.
#[derive(Debug, Default)]
struct Ring {
    /// In the order of writing, each with its place in all that was written to both streams.
    pieces: VecDeque<(u64, OutputPiece)>,
    held: usize,
    written: [u64; 2],
}

fn at(stream: OutputStream) -> usize {
    match stream {
        OutputStream::Stdout => 0,
        OutputStream::Stderr => 1,
    }
}

impl Ring {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        for part in bytes.chunks(PIECE_BYTES) {
            match self.pieces.back_mut() {
                Some((_, last)) if last.stream == stream && last.bytes.len() + part.len() <= PIECE_BYTES => {
                    last.bytes.extend_from_slice(part);
                }
                _ => {
                    let offset = self.written[at(stream)];
                    let place = self.written.iter().sum();
                    self.pieces.push_back((place, OutputPiece { stream, offset, bytes: part.to_vec() }));
                }
            }
            self.written[at(stream)] += part.len() as u64;
            self.held += part.len();
        }
        while self.held > RING_BYTES || self.pieces.len() > RING_PIECES {
            let Some((_, oldest)) = self.pieces.pop_front() else { break };
            self.held -= oldest.bytes.len();
        }
    }

    /// The oldest piece that a watcher who has come to this place has not seen, and the place behind it.
    fn after(&self, seen: u64) -> Option<(u64, OutputPiece)> {
        let end = |(place, piece): &(u64, OutputPiece)| place + piece.bytes.len() as u64;
        let next = self.pieces.get(self.pieces.partition_point(|entry| end(entry) <= seen))?;
        let (place, OutputPiece { stream, offset, bytes }) = next;
        // The last piece may have grown since it was seen.
        let known = seen.saturating_sub(*place);
        let bytes = bytes[usize::try_from(known).unwrap_or(0)..].to_vec();
        Some((end(next), OutputPiece { stream: *stream, offset: offset + known, bytes }))
    }
}

/// Where a call's process writes to.
#[derive(Debug, Clone)]
pub(crate) struct LiveOutput(Arc<watch::Sender<Ring>>);

impl Default for LiveOutput {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Ring::default())))
    }
}

impl LiveOutput {
    /// Somebody begins to watch: at the oldest piece that is still there.
    pub(crate) fn watch(&self) -> OutputWatcher {
        self.watch_after(0)
    }

    /// The same for somebody who has seen so many bytes of both streams already.
    pub(crate) fn watch_after(&self, seen: u64) -> OutputWatcher {
        OutputWatcher { ring: self.0.subscribe(), seen }
    }
}

impl OutputSink for LiveOutput {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        // Watchers hold the lock only while they copy one piece.
        self.0.send_modify(|ring| ring.push(stream, bytes));
    }
}

/// One who watches.
#[derive(Debug)]
pub struct OutputWatcher {
    ring: watch::Receiver<Ring>,
    seen: u64,
}

impl OutputWatcher {
    /// How far the watcher has come in all that was written to both streams.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// The next piece that is there already.
    pub fn ready(&mut self) -> Option<OutputPiece> {
        let (seen, piece) = self.ring.borrow_and_update().after(self.seen)?;
        self.seen = seen;
        Some(piece)
    }

    /// Waits for the next piece; nothing when no more can come.
    pub async fn next(&mut self) -> Option<OutputPiece> {
        loop {
            if let Some(piece) = self.ready() {
                return Some(piece);
            }
            if self.ring.changed().await.is_err() {
                return self.ready();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};
    use proptest::prelude::*;

    fn piece(stream: OutputStream, offset: u64, bytes: &[u8]) -> OutputPiece {
        OutputPiece { stream, offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn pieces_come_in_order_and_only_once() {
        let mut live = LiveOutput::default();
        let mut early = live.watch();
        assert_eq!(early.ready(), None);
        live.chunk(Stdout, b"a");
        assert_eq!(early.ready(), Some(piece(Stdout, 0, b"a")));
        live.chunk(Stdout, b"b\xff\0");
        live.chunk(Stderr, b"c");
        live.chunk(Stdout, b"d");
        assert_eq!(early.ready(), Some(piece(Stdout, 1, b"b\xff\0")));
        assert_eq!(early.ready(), Some(piece(Stderr, 0, b"c")));
        assert_eq!(early.ready(), Some(piece(Stdout, 4, b"d")));
        assert_eq!(early.ready(), None);
        assert_eq!(live.watch().ready(), Some(piece(Stdout, 0, b"ab\xff\0")), "a late one gets what is there");
    }

    #[test]
    fn one_who_is_too_slow_learns_how_much_was_dropped() {
        let mut live = LiveOutput::default();
        let mut slow = live.watch();
        let all = 4 * RING_BYTES as u64;
        for _ in 0..all / 1000 {
            live.chunk(Stdout, &[b'x'; 1000]);
        }
        let first = slow.ready().unwrap();
        assert!(first.offset >= all / 1000 * 1000 - RING_BYTES as u64 && first.offset > 0, "{}", first.offset);
        let mut next = first.offset + first.bytes.len() as u64;
        while let Some(piece) = slow.ready() {
            assert_eq!(piece.offset, next, "no second gap");
            next += piece.bytes.len() as u64;
        }
        assert_eq!(next, all / 1000 * 1000);
    }

    #[tokio::test]
    async fn watching_ends_with_the_process() {
        let mut live = LiveOutput::default();
        let mut watcher = live.watch();
        live.chunk(Stderr, b"last words");
        drop(live);
        assert_eq!(watcher.next().await, Some(piece(Stderr, 0, b"last words")));
        assert_eq!(watcher.next().await, None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever is written in whatever pieces, the ring stays small, and a watcher gets the true bytes of both
        /// streams.
        #[test]
        fn memory_is_bounded_and_bytes_are_true(
            writes in prop::collection::vec((any::<bool>(), 0_usize..40_000, any::<bool>()), 1..80)
        ) {
            let mut live = LiveOutput::default();
            let mut watcher = live.watch();
            let mut written = [0_u64; 2];
            let truth = |stream: OutputStream, offset: u64| (offset as u8).wrapping_add(at(stream) as u8 * 100);
            let check = |watcher: &mut OutputWatcher| {
                while let Some(piece) = watcher.ready() {
                    for (i, byte) in piece.bytes.iter().enumerate() {
                        assert_eq!(*byte, truth(piece.stream, piece.offset + i as u64));
                    }
                }
            };
            for (first, length, look) in writes {
                let stream = if first { Stdout } else { Stderr };
                let from = written[at(stream)];
                let bytes: Vec<u8> = (0..length as u64).map(|i| truth(stream, from + i)).collect();
                written[at(stream)] += length as u64;
                live.chunk(stream, &bytes);
                let ring = live.0.borrow();
                prop_assert!(ring.held <= RING_BYTES && ring.pieces.len() <= RING_PIECES);
                prop_assert_eq!(ring.held, ring.pieces.iter().map(|(_, p)| p.bytes.len()).sum::<usize>());
                drop(ring);
                if look {
                    check(&mut watcher);
                }
            }
            check(&mut watcher);
            prop_assert_eq!(watcher.seen, written.iter().sum::<u64>());
        }
    }
}
