//! What a process wrote, on this program's own two streams: as it comes, or from the outcome.
//!
//! To a file or a pipe go the bytes as they were written. To a terminal goes text in which nothing moves the cursor,
//! recolours, or speaks to the terminal in the process's name.

use crate::exit::Failure;
use crate::output::{self, BOLD, note, styled};
use anstream::{AutoStream, ColorChoice};
use base64::Engine as _;
use palyra_api::v1::{OutputPiece, OutputStream};
use palyra_protocol::display::Sanitizer;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

const NAMES: [&str; 2] = ["stdout", "stderr"];

/// How far one stream has been shown.
#[derive(Debug)]
struct Stream {
    /// Where the next piece should begin.
    position: u64,
    missed: u64,
    /// For a terminal.
    sanitizer: Option<Sanitizer>,
}

/// Both streams of a process.
#[derive(Debug)]
pub struct Live {
    streams: [Stream; 2],
}

/// Whether a terminal reads this, now or in the end: whoever wants colour has one.
fn for_a_terminal(stream: &impl anstream::stream::RawStream) -> bool {
    stream.is_terminal() || AutoStream::choice(stream) != ColorChoice::Never
}

impl Live {
    pub fn new() -> Self {
        let stream = |terminal: bool| Stream { position: 0, missed: 0, sanitizer: terminal.then(Sanitizer::default) };
        Self { streams: [stream(for_a_terminal(&std::io::stdout())), stream(for_a_terminal(&std::io::stderr()))] }
    }

    /// Shows the next piece.
    pub async fn show(&mut self, piece: &OutputPiece) {
        let at = usize::from(piece.stream() == OutputStream::Stderr);
        let stream = &mut self.streams[at];
        // What comes again is not shown again.
        let known = usize::try_from(stream.position.saturating_sub(piece.offset)).unwrap_or(usize::MAX);
        let Some(bytes) = piece.bytes.get(known..) else { return };
        stream.missed += piece.offset.saturating_sub(stream.position);
        stream.position = stream.position.max(piece.offset) + bytes.len() as u64;
        stream.write(at, bytes).await;
    }

    /// Shows what the outcome holds beyond what came live, and says what came neither way.
    pub async fn finish(mut self, output: &Value, call_id: &str) -> Result<(), Failure> {
        for (at, (stream, name)) in self.streams.iter_mut().zip(NAMES).enumerate() {
            let kept = kept(output, name)?;
            let rest = usize::try_from(stream.position).ok().and_then(|from| kept.get(from..));
            stream.write(at, rest.unwrap_or_default()).await;
            stream.end(at).await;
        }
        for (stream, name) in self.streams.iter().zip(NAMES) {
            if stream.missed > 0 {
                let missed = format!("({} bytes of {name} came too fast to be shown", stream.missed);
                note!("{}", styled(BOLD, format!("{missed}; `palyra calls show {call_id}` has them)")));
            }
            if output[format!("{name}_truncated")] == json!(true) {
                let total = &output[format!("{name}_total_bytes")];
                note!("{}", styled(BOLD, format!("({name} was cut: {total} bytes in all)")));
            }
        }
        Ok(())
    }
}

/// Whether a tool's output is that of a process.
pub fn is_process(output: &Value) -> bool {
    NAMES.iter().all(|name| output[name].is_string() && output[format!("{name}_encoding")].is_string())
}

/// What was kept of a stream, as it was written.
fn kept(output: &Value, name: &str) -> Result<Vec<u8>, Failure> {
    let text = output[name].as_str().unwrap_or_default();
    match output[format!("{name}_encoding")].as_str() {
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| Failure::bug(&e)),
        _ => Ok(text.as_bytes().to_vec()),
    }
}

impl Stream {
    async fn write(&mut self, at: usize, bytes: &[u8]) {
        match &mut self.sanitizer {
            Some(sanitizer) => write(at, sanitizer.push(bytes).as_bytes()).await,
            None => write(at, bytes).await,
        }
    }

    async fn end(&mut self, at: usize) {
        if let Some(sanitizer) = &mut self.sanitizer {
            write(at, sanitizer.finish().as_bytes()).await;
        }
    }
}

/// Writes in the background, so that Ctrl-C is heard while a reader does not read.
async fn write(at: usize, bytes: &[u8]) {
    async fn all(mut to: impl AsyncWrite + Unpin, bytes: &[u8]) -> std::io::Result<()> {
        to.write_all(bytes).await?;
        to.flush().await
    }
    if bytes.is_empty() {
        return;
    }
    if at == 0 {
        if let Err(error) = all(tokio::io::stdout(), bytes).await {
            output::unwritten(&error);
        }
    } else {
        // There is nobody left to tell.
        drop(all(tokio::io::stderr(), bytes).await);
    }
}
