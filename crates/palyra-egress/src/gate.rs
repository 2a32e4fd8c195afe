//! What stands in a stream's way until it has shown what it is.
//!
//! A gate is fed what arrives and writes what may go on. A request's body is let through up to its end and no further;
//! a server's answer gets its head rewritten and is followed to its end; a tunnel shows whether it begins with a TLS
//! greeting or an HTTP request, and for whom. After that bytes flow without being looked at. Gates are plain state
//! machines: however the bytes are cut into pieces, the result is the same.

use super::host::Host;
use super::http::{
    AnswerBody, Framing, MAX_ANSWER_HEAD, MAX_HEAD, Malformed, Plain, Scan, parse_answer, read_plain, scan,
};
use super::tls_hello::{Greeting, MAX_HELLO, read_greeting};

/// What comes after a feeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The gate needs more.
    More,
    /// The gate stays open: everything that follows may pass.
    Pass,
    /// So much more may pass, and then nothing.
    Only(u64),
    /// Nothing that follows may pass.
    End,
}

/// Why a gate closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shut {
    /// The client's bytes make no sense.
    Request(Malformed),
    /// The server's bytes make no sense.
    Answer(Malformed),
    /// The TLS greeting cannot be read.
    BadHello,
    /// The TLS greeting is for another host.
    OtherHost(String),
    /// The tunnel begins with an HTTP request that is not clearly for its host.
    OtherRequest(Malformed),
}

/// What was seen of TLS in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The greeting names the tunnel's host.
    SameHost,
    /// The greeting names no host.
    NoName,
    /// It does not begin as TLS does.
    NotTls,
}

/// A gate.
#[derive(Debug)]
pub(super) enum Gate {
    Body(Body),
    Answer(AnswerHead),
    Hello(Hello),
}

impl Gate {
    /// Takes what arrived, appends what may go on.
    pub(super) fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Shut> {
        match self {
            Self::Body(body) => body.feed(input, out).map_err(Shut::Request),
            Self::Answer(head) => head.feed(input, out).map_err(Shut::Answer),
            Self::Hello(hello) => hello.feed(input, out),
        }
    }

    /// The stream ended while the gate still stood.
    pub(super) fn finish(&self) -> Result<(), Shut> {
        match self {
            Self::Body(_) => Err(Shut::Request(Malformed("the body ended early"))),
            Self::Answer(_) => Err(Shut::Answer(Malformed("the server closed before it answered"))),
            Self::Hello(hello) if hello.buffer.is_empty() => Ok(()),
            Self::Hello(hello) => Err(hello.unfinished()),
        }
    }

    /// Whether the head of the answer went on already: an end is then the end of a body, and comes too early.
    pub(super) fn is_in_answer(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.chunks.is_some())
    }
}

/// Lets a request's body through, to its end and no further.
#[derive(Debug)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunks),
}

/// Where in a chunked body we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunks {
    /// In the size: its value and digits so far.
    Size(u64, u8),
    /// The size's carriage return was seen.
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// After the last chunk: trailers are not taken.
    LastCr,
    LastLf,
}

impl Body {
    /// Nothing for a request without a body.
    pub(super) fn new(framing: Framing) -> Option<Self> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Chunks::Size(0, 0))),
        }
    }

    fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Malformed> {
        match self {
            Self::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                out.extend_from_slice(&input[..take]);
                *left -= take as u64;
                Ok(if *left == 0 { Step::End } else { Step::More })
            }
            Self::Chunked(state) => feed_chunks(state, input, out),
        }
    }
}

fn feed_chunks(state: &mut Chunks, mut input: &[u8], out: &mut Vec<u8>) -> Result<Step, Malformed> {
    while let Some((&byte, rest)) = input.split_first() {
        if let Chunks::Data(left) = *state {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            // Each piece goes on as a chunk of its own: the server sees our framing, not the client's.
            out.extend_from_slice(format!("{take:x}\r\n").as_bytes());
            out.extend_from_slice(&input[..take]);
            out.extend_from_slice(b"\r\n");
            input = &input[take..];
            let left = left - take as u64;
            *state = if left == 0 { Chunks::DataCr } else { Chunks::Data(left) };
            continue;
        }
        *state = next_chunk_state(*state, byte)?;
        if *state == Chunks::LastLf && byte == b'\n' {
            out.extend_from_slice(b"0\r\n\r\n");
            return Ok(Step::End);
        }
        input = rest;
    }
    Ok(Step::More)
}

/// Appends the data of a chunked body; true at its end. What follows the end is left alone.
pub(super) fn collect_chunks(state: &mut Chunks, mut input: &[u8], out: &mut Vec<u8>) -> Result<bool, Malformed> {
    while let Some((&byte, rest)) = input.split_first() {
        if let Chunks::Data(left) = *state {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            out.extend_from_slice(&input[..take]);
            input = &input[take..];
            let left = left - take as u64;
            *state = if left == 0 { Chunks::DataCr } else { Chunks::Data(left) };
            continue;
        }
        *state = next_chunk_state(*state, byte)?;
        if *state == Chunks::LastLf && byte == b'\n' {
            return Ok(true);
        }
        input = rest;
    }
    Ok(false)
}

fn next_chunk_state(state: Chunks, byte: u8) -> Result<Chunks, Malformed> {
    match (state, byte) {
        (Chunks::Size(size, digits), byte) if byte.is_ascii_hexdigit() && digits < 15 => {
            let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
            Ok(Chunks::Size(size << 4 | digit, digits + 1))
        }
        (Chunks::Size(size, 1..), b'\r') => Ok(Chunks::SizeEnd(size)),
        (Chunks::SizeEnd(0), b'\n') => Ok(Chunks::LastCr),
        (Chunks::SizeEnd(size), b'\n') => Ok(Chunks::Data(size)),
        (Chunks::DataCr, b'\r') => Ok(Chunks::DataLf),
        (Chunks::DataLf, b'\n') => Ok(Chunks::Size(0, 0)),
        (Chunks::LastCr, b'\r') | (Chunks::LastLf, b'\n') => Ok(Chunks::LastLf),
        (Chunks::LastCr, _) => Err(Malformed("trailers after a chunked body")),
        (Chunks::Size(..), b';' | b' ' | b'\t') => Err(Malformed("a chunk extension")),
        _ => Err(Malformed("a chunk that is not framed as chunks are")),
    }
}

/// Rewrites the head of an answer, then lets its body through, to its end if it has one.
#[derive(Debug)]
pub(super) struct AnswerHead {
    method: String,
    buffer: Vec<u8>,
    interim: usize,
    chunks: Option<ChunkWatch>,
}

impl AnswerHead {
    /// The answer to a request with this method.
    pub(super) fn to(method: &str) -> Self {
        Self { method: method.to_owned(), buffer: Vec::new(), interim: 0, chunks: None }
    }

    fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Malformed> {
        if let Some(chunks) = &mut self.chunks {
            return Ok(chunks.feed(input, out));
        }
        self.buffer.extend_from_slice(input);
        while let Scan::End(end) = scan(&self.buffer)? {
            if end > MAX_ANSWER_HEAD {
                break;
            }
            let answer = parse_answer(&self.buffer[..end])?;
            let rest = self.buffer.split_off(end);
            if answer.status == 101 {
                return Err(Malformed("the server switched protocols unasked"));
            }
            out.extend_from_slice(&answer.to_bytes());
            if answer.status >= 200 {
                return Ok(self.begin(answer.body(&self.method), &rest, out));
            }
            self.buffer = rest;
            self.interim += 1;
            if self.interim > 8 {
                return Err(Malformed("too many interim answers"));
            }
        }
        if self.buffer.len() > MAX_ANSWER_HEAD {
            return Err(Malformed("the head of the answer is too large"));
        }
        Ok(Step::More)
    }

    /// The body begins with `rest`.
    fn begin(&mut self, body: AnswerBody, rest: &[u8], out: &mut Vec<u8>) -> Step {
        match body {
            AnswerBody::None => Step::End,
            AnswerBody::UntilClose => {
                out.extend_from_slice(rest);
                Step::Pass
            }
            AnswerBody::Length(length) => {
                let take = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
                out.extend_from_slice(&rest[..take]);
                match length - take as u64 {
                    0 => Step::End,
                    left => Step::Only(left),
                }
            }
            AnswerBody::Chunked => self.chunks.insert(ChunkWatch::default()).feed(rest, out),
        }
    }
}

/// Follows a chunked body to its end. It only has to know when an answer is over, so it lets extensions and trailers
/// pass, and where it loses the thread, the server's close is the end.
#[derive(Debug, Default)]
struct ChunkWatch(ChunkPlace);

/// Where in a chunked body we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPlace {
    /// In a size, or what follows it on its line.
    Size { size: u64, digits: u8, extension: bool },
    /// In data, or the line end after it.
    Data(u64),
    /// In a line after the last chunk, and how much of it there is.
    Trailer(usize),
}

impl Default for ChunkPlace {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0, extension: false }
    }
}

impl ChunkWatch {
    fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        let mut at = 0;
        while at < input.len() {
            if let ChunkPlace::Data(left) = &mut self.0 {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len() - at);
                *left -= take as u64;
                at += take;
                if *left == 0 {
                    self.0 = ChunkPlace::default();
                }
                continue;
            }
            let byte = input[at];
            at += 1;
            match self.0.after(byte) {
                Some(Some(next)) => self.0 = next,
                Some(None) => {
                    out.extend_from_slice(&input[..at]);
                    return Step::End;
                }
                None => {
                    out.extend_from_slice(input);
                    return Step::Pass;
                }
            }
        }
        out.extend_from_slice(input);
        Step::More
    }
}

impl ChunkPlace {
    /// Where a byte outside of data leads; the end of the body is `Some(None)`, and nothing means that this is no
    /// chunked body.
    #[expect(clippy::option_option, reason = "the end and a lost thread are two things")]
    fn after(self, byte: u8) -> Option<Option<Self>> {
        Some(Some(match (self, byte) {
            (Self::Size { size, digits, extension: false }, byte) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Self::Size { size: size << 4 | digit, digits: digits + 1, extension: false }
            }
            (Self::Size { size: 0, digits: 1.., .. }, b'\n') => Self::Trailer(0),
            // The line end after the data counts as data.
            (Self::Size { size, digits: 1.., .. }, b'\n') => Self::Data(size.checked_add(2)?),
            (Self::Size { size, digits: 1.., .. }, _) => Self::Size { size, digits: 1, extension: true },
            (Self::Trailer(0), b'\n') => return Some(None),
            (Self::Trailer(_), b'\n') => Self::Trailer(0),
            (Self::Trailer(read), b'\r') => Self::Trailer(read),
            (Self::Trailer(read), _) => Self::Trailer(read + 1),
            _ => return None,
        }))
    }
}

/// Holds back the first bytes of a tunnel until it is clear whether they greet its host.
#[derive(Debug)]
pub(super) struct Hello {
    host: Host,
    buffer: Vec<u8>,
    pub(super) seen: Option<Seen>,
}

impl Hello {
    pub(super) fn new(host: Host) -> Self {
        Self { host, buffer: Vec::new(), seen: None }
    }

    /// Whether a greeting has begun and is not whole yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Why a greeting that will not become whole is refused.
    pub(super) fn unfinished(&self) -> Shut {
        match read_greeting(&self.buffer) {
            Greeting::NotTls => Shut::OtherRequest(Malformed("the request has no end")),
            _ => Shut::BadHello,
        }
    }

    fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Shut> {
        self.buffer.extend_from_slice(input);
        let seen = match read_greeting(&self.buffer) {
            Greeting::More if self.buffer.len() > MAX_HELLO => return Err(Shut::BadHello),
            Greeting::More => return Ok(Step::More),
            Greeting::Bad => return Err(Shut::BadHello),
            Greeting::NotTls => match read_plain(&self.buffer, &self.host).map_err(Shut::OtherRequest)? {
                Plain::More if self.buffer.len() > MAX_HEAD => {
                    return Err(Shut::OtherRequest(Malformed("the head of the request is too large")));
                }
                Plain::More => return Ok(Step::More),
                Plain::Fine => Seen::NotTls,
            },
            Greeting::For(None) => Seen::NoName,
            Greeting::For(Some(name)) => match &self.host {
                // Whoever names an address by its number may call it what they like.
                Host::Ip(_) => Seen::SameHost,
                host if Host::parse(&name).as_ref() == Ok(host) => Seen::SameHost,
                _ => return Err(Shut::OtherHost(name)),
            },
        };
        self.seen = Some(seen);
        out.append(&mut self.buffer);
        Ok(Step::Pass)
    }
}

#[cfg(test)]
#[path = "gate/tests.rs"]
mod tests;
