//! Events of a plan, created when it is adopted and never at a launch. Each move has two: its
//! anchor, which a launch records and the move waits for, and its end, which a launch waits for.
//!
//! They are created and destroyed only within the gate, and only while no launch visits a plan.

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::plan::MOVES_MAX;

use crate::{
    cuda::{CuResult, Handle},
    driver,
    mapping::Words,
};

/// Events of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    /// Count of events: anchors and ends alternate.
    count: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
    handles: &'static [AtomicU64],
}

impl Events {
    /// Words for the handles.
    pub(super) const WORDS: usize = 2 * MOVES_MAX;

    /// Creates an empty set.
    pub(super) fn new(words: &mut Words, handles: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { count: words.next()?, context: words.next()?, device: words.next()?, handles })
    }

    fn get(&self, at: usize) -> Handle {
        self.handles.get(at).map_or(0, |handle| handle.load(Ordering::Acquire))
    }

    /// Event recorded after the launch that begins a move.
    pub(super) fn anchor(&self, move_index: usize) -> Handle {
        self.get(2 * move_index)
    }

    /// Event recorded after a move.
    pub(super) fn end(&self, move_index: usize) -> Handle {
        self.get(2 * move_index + 1)
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Acquire)).unwrap_or(0).min(Self::WORDS)
    }

    /// Whether any events exist.
    pub(super) fn exist(&self) -> bool {
        self.len() > 0
    }

    /// Whether the events suffice for this number of moves.
    pub(super) fn covers(&self, moves: usize) -> bool {
        self.len() >= 2 * moves
    }

    /// Whether events exist and belong to another context.
    pub(super) fn belong_to_other_context(&self, context: Handle) -> bool {
        self.exist() && self.context.load(Ordering::Relaxed) != context
    }

    /// Creates a batch of the events for `moves` moves in their context, which is current; true
    /// once all exist.
    ///
    /// # Errors
    /// The driver's error; `None` if it lacks a function.
    pub(super) fn create_batch(&self, moves: usize, context: Handle, device: i32) -> Result<bool, Option<CuResult>> {
        /// Size of a batch, after which calls of the program may pass the gate.
        const BATCH_MAX: usize = 128;
        self.context.store(context, Ordering::Relaxed);
        self.device.store(device.cast_unsigned().into(), Ordering::Relaxed);
        let (all, existing) = (2 * moves, self.len());
        for at in existing..all.min(existing + BATCH_MAX) {
            let event = driver::create_event()?;
            if let Some(handle) = self.handles.get(at) {
                handle.store(event, Ordering::Release);
            }
            self.count.store(at as u64 + 1, Ordering::Release);
        }
        Ok(self.covers(moves))
    }

    /// Destroys all events, if their context still exists. Leaves the thread without a context.
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

    /// Forgets the events if their context is being destroyed.
    pub(super) fn forget_context(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.forget();
        }
    }

    /// Forgets the events if their device's primary context is being destroyed.
    pub(super) fn forget_device(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == u64::from(device.cast_unsigned()) {
            self.forget();
        }
    }
}
