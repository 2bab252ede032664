//! Stream of the helper's own, for prefetches: one at a time, of the context that was last used.
//!
//! It is non-blocking: no work of the program waits for it in a default stream. It is destroyed
//! when there are no commands, and forgotten when its context ends. Used within the gate alone.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    zeroed::Words,
};

/// The stream, if there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// 0 without a stream.
    handle: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
}

impl Stream {
    /// No stream.
    pub(crate) fn new(words: &mut Words) -> Option<Self> {
        Some(Self { handle: words.next()?, context: words.next()?, device: words.next()? })
    }

    fn get(&self) -> Handle {
        self.handle.load(Ordering::Acquire)
    }

    /// Stream of a context, which is current; made if there is none.
    ///
    /// # Errors
    /// Of the driver; `None` if it lacks the function.
    pub(crate) fn get_or_create(&self, context: Handle, device: i32) -> Result<Handle, Option<CuResult>> {
        if self.get() != 0 {
            if self.context.load(Ordering::Relaxed) == context {
                return Ok(self.get());
            }
            self.destroy();
            driver::enter_context(context);
        }
        let made = driver::make_stream()?;
        self.context.store(context, Ordering::Relaxed);
        self.device.store(word(device), Ordering::Relaxed);
        self.handle.store(made, Ordering::Release);
        Ok(made)
    }

    /// Destroys it, as its context is there. The thread has no context then.
    pub(crate) fn destroy(&self) {
        let stream = self.handle.swap(0, Ordering::AcqRel);
        if stream != 0 && driver::enter_context(self.context.load(Ordering::Relaxed)).is_some() {
            driver::destroy_stream(stream);
            driver::leave_context();
        }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.get() != 0
    }

    /// Forgets it if it is of a context that ends.
    pub(crate) fn forget_context(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.handle.store(0, Ordering::Release);
        }
    }

    /// Forgets it if it is of a device whose primary context ends.
    pub(crate) fn forget_device(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == word(device) {
            self.handle.store(0, Ordering::Release);
        }
    }
}

const fn word(device: i32) -> u64 {
    device.cast_unsigned() as u64
}
