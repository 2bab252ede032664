//! Clock that this process shares with others.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time of the monotonic clock.
#[must_use]
pub fn monotonic() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

/// Time of the monotonic clock that is not adjusted, which the driver's tools use.
#[must_use]
pub fn raw() -> Duration {
    Duration::from_nanos(now_ns(ClockId::MonotonicRaw))
}

/// Time of the monotonic clock, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
