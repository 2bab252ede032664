//! Clock of the probes: time since boot, suspended time included.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use sys::Roots;

/// Granularity of /proc: hundredths of a second, rounded down.
const GRANULARITY: Duration = Duration::from_millis(10);

/// Time since boot, or a little less; `None` if /proc cannot be read.
pub(crate) fn since_boot(roots: &Roots) -> Option<Duration> {
    let text = fs::read_to_string(roots.proc.join("uptime")).ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// Time since boot in ns, or a little more, even if /proc cannot be read.
pub(crate) fn not_before_now(roots: &Roots) -> u64 {
    since_boot(roots).map_or(u64::MAX, |uptime| nanoseconds(uptime + 2 * GRANULARITY))
}

/// Nanoseconds, as in a record.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Calendar time of a time since boot in ns, by the clock as it is set now.
pub(crate) fn wall(roots: &Roots) -> impl Fn(u64) -> SystemTime {
    let (now, uptime) = (SystemTime::now(), since_boot(roots));
    move |boottime_ns| {
        let age = uptime.and_then(|uptime| uptime.checked_sub(Duration::from_nanos(boottime_ns))).unwrap_or_default();
        now.checked_sub(age).unwrap_or(now)
    }
}
