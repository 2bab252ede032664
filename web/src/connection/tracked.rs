//! Body of a response, which reports the end of sending.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::Sending;

/// Mark of an endless response. It has no time limit as a whole, but must be accepted as it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endless;

/// Body whose bytes keep the guard of sending, in whatever buffer they wait.
#[derive(Debug)]
pub(crate) struct Tracked {
    body: Body,
    sending: Option<Arc<Sending>>,
}

/// Bytes with the guard of sending.
struct GuardedBytes {
    bytes: Bytes,
    _sending: Arc<Sending>,
}

impl AsRef<[u8]> for GuardedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Tracked {
    /// Tracks `body`; `sending` is `None` for an [`Endless`] one.
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
        let guarded = |bytes| Bytes::from_owner(GuardedBytes { bytes, _sending: Arc::clone(sending) });
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(guarded))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
