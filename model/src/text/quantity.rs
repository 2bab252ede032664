//! Quantities for people: bytes, counts, durations, shares and rates.

use std::time::Duration;

/// Formats bytes in powers of 1024: `12.3 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Formats a count in powers of 1000: `18.4k`.
#[must_use]
pub fn count(count: u64) -> String {
    scaled(count as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Formats a count with its noun: `1 piece`, `18.4k pieces`.
#[must_use]
pub fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", self::count(count), if count == 1 { "" } else { "s" })
}

/// Formats nanoseconds in powers of 1000: `1.2 ms`.
#[must_use]
pub fn nanoseconds(nanoseconds: u64) -> String {
    scaled(nanoseconds as f64, 1000.0, &[" ns", " us", " ms", " s", " ks", " Ms", " Gs"])
}

/// Formats a share as `92 %`. Only 0 is shown as `0 %`, and only 1 as `100 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.005 => "<1 %".to_owned(),
        share if (0.995..1.0).contains(&share) => ">99 %".to_owned(),
        share => format!("{:.0} %", share * 100.0),
    }
}

/// Formats a share of a total as `92 %`; a dash if the total is 0.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { percent(part as f64 / whole as f64) }
}

/// Format of a counter's value: count or bytes.
pub type Formatter = fn(u64) -> String;

/// Formats a rate; a dash if unknown.
#[must_use]
pub fn per_second(rate: Option<f64>, shown: Formatter) -> String {
    match rate {
        None => "-".to_owned(),
        // A nonzero rate differs from zero.
        Some(rate) if rate > 0.0 && rate < 0.5 => "<1".to_owned(),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        Some(rate) => shown(rate.round() as u64),
    }
}

/// Formats a duration in its two largest units: `4 min 12 s`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let largest = units.iter().position(|(value, _)| *value > 0).unwrap_or(units.len() - 1);
    let shown: Vec<_> = units.iter().skip(largest).take(2).map(|(value, unit)| format!("{value} {unit}")).collect();
    shown.join(" ")
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let (mut unit, mut larger) = match units {
        [first, larger @ ..] => (*first, larger),
        [] => ("", units),
    };
    // 999.5 would be rounded to 1000, so the next unit begins there.
    while let [next, rest @ ..] = larger
        && value >= base - 0.5
    {
        value /= base;
        (unit, larger) = (next, rest);
    }
    let digits = usize::from(larger.len() + 1 < units.len() && value < 99.95);
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_four_characters_and_a_unit() {
        let counts = [(0, "0"), (999, "999"), (1000, "1.0k"), (18_432, "18.4k"), (99_949, "99.9k"), (99_950, "100k")];
        for (value, text) in counts {
            assert_eq!(count(value), text);
        }
        assert_eq!((count(999_600).as_str(), count(u64::MAX).as_str()), ("1.0M", "18.4E"));
        assert_eq!((counted(1, "piece").as_str(), counted(18_400, "piece").as_str()), ("1 piece", "18.4k pieces"));
        assert_eq!((nanoseconds(999).as_str(), nanoseconds(1_240_000).as_str()), ("999 ns", "1.2 ms"));
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (12_897_485, "12.3 MiB"), (1 << 40, "1.0 TiB")];
        for (value, text) in sizes {
            assert_eq!(bytes(value), text);
        }
        assert_eq!((bytes((1 << 20) - 1).as_str(), bytes(u64::MAX).as_str()), ("1.0 MiB", "16.0 EiB"));
    }

    #[test]
    fn only_0_is_shown_as_0_percent_and_only_1_as_100_percent() {
        let shown = [0.0, 0.001, 0.5, 0.994, 0.999, 1.0].map(percent);
        assert_eq!(shown, ["0 %", "<1 %", "50 %", "99 %", ">99 %", "100 %"]);
        assert_eq!((share(1, 4).as_str(), share(1, 0).as_str()), ("25 %", "-"));
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (252, "4 min 12 s"), (7200, "2 h 0 min"), (200_000, "2 d 7 h")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_nonzero_rate_differs_from_zero() {
        let shown = |value| per_second(value, count);
        assert_eq!([None, Some(0.0), Some(0.2), Some(0.6), Some(1234.0)].map(shown), ["-", "0", "<1", "1", "1.2k"]);
    }
}
