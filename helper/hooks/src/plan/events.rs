//! Events of a plan: made when it is adopted, and none at a launch. Two for each move: its anchor,
//! which a launch records and the move waits for, and its end, which a launch waits for.
//!
//! They are destroyed and made within the gate alone, and only while no launch is at a plan.

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::plan::MOVES_MAX;

use crate::{
    cuda::{CuResult, Handle},
    driver,
    zeroed::Words,
};

/// Events of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    /// Events that there are: anchors and ends in turn.
    count: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
    handles: &'static [AtomicU64],
}

impl Events {
    /// Words of the handles.
    pub(super) const WORDS: usize = 2 * MOVES_MAX;

    /// No events.
    pub(super) fn new(words: &mut Words, handles: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { count: words.next()?, context: words.next()?, device: words.next()?, handles })
    }

    fn get(&self, at: usize) -> Handle {
        self.handles.get(at).map_or(0, |handle| handle.load(Ordering::Acquire))
    }

    /// Event behind the launch that begins a move.
    pub(super) fn anchor(&self, one: usize) -> Handle {
        self.get(2 * one)
    }

    /// Event behind a move.
    pub(super) fn end(&self, one: usize) -> Handle {
        self.get(2 * one + 1)
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Acquire)).unwrap_or(0).min(Self::WORDS)
    }

    /// Whether there are events.
    pub(super) fn exist(&self) -> bool {
        self.len() > 0
    }

    /// Whether there are events for so many moves.
    pub(super) fn covers(&self, moves: usize) -> bool {
        self.len() >= 2 * moves
    }

    /// Whether there are events of another context than this one.
    pub(super) fn belong_to_other_context(&self, context: Handle) -> bool {
        self.exist() && self.context.load(Ordering::Relaxed) != context
    }

    /// Makes some of the events for so many moves, in their context, which is current; true once all
    /// are there.
    ///
    /// # Errors
    /// Of the driver; `None` if it lacks a function.
    pub(super) fn make_some(&self, moves: usize, context: Handle, device: i32) -> Result<bool, Option<CuResult>> {
        /// Events that are made at a time, behind which the program's calls have their turn.
        const SOME: usize = 128;
        self.context.store(context, Ordering::Relaxed);
        self.device.store(device.cast_unsigned().into(), Ordering::Relaxed);
        let (all, have) = (2 * moves, self.len());
        for at in have..all.min(have + SOME) {
            let event = driver::make_event()?;
            if let Some(handle) = self.handles.get(at) {
                handle.store(event, Ordering::Release);
            }
            self.count.store(at as u64 + 1, Ordering::Release);
        }
        Ok(self.covers(moves))
    }

    /// Destroys all of them, as their context is there. The thread has no context then.
    pub(super) fn destroy(&self) {
        if self.exist() && driver::enter_context(self.context.load(Ordering::Relaxed)).is_some() {
            (0..self.len()).for_each(|at| driver::destroy_event(self.get(at)));
            driver::leave_context();
        }
        self.forget();
    }

    fn forget(&self) {
        self.count.store(0, Ordering::Release);
    }

    /// Forgets them if they are of a context that ends.
    pub(super) fn forget_context(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.forget();
        }
    }

    /// Forgets them if they are of a device whose primary context ends.
    pub(super) fn forget_device(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == u64::from(device.cast_unsigned()) {
            self.forget();
        }
    }
}
