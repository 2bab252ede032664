//! The helper's stream for prefetches: at most one, in the context used last.
//!
//! The stream is non-blocking: no work of the program in a default stream waits for it. It is
//! destroyed when no commands arrive, and forgotten when its context is destroyed. Used only within
//! the gate.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    mapping::Words,
};

/// Lazily created stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// 0 without a stream.
    handle: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
}

impl Stream {
    /// Creates the empty slot for a stream.
    pub(crate) fn new(words: &mut Words) -> Option<Self> {
        Some(Self { handle: words.next()?, context: words.next()?, device: words.next()? })
    }

    fn get(&self) -> Handle {
        self.handle.load(Ordering::Acquire)
    }

    /// Stream of a context, which is current; created on first use.
    ///
    /// # Errors
    /// The driver's error; `None` if it lacks the function.
    pub(crate) fn get_or_create(&self, context: Handle, device: i32) -> Result<Handle, Option<CuResult>> {
        if self.get() != 0 {
            if self.context.load(Ordering::Relaxed) == context {
                return Ok(self.get());
            }
            self.destroy();
            driver::enter_context(context);
        }
        let made = driver::create_stream()?;
        self.context.store(context, Ordering::Relaxed);
        self.device.store(word(device), Ordering::Relaxed);
        self.handle.store(made, Ordering::Release);
        Ok(made)
    }

    /// Destroys the stream, if its context still exists. Leaves the thread without a context.
    pub(crate) fn destroy(&self) {
        let stream = self.handle.swap(0, Ordering::AcqRel);
        if stream != 0 && driver::enter_context(self.context.load(Ordering::Relaxed)).is_some() {
            driver::destroy_stream(stream);
            driver::leave_context();
        }
    }

    /// Whether the stream exists.
    pub(crate) fn exists(&self) -> bool {
        self.get() != 0
    }

    /// Forgets the stream if its context is being destroyed.
    pub(crate) fn forget_context(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.handle.store(0, Ordering::Release);
        }
    }

    /// Forgets the stream if its device's primary context is being destroyed.
    pub(crate) fn forget_device(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == word(device) {
            self.handle.store(0, Ordering::Release);
        }
    }
}

const fn word(device: i32) -> u64 {
    device.cast_unsigned() as u64
}
