//! Sums over all kernels of a process.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ptx::Counts;

/// Sums over all kernels.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    launches: AtomicU64,
    thread_instructions: AtomicU64,
    loads: AtomicU64,
    stores: AtomicU64,
    atomics: AtomicU64,
    kernel_ns: AtomicU64,
}

impl Statistics {
    /// Adds a kernel.
    pub(crate) fn add(&self, counts: &Counts, time: Duration) {
        let add = |sum: &AtomicU64, value: u64| sum.fetch_add(value, Ordering::Relaxed);
        add(&self.launches, 1);
        add(&self.thread_instructions, counts.thread_instructions);
        add(&self.loads, counts.loads);
        add(&self.stores, counts.stores);
        add(&self.atomics, counts.atomics);
        add(&self.kernel_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All sums in a line.
    pub(crate) fn line(&self) -> String {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        format!(
            "{} kernels, {} thread instructions, {} loads, {} stores, {} atomics, {:.3} s",
            of(&self.launches),
            of(&self.thread_instructions),
            of(&self.loads),
            of(&self.stores),
            of(&self.atomics),
            of(&self.kernel_ns) as f64 / 1e9
        )
    }
}
