//! The forms in which a value may appear.
//!
//! | form | what is looked for |
//! |---|---|
//! | as it is | the value without line ends at its end; each long line of a value of several lines |
//! | Base64, standard and URL-safe | the characters that the value alone determines, for each of the three places at which it can begin |
//! | Base64 in lines of 64 or 76 | each line, where the value begins the text |
//! | hexadecimal | lower and upper case |
//! | percent-encoding | all but unreserved characters, as `encodeURI` does it, with `+` for blanks, every byte; both cases |
//! | JSON | as usual, with `\/`, and with `\u` for what is not ASCII, both cases |

use super::MIN_REDACTED;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::fmt::Write as _;
use zeroize::Zeroizing;

/// How long the pieces of a long form are: a line of PEM.
const PIECE: usize = 64;
/// A line of MIME.
const MIME_LINE: usize = 76;
/// The shortest piece of a long form; what would be shorter is part of the one before.
const SHORTEST_PIECE: usize = 16;
/// The shortest last line that is looked for by itself.
const SHORTEST_LINE: usize = 8;

type Bytes = Zeroizing<Vec<u8>>;

/// Every piece of every form; none for a value that is too short.
pub(super) fn of(value: &[u8]) -> Vec<Bytes> {
    let end = value.iter().rposition(|b| !matches!(b, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let core = &value[..end];
    if core.len() < MIN_REDACTED {
        return Vec::new();
    }
    let mut pieces = Pieces(Vec::new());
    pieces.add(core);
    for line in core.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| line.len() >= SHORTEST_PIECE) {
        pieces.add(line);
    }
    base64_forms(core, &mut pieces);
    hex_and_percent_forms(core, &mut pieces);
    if let Ok(text) = std::str::from_utf8(core) {
        json_forms(text, &mut pieces);
    }
    pieces.0.sort_by(|a, b| a.as_slice().cmp(b));
    pieces.0.dedup();
    pieces.0
}

struct Pieces(Vec<Bytes>);

impl Pieces {
    /// Adds a form, in pieces if it is long.
    fn add(&mut self, mut form: &[u8]) {
        while form.len() >= PIECE + SHORTEST_PIECE {
            let (piece, rest) = form.split_at(PIECE);
            self.0.push(Zeroizing::new(piece.to_vec()));
            form = rest;
        }
        if form.len() >= MIN_REDACTED {
            self.0.push(Zeroizing::new(form.to_vec()));
        }
    }

    /// Adds a form as it is when it is broken into lines.
    fn add_lines(&mut self, form: &[u8], line: usize) {
        let lines = form.chunks(line).filter(|line| line.len() >= SHORTEST_LINE);
        self.0.extend(lines.map(|line| Zeroizing::new(line.to_vec())));
    }
}

fn base64_forms(core: &[u8], pieces: &mut Pieces) {
    for before in 0..3 {
        let mut shifted = Zeroizing::new(vec![0; before + core.len()]);
        shifted[before..].copy_from_slice(core);
        // Six bits are a character; those that share bits with what stands before or after the value are left out.
        let first = (before * 8).div_ceil(6);
        let last = (before + core.len()) * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let encoded = Zeroizing::new(engine.encode(&*shifted));
            let own = &encoded.as_bytes()[first..last];
            pieces.add(own);
            if before == 0 && own.len() > PIECE {
                pieces.add_lines(own, PIECE);
                pieces.add_lines(own, MIME_LINE);
            }
        }
    }
}

fn hex_and_percent_forms(core: &[u8], pieces: &mut Pieces) {
    let digits = Zeroizing::new(hex::encode(core));
    pieces.add(digits.as_bytes());
    pieces.add(Zeroizing::new(digits.to_ascii_uppercase()).as_bytes());
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let by_uri = |b: u8| unreserved(b) || b";,/?:@&=+$#!'()*".contains(&b);
    let rules: [&dyn Fn(u8) -> bool; 3] = [&unreserved, &by_uri, &|_| false];
    for keep in rules {
        for digits in [b"0123456789ABCDEF", b"0123456789abcdef"] {
            let encoded = percent(core, keep, digits);
            pieces.add(&encoded);
            // A form of HTML writes blanks as `+`; the longest encoding has none left to write so.
            if core.contains(&b' ') {
                pieces.add(&Zeroizing::new(replace_blanks(&encoded)));
            }
        }
    }
}

fn percent(core: &[u8], keep: &dyn Fn(u8) -> bool, digits: &[u8; 16]) -> Bytes {
    let mut encoded = Zeroizing::new(Vec::with_capacity(core.len() * 3));
    for byte in core {
        if keep(*byte) {
            encoded.push(*byte);
        } else {
            encoded.push(b'%');
            encoded.push(digits[usize::from(byte >> 4)]);
            encoded.push(digits[usize::from(byte & 15)]);
        }
    }
    encoded
}

fn replace_blanks(encoded: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%20") {
            replaced.push(b'+');
            rest = after;
        } else {
            replaced.push(*first);
            rest = after;
        }
    }
    replaced
}

fn json_forms(text: &str, pieces: &mut Pieces) {
    for slash in ["/", "\\/"] {
        for unicode in [Unicode::AsIs, Unicode::Lower, Unicode::Upper] {
            pieces.add(json(text, slash, unicode).as_bytes());
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Unicode {
    AsIs,
    Lower,
    Upper,
}

fn json(text: &str, slash: &str, unicode: Unicode) -> Zeroizing<String> {
    // Long enough for six characters instead of each: it never grows and leaves no copy behind.
    let mut escaped = Zeroizing::new(String::with_capacity(text.len() * 6));
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '/' => escaped.push_str(slash),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            c if c.is_ascii_control() || (!c.is_ascii() && unicode != Unicode::AsIs) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _infallible = match unicode {
                        Unicode::Upper => write!(escaped, "\\u{unit:04X}"),
                        _ => write!(escaped, "\\u{unit:04x}"),
                    };
                }
            }
            c => escaped.push(c),
        }
    }
    escaped
}
