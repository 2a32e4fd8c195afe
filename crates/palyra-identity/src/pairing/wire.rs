//! Frames and fields: how pairing messages stand on the wire.
//!
//! A frame is a length (two bytes, big-endian) and so many bytes, at least one and at most [`MAX_FRAME`]. Inside,
//! fields follow each other in a fixed order; those whose length varies have it in front, in two bytes. Nothing may be
//! left over.

/// The most bytes of one message.
pub const MAX_FRAME: usize = 12 * 1024;
/// How many bytes a length takes.
const PREFIX: usize = 2;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is longer than any message.
    #[error("a message is longer than {MAX_FRAME} bytes")]
    TooLarge,
    /// A part is missing, too long, or not what belongs there.
    #[error("a message has no proper {0}")]
    Malformed(&'static str),
    /// It is another message than the one that is next.
    #[error("a message came that is not the next one")]
    Unexpected,
    /// It is of a version that is not spoken here.
    #[error("the other side speaks version {0} of the pairing protocol")]
    Version(u8),
}

impl MessageError {
    /// The stable machine code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "pairing_message_too_large",
            Self::Malformed(_) => "pairing_message_malformed",
            Self::Unexpected => "pairing_message_unexpected",
            Self::Version(_) => "pairing_version",
        }
    }
}

/// Puts frames together from bytes as they arrive. It never holds more than one frame and what came behind it in one
/// piece.
#[derive(Debug, Default)]
pub struct FrameReader(Vec<u8>);

impl FrameReader {
    /// How many bytes to read at a time.
    pub const PIECE: usize = 4096;

    /// Takes bytes that arrived, one piece at a time.
    ///
    /// # Errors
    /// More arrived than one message and one piece can have.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), MessageError> {
        if self.0.len() + bytes.len() > PREFIX + MAX_FRAME + Self::PIECE {
            return Err(MessageError::TooLarge);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The next message, once it is whole.
    ///
    /// # Errors
    /// Its length is none that a message has.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, MessageError> {
        let Some((prefix, rest)) = self.0.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*prefix));
        if length == 0 {
            return Err(MessageError::Malformed("length"));
        }
        if length > MAX_FRAME {
            return Err(MessageError::TooLarge);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let message = rest[..length].to_vec();
        self.0.drain(..PREFIX + length);
        Ok(Some(message))
    }
}

/// A message with its length in front.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = Writer::default();
    frame.field(message);
    frame.0
}

/// Writes fields one after the other. Nothing that is written here is longer than a message may be.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.fixed(&length.to_be_bytes()).fixed(&bytes[..usize::from(length)])
    }
}

/// Reads fields one after the other.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(crate) fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], MessageError> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(MessageError::Malformed(what))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn field(&mut self, most: usize, what: &'static str) -> Result<&'a [u8], MessageError> {
        let length = usize::from(u16::from_be_bytes(self.fixed(what)?));
        if length > most || length > self.0.len() {
            return Err(MessageError::Malformed(what));
        }
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, most: usize, what: &'static str) -> Result<&'a str, MessageError> {
        std::str::from_utf8(self.field(most, what)?).map_err(|_| MessageError::Malformed(what))
    }

    pub(crate) fn end(self) -> Result<(), MessageError> {
        if self.0.is_empty() { Ok(()) } else { Err(MessageError::Malformed("end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_however_they_are_cut() {
        let sent = [frame(b"one"), frame(&[7; MAX_FRAME]), frame(b"x")];
        for size in [1, 2, 3, 1000] {
            let (mut reader, mut came) = (FrameReader::default(), Vec::new());
            for piece in sent.concat().chunks(size) {
                reader.push(piece).unwrap();
                while let Some(message) = reader.take().unwrap() {
                    came.push(message);
                }
            }
            assert_eq!(came, [b"one".to_vec(), vec![7; MAX_FRAME], b"x".to_vec()], "in pieces of {size}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let mut reader = FrameReader::default();
        reader.push(&[0, 0]).unwrap();
        assert_eq!(reader.take(), Err(MessageError::Malformed("length")));
        let mut reader = FrameReader::default();
        reader.push(&[0xff, 0xff]).unwrap();
        assert_eq!(reader.take(), Err(MessageError::TooLarge));
        let mut reader = FrameReader::default();
        assert_eq!(reader.push(&vec![0; MAX_FRAME + FrameReader::PIECE + 3]), Err(MessageError::TooLarge));
    }
}
