//! What something costs the thread that does it.

use std::{fs, time::Instant};

/// Some kernels count in ticks of some milliseconds.
const COARSE_S: f64 = 0.05;

/// Does it, and says for how many seconds a CPU ran for it. Where the kernel does not tell, or not so finely, how long it took.
pub(crate) fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let (began, before) = (Instant::now(), spent_ns());
    let done = what();
    let spent_s = before.zip(spent_ns()).map(|(before, after)| after.saturating_sub(before) as f64 / 1e9);
    (done, spent_s.filter(|&spent_s| spent_s >= COARSE_S).unwrap_or_else(|| began.elapsed().as_secs_f64()))
}

/// The first figure of schedstat: nanoseconds on a CPU.
fn spent_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}
