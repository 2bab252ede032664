//! Values of options: one text form each, in the file and on the command line, and one sentence about what is allowed.

use std::{fmt, marker::PhantomData, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use serde::{
    Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// A value that one option takes.
pub trait Value: Sized {
    /// What is allowed, to follow the word "expected".
    const ALLOWED: &'static str;

    /// From text in quotes, or a word on the command line.
    #[must_use]
    fn of_text(_: &str) -> Option<Self> {
        None
    }

    /// From a whole number.
    #[must_use]
    fn of_number(_: i64) -> Option<Self> {
        None
    }

    /// From `true` or `false`.
    #[must_use]
    fn of_flag(_: bool) -> Option<Self> {
        None
    }
}

/// Reads a value from a word on the command line.
///
/// # Errors
/// What is allowed.
pub fn of_word<T: Value>(word: &str) -> Result<T, String> {
    T::of_text(word).ok_or_else(|| format!("expected {}", T::ALLOWED))
}

/// For `#[serde(deserialize_with)]`.
pub(crate) fn of_file<'de, T: Value, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Reader<T>(PhantomData<T>);

    impl<T: Value> Visitor<'_> for Reader<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::ALLOWED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::of_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            T::of_number(number).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_bool<E: Error>(self, flag: bool) -> Result<T, E> {
            T::of_flag(flag).ok_or_else(|| E::invalid_value(Unexpected::Bool(flag), &self))
        }
    }

    deserializer.deserialize_any(Reader(PhantomData))
}

impl<T: Value> Value for Option<T> {
    const ALLOWED: &'static str = T::ALLOWED;

    fn of_text(text: &str) -> Option<Self> {
        T::of_text(text).map(Some)
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false";

    fn of_flag(flag: bool) -> Option<Self> {
        Some(flag)
    }
}

impl Value for SocketAddr {
    const ALLOWED: &'static str = "an address and a port, such as \"127.0.0.1:9477\" or \"[::1]:9477\"";

    fn of_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A node's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hostname(pub String);

impl Value for Hostname {
    const ALLOWED: &'static str = "a name without spaces, such as \"gpu-17\"";

    fn of_text(text: &str) -> Option<Self> {
        let is_name = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        is_name.then(|| Self(text.to_owned()))
    }
}

/// A file's name, from the root: the service's working directory is nobody's choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbsolutePath(pub PathBuf);

impl Value for AbsolutePath {
    const ALLOWED: &'static str = "a path from the root, such as \"/var/log/uvmd.log\"";

    fn of_text(text: &str) -> Option<Self> {
        let path = PathBuf::from(text);
        (path.is_absolute() && path.file_name().is_some()).then_some(Self(path))
    }
}

/// A time that has its bounds in its type, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<const MIN_MS: u64, const MAX_MS: u64>(pub Duration);

/// Between two readings of the counters: neither a busy loop nor for ever.
pub type Interval = Time<100, 3_600_000>;
/// How long something is kept.
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

/// A number that has its bounds in its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Number<const MIN: u32, const MAX: u32>(pub u32);

/// How many ended processes are kept.
pub type EndedMax = Number<0, 100_000>;
/// How many processes have series in the metrics.
pub type SeriesMax = Number<1, 1000>;
/// How many records a second.
pub type RecordRate = Number<1, 1_000_000>;

impl<const MIN: u32, const MAX: u32> Number<MIN, MAX> {
    fn within(number: i64) -> Option<Self> {
        let number = u32::try_from(number).ok()?;
        (MIN..=MAX).contains(&number).then_some(Self(number))
    }
}

impl Value for EndedMax {
    const ALLOWED: &'static str = "a whole number from 0 to 100000";

    fn of_number(number: i64) -> Option<Self> {
        Self::within(number)
    }
}

impl Value for SeriesMax {
    const ALLOWED: &'static str = "a whole number from 1 to 1000";

    fn of_number(number: i64) -> Option<Self> {
        Self::within(number)
    }
}

impl Value for RecordRate {
    const ALLOWED: &'static str = "a whole number from 1 to 1000000";

    fn of_number(number: i64) -> Option<Self> {
        Self::within(number)
    }
}

/// The size of a ring buffer, which the kernel wants to be a power of two, and no less than a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Bytes.
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
        // A power of two from 64 KiB on is a whole number of either unit.
        let (unit, unit_bytes) =
            Self::UNITS.into_iter().find(|(_, unit_bytes)| self.bytes >= *unit_bytes).unwrap_or(("B", 1));
        serializer.collect_str(&format_args!("{} {unit}", self.bytes / unit_bytes))
    }
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

impl Value for LogFormat {
    const ALLOWED: &'static str = "\"text\" or \"json\"";

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

impl LogFilter {
    /// As the log takes it.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.targets.clone()
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { text: "info".to_owned(), targets: Targets::new().with_default(LevelFilter::INFO) }
    }
}

impl Value for LogFilter {
    const ALLOWED: &'static str =
        "off, error, warn, info, debug or trace; or by part as well, as in \"info,collector=debug\"";

    fn of_text(text: &str) -> Option<Self> {
        // A lone word that is no level would be taken for a part, and a mistyped level would silence everything.
        let is_level = |word: &str| !word.is_empty() && LevelFilter::from_str(word).is_ok();
        let is_clear = |directive: &str| directive.contains('=') || is_level(directive);
        let targets = text.parse().ok().filter(|_| text.split(',').all(is_clear))?;
        Some(Self { text: text.to_owned(), targets })
    }
}

impl Serialize for LogFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<T: Value>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(T::of_text(text).is_some(), "{text:?}");
        }
        for text in bad {
            assert!(T::of_text(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn bounds_are_where_the_messages_say() {
        texts::<Interval>(&["100ms", "1s", "1h"], &["99ms", "1h 1ms", "0s", "-1s", "soon", "1", ""]);
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

    #[test]
    fn texts_are_what_they_should_be() {
        texts::<SocketAddr>(&["127.0.0.1:9477", "[::]:0"], &["9477", "localhost:9477", "127.0.0.1", ""]);
        texts::<Hostname>(&["gpu-17", "node.example"], &["", "a b", "a\n"]);
        texts::<AbsolutePath>(&["/var/log/uvmd.log"], &["uvmd.log", "./x", "/", ""]);
        texts::<LogFormat>(&["text", "json"], &["JSON", "yaml", ""]);
        texts::<LogFilter>(&["off", "warn", "info,collector=debug", "INFO"], &["inof", "uvmd=shouting", "info,", ""]);
    }
}
