//! The entries of the fuzz targets: hostile bytes in, a broken promise is a panic.

use crate::providers::Dialect;
use crate::reply::{MAX_REPLY_BYTES, MAX_TOOL_CALLS, ModelReply};
use crate::sse::SseReader;

/// Reads the bytes as a stream of every provider.
///
/// # Panics
/// When a promise of the readers is broken.
pub fn model_stream(bytes: &[u8]) {
    for dialect in [Dialect::ChatCompletions, Dialect::Responses, Dialect::Messages] {
        let (mut reader, mut decoder, mut reply) = (SseReader::default(), dialect.decoder(), ModelReply::default());
        for piece in bytes.chunks(7) {
            let mut events = Vec::new();
            if reader.push(piece, |event| events.push(event)).is_err() {
                break;
            }
            let pieces = events.iter().filter_map(|event| decoder.take(event).ok()).flatten();
            if pieces.into_iter().any(|piece| reply.take(&piece).is_err()) {
                break;
            }
            assert!(reply.tool_calls.len() <= MAX_TOOL_CALLS, "calls are bounded");
            assert!(reply.text.len() <= MAX_REPLY_BYTES, "text is bounded");
        }
    }
}
