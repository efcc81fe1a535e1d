//! Bodies that are read to their end even if the request was refused early.
//!
//! Many clients read the answer only after they have sent the whole body; if the connection closed
//! before, they would see a broken pipe instead of the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::EXPECT;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Body as HttpBody, Frame, SizeHint};

/// Maximum number of bytes that are read of a refused body.
const MOST_BYTES: u64 = 256 << 20;

/// Time without new data after which a refused body is read no longer.
const STALLED: Duration = Duration::from_secs(2);

/// Time limit for reading a refused body.
const MOST_TIME: Duration = Duration::from_secs(30);

/// Wraps the body of a request, so that what the handler leaves of it is read and dropped.
pub async fn drained(request: Request) -> Request {
    // A client that waits for status 100 sends nothing before the service reads.
    let waits = request.headers().contains_key(EXPECT);
    request.map(|body| match body.is_end_stream() {
        true => body,
        false => Body::new(Drained { body: Some(body), waits }),
    })
}

/// A body; dropping it reads the rest, within limits.
struct Drained {
    /// `None` after the end.
    body: Option<Body>,
    /// True if the client sends the body only after status 100, and nothing has been read.
    waits: bool,
}

impl HttpBody for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.waits = false;
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !self.waits && !body.is_end_stream());
        let (Some(body), Ok(runtime)) = (rest, tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(tokio::time::timeout(MOST_TIME, async move {
            let mut chunks = body.into_data_stream();
            let mut left = MOST_BYTES;
            while let Ok(Some(Ok(chunk))) = tokio::time::timeout(STALLED, chunks.next()).await {
                left = left.saturating_sub(chunk.len() as u64);
                if left == 0 {
                    break;
                }
            }
        }));
    }
}
