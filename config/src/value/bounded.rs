//! Times, numbers and sizes, with their bounds.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::Value;

/// Time with its bounds in its type, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<const MIN_MS: u64, const MAX_MS: u64>(pub Duration);

/// Interval of readings: neither a busy loop nor endless.
pub type Interval = Time<100, 3_600_000>;
/// Minimum window of verdicts: long enough for some events, and short enough for a verdict in time.
pub type VerdictWindow = Time<100, 60_000>;
/// Interval of the loop that acts.
pub type ActInterval = Time<20, 10_000>;
/// Retention time.
pub type Retention = Time<0, 2_592_000_000>;

impl<const MIN_MS: u64, const MAX_MS: u64> Time<MIN_MS, MAX_MS> {
    fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_duration(text).ok()?;
        let bounds = Duration::from_millis(MIN_MS)..=Duration::from_millis(MAX_MS);
        bounds.contains(&time).then_some(Self(time))
    }
}

impl Value for Interval {
    const ALLOWED: &'static str = "a time from 100ms to 1h, such as \"1s\"";

    fn of_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Value for ActInterval {
    const ALLOWED: &'static str = "a time from 20ms to 10s, such as \"100ms\"";

    fn of_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Value for VerdictWindow {
    const ALLOWED: &'static str = "a time from 100ms to 1m, such as \"2s\"";

    fn of_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Value for Retention {
    const ALLOWED: &'static str = "a time of at most 30 days, such as \"5m\"";

    fn of_text(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> Serialize for Time<MIN_MS, MAX_MS> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

/// Number with its bounds in its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Number<const MIN: u32, const MAX: u32>(pub u32);

impl<const MIN: u32, const MAX: u32> Number<MIN, MAX> {
    fn within(number: i64) -> Option<Self> {
        let number = u32::try_from(number).ok()?;
        (MIN..=MAX).contains(&number).then_some(Self(number))
    }
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $min:literal to $max:literal;)*) => {$(
        $(#[$doc])*
        pub type $name = Number<$min, $max>;

        impl Value for $name {
            const ALLOWED: &'static str = concat!("a whole number from ", $min, " to ", $max);

            fn of_number(number: i64) -> Option<Self> {
                Self::within(number)
            }
        }
    )*};
}
numbers! {
    /// Maximum of exited processes retained.
    EndedMax: 0 to 100_000;
    /// Maximum of owners with sums.
    OwnersMax: 1 to 10_000;
    /// Maximum of owner pairs with sums.
    PairsMax: 1 to 100_000;
    /// Maximum of processes with series in the metrics.
    SeriesMax: 1 to 1000;
    /// Maximum of records per second.
    RecordRate: 1 to 1_000_000;
    /// Maximum of recordings of calls.
    RecordingsMax: 1 to 256;
    /// Maximum of full audit logs retained.
    AuditFiles: 0 to 1000;
}

/// Size of a ring buffer: the kernel requires a power of two of at least a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Size in bytes.
    pub bytes: u32,
}

impl RingSize {
    const MIN_BYTES: u32 = 64 << 10;
    const MAX_BYTES: u32 = 256 << 20;
    const UNITS: [(&'static str, u32); 2] = [("MiB", 1 << 20), ("KiB", 1 << 10)];
}

impl Value for RingSize {
    const ALLOWED: &'static str = "a power of two from \"64 KiB\" to \"256 MiB\", such as \"4 MiB\"";

    fn of_text(text: &str) -> Option<Self> {
        let (number, unit_bytes) =
            Self::UNITS.iter().find_map(|(unit, unit_bytes)| Some((text.strip_suffix(unit)?, unit_bytes)))?;
        let bytes = number.trim_end().parse::<u32>().ok()?.checked_mul(*unit_bytes)?;
        let is_allowed = bytes.is_power_of_two() && (Self::MIN_BYTES..=Self::MAX_BYTES).contains(&bytes);
        is_allowed.then_some(Self { bytes })
    }
}

impl Serialize for RingSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A power of two from 64 KiB on is an integer in either unit.
        let (unit, unit_bytes) =
            Self::UNITS.into_iter().find(|(_, unit_bytes)| self.bytes >= *unit_bytes).unwrap_or(("B", 1));
        serializer.collect_str(&format_args!("{} {unit}", self.bytes / unit_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::tests::texts;

    #[test]
    fn bounds_agree_with_the_messages() {
        texts::<Interval>(&["100ms", "1s", "1h"], &["99ms", "1h 1ms", "0s", "-1s", "soon", "1", ""]);
        texts::<VerdictWindow>(&["100ms", "2s", "1m"], &["99ms", "1m 1ms"]);
        texts::<Retention>(&["0s", "5m", "30d"], &["30d 1s", "forever", ""]);
        texts::<RingSize>(
            &["64 KiB", "4MiB", "256 MiB"],
            &["32 KiB", "512 MiB", "3 MiB", "4", "4 MB", "-4 MiB", "4194304 MiB", "MiB", ""],
        );
        for (number, is_allowed) in [(-1, false), (0, true), (100_000, true), (100_001, false), (i64::MAX, false)] {
            assert_eq!(EndedMax::of_number(number).is_some(), is_allowed, "{number}");
        }
        for (number, is_allowed) in [(0, false), (1, true), (1_000_000, true), (1_000_001, false)] {
            assert_eq!(RecordRate::of_number(number).is_some(), is_allowed, "{number}");
        }
    }
}
