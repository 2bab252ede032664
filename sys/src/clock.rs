//! Clock that this process shares with others.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time of the monotonic clock.
#[must_use]
pub fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// Time of the monotonic clock, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
