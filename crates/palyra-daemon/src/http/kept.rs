//! Something that is held for as long as an answer is being read.

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Holds something until the answer has been sent to its end, or its reader has gone.
pub(crate) fn keep<T: Send + Sync + Unpin + 'static>(response: Response, kept: T) -> Response {
    response.map(|body| Body::new(Kept { body, _kept: kept }))
}

struct Kept<T> {
    body: Body,
    _kept: T,
}

impl<T: Unpin> http_body::Body for Kept<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
