//! Counts of a worker for the runner, in shared memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scenario::Call;

/// Actions of a process that cannot be seen from outside. The memory is shared with the runner, so
/// that it outlives the process.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Words that steps read and compared; a word counts once per read.
    pub(crate) words_read: AtomicU64,
    /// Bytes compared by the last verification of every allocation.
    pub(crate) verified_bytes: AtomicU64,
    /// Words with an unexpected value.
    pub(crate) mismatches: AtomicU64,
    /// Kernels that it began: GPU steps.
    pub(crate) kernels: AtomicU64,
    /// Application's calls of the driver, by [`Call::kind`].
    calls: [Calls; Call::KINDS],
}

/// Calls of one kind.
#[repr(C)]
#[derive(Debug, Default)]
struct Calls {
    count: AtomicU64,
    /// Bytes of their ranges.
    bytes: AtomicU64,
}

// === impl Tally ===

impl Tally {
    /// Number of kernels begun.
    pub(crate) fn kernels(&self) -> u64 {
        self.kernels.load(Ordering::Relaxed)
    }

    /// Counts a call before it is made.
    pub(crate) fn count_call(&self, call: Call, bytes: u64) {
        if let Some(calls) = self.calls.get(call.kind()) {
            calls.count.fetch_add(1, Ordering::Relaxed);
            calls.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Number of calls and bytes of their ranges, by kind.
    pub(crate) fn calls(&self) -> [(u64, u64); Call::KINDS] {
        self.calls
            .each_ref()
            .map(|Calls { count, bytes }| (count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)))
    }
}
