//! What a worker counts for the runner, in memory that they share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scenario::Call;

/// What a process did that cannot be seen from outside. It lies in memory shared with the runner, so that it outlives the process.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Words that steps read and compared, the same word as often as it was read.
    pub(crate) words_read: AtomicU64,
    /// Bytes compared by the last verification of every allocation.
    pub(crate) verified_bytes: AtomicU64,
    /// Words that did not hold what they must.
    pub(crate) mismatches: AtomicU64,
    /// Kernels that it began: GPU steps.
    pub(crate) kernels: AtomicU64,
    /// The application's calls of the driver, by [`Call::kind`].
    calls: [Calls; Call::KINDS],
}

/// Calls of one kind.
#[repr(C)]
#[derive(Debug, Default)]
struct Calls {
    count: AtomicU64,
    /// Of the ranges that they were about.
    bytes: AtomicU64,
}

// === impl Tally ===

impl Tally {
    /// Kernels begun so far.
    pub(crate) fn kernels(&self) -> u64 {
        self.kernels.load(Ordering::Relaxed)
    }

    /// A call is about to be made.
    pub(crate) fn called(&self, call: Call, bytes: u64) {
        if let Some(calls) = self.calls.get(call.kind()) {
            calls.count.fetch_add(1, Ordering::Relaxed);
            calls.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Calls of each kind so far, and bytes.
    pub(crate) fn calls(&self) -> [(u64, u64); Call::KINDS] {
        self.calls
            .each_ref()
            .map(|Calls { count, bytes }| (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)))
    }
}
