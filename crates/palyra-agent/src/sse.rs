//! Server-sent events, read from a stream of bytes (WHATWG HTML, section 9.2).
//!
//! Pieces arrive cut anywhere. A line and an event have a largest size; a stream that exceeds it is an error, not
//! memory.

/// The longest line.
const MAX_LINE_BYTES: usize = 4 << 20;
/// The longest data of one event.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its kind; empty where the stream names none.
    pub event: String,
    /// Its data, lines joined.
    pub data: String,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// A line or an event is too long.
    #[error("a line or event of the stream is too long")]
    TooLong,
    /// The bytes are not text.
    #[error("the stream is not UTF-8")]
    NotText,
}

/// Reads a stream.
#[derive(Debug, Default)]
pub(crate) struct SseReader {
    line: Vec<u8>,
    after_return: bool,
    started: bool,
    current: SseEvent,
    has_data: bool,
}

impl SseReader {
    /// Takes the next bytes; hands every event that they complete to `each`.
    ///
    /// # Errors
    /// The stream is not one.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(SseEvent)) -> Result<(), SseError> {
        for byte in bytes {
            let newline_of_pair = self.after_return && *byte == b'\n';
            self.after_return = *byte == b'\r';
            if newline_of_pair {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                let line = std::mem::take(&mut self.line);
                if let Some(event) = self.end_line(&line)? {
                    each(event);
                }
                self.line = line;
                self.line.clear();
            } else if self.line.len() == MAX_LINE_BYTES {
                return Err(SseError::TooLong);
            } else {
                self.line.push(*byte);
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) -> Result<Option<SseEvent>, SseError> {
        let text = std::str::from_utf8(line).map_err(|_| SseError::NotText)?;
        let text = if self.started { text } else { text.strip_prefix('\u{feff}').unwrap_or(text) };
        self.started = true;
        if text.is_empty() {
            let event = std::mem::take(&mut self.current);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.current.data.len() + value.len() > MAX_EVENT_BYTES {
                    return Err(SseError::TooLong);
                }
                if self.has_data {
                    self.current.data.push('\n');
                }
                self.has_data = true;
                self.current.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.current.event),
            // Comments begin with a colon; `id` and `retry` do not matter here.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, |event| events.push((event.event, event.data))).unwrap();
        }
        events
    }

    fn pair(event: &str, data: &str) -> (String, String) {
        (event.to_owned(), data.to_owned())
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let text = b"\xef\xbb\xbf: comment\n\ndata: one\n\nevent: x\r\ndata: a\r\ndata:b\r\rdata\n\nid: 7\nretry: 1\n\ndata: cut";
        assert_eq!(read(&[text]), [pair("", "one"), pair("x", "a\nb"), pair("", "")]);
    }

    #[test]
    fn limits_and_encoding_are_held() {
        let mut reader = SseReader::default();
        assert_eq!(reader.push(&vec![b'x'; MAX_LINE_BYTES + 1], |_| {}), Err(SseError::TooLong));
        let mut reader = SseReader::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; MAX_LINE_BYTES - 10], b"\n"].concat();
        let many = (0..3).try_for_each(|_| reader.push(&line, |_| {}));
        assert_eq!(many, Err(SseError::TooLong));
        assert_eq!(SseReader::default().push(b"data: \xff\n", |_| {}), Err(SseError::NotText));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "(data: [a-z]{0,5}|event: [a-z]|:x|\r\n|\n|\r){0,20}\n\n", cut in 0_usize..100) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(read(&[bytes]), read(&[&bytes[..cut], &bytes[cut..]]));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&[bytes]), read(&single));
        }
    }
}
