//! CPU time of the calling thread.

use std::{fs, time::Instant};

/// Shortest reliable CPU time: some kernels account in ticks of several milliseconds.
const RELIABLE_MIN_S: f64 = 0.05;

/// Runs a closure, and returns its result and its CPU time in seconds. Without a reliable CPU time,
/// the elapsed time.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let (start, before) = (Instant::now(), spent_ns());
    let result = work();
    let spent_s = before.zip(spent_ns()).map(|(before, after)| after.saturating_sub(before) as f64 / 1e9);
    (result, spent_s.filter(|&spent_s| spent_s >= RELIABLE_MIN_S).unwrap_or_else(|| start.elapsed().as_secs_f64()))
}

/// CPU time of the thread in ns: the first field of schedstat.
fn spent_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}
