//! What the HTTP library says by itself, said as everybody here says it.
//!
//! A head that is no HTTP, or too long, never becomes a request: hyper answers it with a bare status, and has no hook
//! for that. So the connection's writer looks at each piece that goes out. A whole head of such a status that does not
//! carry our request id is hyper's own, and a problem document goes out in its place. Nothing else can be taken for it:
//! our own answers all carry an id, and no document or event of ours holds a bare line end.

use super::gate::{ALWAYS, X_REQUEST_ID};
use super::problem::Refused;
use axum::http::StatusCode;
use palyra_protocol::{Problem, RequestId};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose every refusal is a problem document.
#[derive(Debug)]
pub(crate) struct ErrorResponses<S> {
    stream: S,
    /// What goes out in place of what was said, and how much of it has.
    instead: Vec<u8>,
    sent: usize,
}

impl<S> ErrorResponses<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, instead: Vec::new(), sent: 0 }
    }
}

/// The document for a bare refusal.
fn document(said: &[u8]) -> Option<Vec<u8>> {
    let status = said.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.split_at_checked(3))?.0;
    let (status, code, message) = match status {
        b"400" => (StatusCode::BAD_REQUEST, "malformed_request", "this is no HTTP request"),
        b"414" => (StatusCode::URI_TOO_LONG, "head_too_large", "the path is too long"),
        b"431" => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "the head is too large"),
        _ => return None,
    };
    let own = X_REQUEST_ID;
    let own = own.as_str().as_bytes();
    if !said.ends_with(b"\r\n\r\n") || said.windows(own.len()).any(|part| part.eq_ignore_ascii_case(own)) {
        return None;
    }
    let request = RequestId::mint();
    let body = Refused::new(status, Problem::plain(code, message)).document(&request);
    let mut answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: close\r\n\
         {X_REQUEST_ID}: {request}\r\n",
        body.len()
    );
    for (name, value) in ALWAYS {
        answer.extend([name.as_str(), ": ", value, "\r\n"]);
    }
    answer.push_str("\r\n");
    Some([answer.into_bytes(), body].concat())
}

impl<S: AsyncWrite + Unpin> ErrorResponses<S> {
    /// Sends what goes out in place of something else.
    fn finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.instead.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what was said for said, if something else goes out in its place.
    fn replaced(&mut self, said: &[u8], context: &mut Context<'_>) -> Option<Poll<io::Result<usize>>> {
        self.instead = document(said)?;
        self.sent = 0;
        match self.finish(context) {
            Poll::Ready(Err(error)) => Some(Poll::Ready(Err(error))),
            // The rest goes out with the flush.
            Poll::Ready(Ok(())) | Poll::Pending => Some(Poll::Ready(Ok(said.len()))),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ErrorResponses<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, said: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.finish(context))?;
        if let Some(taken) = self.replaced(said, context) {
            return taken;
        }
        Pin::new(&mut self.stream).poll_write(context, said)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.finish(context))?;
        // A head that comes with a body is not bare.
        if let [said] = pieces
            && let Some(taken) = self.replaced(said, context)
        {
            return taken;
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.finish(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.finish(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ErrorResponses<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_refusal_is_said_otherwise() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let said = String::from_utf8(document(bare).unwrap()).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 ") && head.contains("application/problem+json"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(head.contains(&format!("x-request-id: {}", body["request_id"].as_str().unwrap())), "{said}");
        for other in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\nX-Request-Id: req_1\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n",
            b"HTTP/1.1 4",
            b"{\"HTTP/1.1 400 \":1}",
            b"",
        ] {
            assert_eq!(document(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
