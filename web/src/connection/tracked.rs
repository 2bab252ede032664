//! The body of an answer, which tells when all of it has been sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::Sending;

/// Marks the answer that goes on for as long as its peer listens: it has to be taken as it comes, and not in any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless;

/// A body whose bytes hold on to what tells that they are being sent, wherever they wait to be.
#[derive(Debug)]
pub(crate) struct Tracked {
    body: Body,
    sending: Option<Arc<Sending>>,
}

/// Bytes, and what is told once they are gone.
struct Held {
    bytes: Bytes,
    _sending: Arc<Sending>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Tracked {
    /// `sending` is `None` for what is [`Endless`].
    pub(crate) fn new(body: Body, sending: Option<Sending>) -> Self {
        Self { body, sending: sending.map(Arc::new) }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let Some(sending) = &self.sending else { return frame };
        let held = |bytes| Bytes::from_owner(Held { bytes, _sending: Arc::clone(sending) });
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
