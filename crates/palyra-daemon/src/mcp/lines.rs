//! One JSON-RPC message a line, as strictly as inputs are read.
//!
//! A line that is too long, or is no JSON that every reader understands alike, or is no message, gets a typed answer
//! with the request's id, as far as its bytes tell, and the next line is read. After too many of them in a row the
//! connection ends: whoever sends such lines is not speaking this protocol.

use super::server::not_understood;
use super::whose::Whose;
use super::{MAX_MESSAGE_BYTES, WRAPPING};
use palyra_protocol::json::{self, JsonRejection};
use rmcp::model::{ErrorCode, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// How many lines in a row may be no messages.
const MAX_BAD_LINES: u32 = 100;

type Message = RxJsonRpcMessage<RoleServer>;
type Answer = TxJsonRpcMessage<RoleServer>;

/// Both directions of a connection.
pub(super) struct Lines<R, W> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that was too long is being skipped, except for whose it is.
    skipping: Option<Whose>,
    bad: u32,
    /// A refusal on its way out. In a task of its own, because reading may be given up at any moment, and half a line
    /// must not be left behind.
    refusing: Option<JoinHandle<io::Result<()>>>,
    writer: Arc<Mutex<W>>,
}

/// What reading a line came to.
enum Read {
    Line,
    /// With the request that it would have been.
    TooLong(Option<Box<RawValue>>),
    End,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(super) fn new(reader: BufReader<R>, writer: W) -> Self {
        Self { reader, line: Vec::new(), skipping: None, bad: 0, refusing: None, writer: Arc::new(Mutex::new(writer)) }
    }

    /// Reads up to the next line's end. Cancelling loses nothing: what was taken is in `self`.
    async fn read(&mut self) -> io::Result<Read> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(Read::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            if self.skipping.is_none() && self.line.len() + taken > MAX_MESSAGE_BYTES {
                let mut whose = Whose::new();
                whose.feed(&std::mem::take(&mut self.line));
                self.skipping = Some(whose);
            }
            match &mut self.skipping {
                None => self.line.extend_from_slice(&available[..taken]),
                Some(whose) => whose.feed(&available[..taken]),
            }
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(self.skipping.take().map_or(Read::Line, |whose| Read::TooLong(whose.told())));
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.bad += 1;
        let writer = Arc::clone(&self.writer);
        self.refusing = Some(tokio::spawn(async move { write(&writer, &refusal.told()).await }));
    }

    /// Waits until the last refusal is out.
    async fn refused(&mut self) -> io::Result<()> {
        let Some(refusing) = &mut self.refusing else { return Ok(()) };
        let written = refusing.await;
        self.refusing = None;
        written.map_err(io::Error::other)??;
        if self.bad >= MAX_BAD_LINES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many lines that are no messages"));
        }
        Ok(())
    }

    /// Cancelling loses nothing.
    async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            self.refused().await?;
            let refusal = match self.read().await? {
                Read::End => return Ok(None),
                Read::TooLong(id) => Refusal::too_long(id),
                Read::Line => {
                    let line = std::mem::take(&mut self.line);
                    if line.iter().all(u8::is_ascii_whitespace) {
                        continue;
                    }
                    match message(&line) {
                        Ok(message) => {
                            self.bad = 0;
                            return Ok(Some(message));
                        }
                        Err(refusal) => refusal,
                    }
                }
            };
            self.refuse(refusal);
        }
    }
}

/// Why a line is no message.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: Box<ErrorData>,
    /// The request, as far as it could be told: as its client wrote it, which may be no id that the SDK knows.
    pub(super) id: Option<Box<RawValue>>,
}

/// A refusal as it is sent. The member `id` is always there, as JSON-RPC demands: `null` where nobody can tell.
#[derive(Debug, Serialize)]
pub(super) struct Told<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: &'a ErrorData,
}

impl<'a> Told<'a> {
    pub(super) fn new(id: Option<&'a RawValue>, error: &'a ErrorData) -> Self {
        Self { jsonrpc: "2.0", id, error }
    }
}

impl Refusal {
    fn told(&self) -> Told<'_> {
        Told::new(self.id.as_deref(), &self.error)
    }

    fn too_long(id: Option<Box<RawValue>>) -> Self {
        let rejection = JsonRejection::TooLarge { bytes: MAX_MESSAGE_BYTES + 1, limit: MAX_MESSAGE_BYTES };
        let message = format!("a message has at most {MAX_MESSAGE_BYTES} bytes");
        let data = json!({ "code": rejection.code(), "message": message });
        Self { error: Box::new(ErrorData::new(ErrorCode::INVALID_REQUEST, message, Some(data))), id }
    }

    fn unreadable(rejection: &JsonRejection, bytes: &[u8]) -> Self {
        let data = json!({ "code": rejection.code(), "message": rejection.to_string() });
        let error = ErrorData::new(ErrorCode::PARSE_ERROR, rejection.to_string(), Some(data));
        Self { error: Box::new(error), id: Whose::of(bytes) }
    }

    fn no_message(id: Option<Box<RawValue>>) -> Self {
        let message = "this is no JSON-RPC message that this server knows";
        let data = json!({ "code": "malformed_request", "message": message });
        Self { error: Box::new(ErrorData::new(ErrorCode::INVALID_REQUEST, message, Some(data))), id }
    }
}

/// What can be seen of a message without reading it.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// Of a request.
    pub(super) id: Option<Box<RawValue>>,
    pub(super) method: Option<Cow<'a, str>>,
}

impl Seen<'_> {
    /// Why a message that looks like one is none: a request that is served has parameters of another shape.
    pub(super) fn refused(self) -> Refusal {
        match (&self.method, self.id) {
            (Some(method), Some(id)) => Refusal { error: Box::new(not_understood(method)), id: Some(id) },
            (_, id) => Refusal::no_message(id),
        }
    }
}

/// The outermost level of a message; the rest stays text.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Envelope<'_> {
    /// Whether it answers a request of ours, whose id is none of its sender's.
    fn answers(&self) -> bool {
        self.method.is_none() && (self.result.is_some() || self.error.is_some())
    }
}

/// Looks at a message: whether it is one, and what it asks. Nothing of what it brings is built.
pub(super) fn look<'a>(bytes: &'a [u8]) -> Result<Seen<'a>, Refusal> {
    json::check_envelope(bytes, MAX_MESSAGE_BYTES, WRAPPING).map_err(|e| Refusal::unreadable(&e, bytes))?;
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(bytes) else { return Err(Refusal::no_message(None)) };
    let text = |raw: &'a RawValue| -> Option<Cow<'a, str>> { serde_json::from_str(raw.get()).ok() };
    let nameless = envelope.id.is_some_and(|id| serde_json::from_str::<RequestId>(id.get()).is_err());
    if envelope.jsonrpc.and_then(text).as_deref() != Some("2.0") || nameless {
        return Err(Refusal::no_message(Whose::of(bytes)));
    }
    let id = envelope.id.filter(|_| !envelope.answers());
    Ok(Seen { id: id.map(ToOwned::to_owned), method: envelope.method.and_then(text) })
}

/// Reads a message.
pub(super) fn message(bytes: &[u8]) -> Result<Message, Refusal> {
    let seen = look(bytes)?;
    serde_json::from_slice(bytes).map_err(|_| seen.refused())
}

async fn write<W: AsyncWrite + Unpin>(writer: &Mutex<W>, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    writer.write_all(&line).await?;
    writer.flush().await
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for Lines<R, W> {
    type Error = io::Error;

    fn send(&mut self, item: Answer) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        async move { write(&writer, &item).await }
    }

    async fn receive(&mut self) -> Option<Message> {
        self.next().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "a connection broke off");
            None
        })
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.writer.lock().await.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    async fn answers(input: &[u8]) -> (usize, Vec<Value>) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let mut lines = Lines::new(BufReader::new(input), ours);
        let mut messages = 0;
        while lines.receive().await.is_some() {
            messages += 1;
        }
        drop(lines);
        let mut told = Vec::new();
        let mut reader = BufReader::new(theirs).lines();
        while let Some(line) = reader.next_line().await.unwrap() {
            told.push(serde_json::from_str(&line).unwrap());
        }
        (messages, told)
    }

    const PING: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_line_read() {
        for (bad, code) in [
            ("{", -32700),
            ("nonsense", -32700),
            ("{\"a\":1,\"a\":2}", -32700),
            ("[]", -32600),
            ("1", -32600),
            ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600),
        ] {
            let (messages, told) = answers(format!("{bad}\n\n{PING}").as_bytes()).await;
            assert_eq!(messages, 1, "{bad}");
            assert_eq!(told.len(), 1, "{bad}: {told:?}");
            assert_eq!(told[0]["error"]["code"], code, "{bad}: {told:?}");
        }
        let (messages, told) = answers(b"\xff\xfe\n").await;
        assert_eq!((messages, &told[0]["error"]["data"]["code"]), (0, &json!("input_not_utf8")));
    }

    #[tokio::test]
    async fn a_refusal_names_its_request_or_says_that_it_cannot() {
        let many = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[{}1]}}"#, "1,".repeat(60_000));
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"six","method":"tools/call","params":{{"x":"{}"}}}}"#,
            "x".repeat(MAX_MESSAGE_BYTES)
        );
        for (bad, id) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"offset":9007199254740993}}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"path":"\ud800"}}"#, "2"),
            (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"a":1,"a":2}}"#, "3"),
            (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#, "9223372036854775808"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "1.5"),
            (r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, "4"),
            (many.as_str(), "5"),
            (long.as_str(), "\"six\""),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "null"),
            // An answer to a question of ours: its id is not the client's.
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#, "null"),
            (r#"{"jsonrpc":"2.0","id":7,"error":7}"#, "null"),
            ("nonsense", "null"),
        ] {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let line = format!("{bad}\n");
            let mut lines = Lines::new(BufReader::new(line.as_bytes()), ours);
            assert!(lines.receive().await.is_none(), "{id}");
            drop(lines);
            let told = BufReader::new(theirs).lines().next_line().await.unwrap().unwrap();
            assert!(told.contains(&format!("\"id\":{id},")), "{id}: {told}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_no_more() {
        let long = format!("{{\"x\":\"{}\"}}\n{PING}", "x".repeat(MAX_MESSAGE_BYTES * 2));
        let (messages, told) = answers(long.as_bytes()).await;
        assert_eq!(messages, 1);
        assert_eq!(told[0]["error"]["data"]["code"], "input_too_large");
        let (messages, _) = answers(&vec![b'x'; MAX_MESSAGE_BYTES * 3]).await;
        assert_eq!(messages, 0);
    }

    #[tokio::test]
    async fn whoever_speaks_something_else_is_left_alone() {
        let (messages, told) = answers(format!("{}{PING}", "?\n".repeat(150)).as_bytes()).await;
        assert_eq!((messages, told.len()), (0, MAX_BAD_LINES as usize));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512)) {
            drop(message(&bytes));
        }
    }
}
