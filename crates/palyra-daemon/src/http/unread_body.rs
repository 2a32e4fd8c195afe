//! Bodies that a handler leaves unread.
//!
//! A request can be refused before its body was read: the token is wrong, the route does not exist. Closing a
//! connection with unread bytes makes the kernel send a reset, and the client may lose the answer. So the gate keeps a
//! hold of every body, and reads on for a bounded while before it answers; where that is not enough, the answer says
//! that the connection closes.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// How much of an unread body is read.
const MAX_DISCARDED: usize = 16 << 20;
/// How long the next piece of it is waited for.
const PIECE_TIME: Duration = Duration::from_secs(1);
/// How long reading it may take in all.
const WHOLE_TIME: Duration = Duration::from_secs(5);

/// A request's body, shared by the handler and the gate. The handler has dropped its half when the gate uses its own.
#[derive(Debug, Clone)]
struct Shared {
    body: Arc<Mutex<Body>>,
    /// Whether a handler asked for any of it.
    read: Arc<AtomicBool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.read.store(true, Ordering::Relaxed);
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}

/// The gate's hold on a request's body.
#[derive(Debug)]
pub(super) struct UnreadBody {
    shared: Shared,
    /// The client sends its body only once it is asked to.
    waits_to_send: bool,
}

/// What became of a body that was left unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discarded {
    /// Nothing of it is left: the connection can go on.
    Whole,
    /// Some of it is: the connection has to close.
    Partly,
}

impl UnreadBody {
    /// Keeps a hold of a request's body.
    pub(super) fn of(request: &mut Request) -> Self {
        let waits_to_send = expects_continue(request.headers());
        let body = std::mem::replace(request.body_mut(), Body::empty());
        let shared = Shared { body: Arc::new(Mutex::new(body)), read: Arc::default() };
        *request.body_mut() = Body::new(shared.clone());
        Self { shared, waits_to_send }
    }

    /// Reads what the handler left, within limits, and throws it away.
    pub(super) async fn discard(mut self) -> Discarded {
        if self.shared.is_end_stream() {
            return Discarded::Whole;
        }
        // Asking for the body would make the client send it.
        if self.waits_to_send && !self.shared.read.load(Ordering::Relaxed) {
            return Discarded::Partly;
        }
        tokio::time::timeout(WHOLE_TIME, self.read_on()).await.unwrap_or(Discarded::Partly)
    }

    async fn read_on(&mut self) -> Discarded {
        let mut seen = 0;
        while seen <= MAX_DISCARDED {
            match tokio::time::timeout(PIECE_TIME, self.shared.frame()).await {
                Ok(None) => return Discarded::Whole,
                Ok(Some(Ok(frame))) => seen += frame.data_ref().map_or(0, Bytes::len),
                Ok(Some(Err(_))) | Err(_) => return Discarded::Partly,
            }
        }
        Discarded::Partly
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get_all(header::EXPECT).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt as _;

    fn request(body: Body, expect: Option<&str>) -> Request {
        let mut request = Request::new(body);
        if let Some(expect) = expect {
            request.headers_mut().insert(header::EXPECT, expect.parse().unwrap());
        }
        request
    }

    #[tokio::test]
    async fn what_a_handler_leaves_is_read_within_limits() {
        let pieces = std::iter::repeat_n(vec![0; 1 << 20], 40);
        let endless = Body::from_stream(tokio_stream::iter(pieces).map(Ok::<_, std::io::Error>));
        let silent = Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, std::io::Error>>());
        for (body, expect, discarded) in [
            (Body::empty(), None, Discarded::Whole),
            (Body::from(vec![7; 2 << 20]), None, Discarded::Whole),
            (Body::from(vec![7; 9]), Some("100-Continue"), Discarded::Partly),
            (endless, None, Discarded::Partly),
            (silent, None, Discarded::Partly),
        ] {
            let mut request = request(body, expect);
            let unread = UnreadBody::of(&mut request);
            drop(request);
            assert_eq!(unread.discard().await, discarded);
        }
        // A handler that read everything leaves nothing, whatever the client expected.
        let mut read = request(Body::from("abc"), Some("100-continue"));
        let unread = UnreadBody::of(&mut read);
        assert_eq!(axum::body::to_bytes(read.into_body(), 10).await.unwrap(), "abc");
        assert_eq!(unread.discard().await, Discarded::Whole);
    }
}
