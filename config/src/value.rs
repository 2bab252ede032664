//! Values of options: one text form each, in the file and on the command line, and a sentence with
//! the allowed values.

mod bounded;
mod hosts;
mod listen;
mod policy;
mod size;

use std::{fmt, marker::PhantomData, path::PathBuf, str::FromStr};

pub use bounded::{
    ActInterval, AuditFiles, EndedMax, Interval, Number, OwnersMax, PairsMax, RecordRate, RecordingsMax, Retention,
    RingSize, SeriesMax, Time, VerdictWindow,
};
pub use hosts::HostNames;
pub use listen::Listen;
use model::ToolsLevel;
pub use policy::{ActuatorName, ModeName, PolicyName};
use serde::{
    Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Unexpected, Visitor},
};
pub use size::{AuditSize, Budget, CallSize, Reserve, Size};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Value of an option.
pub trait Value: Sized {
    /// Allowed values, to follow the word "expected".
    const ALLOWED: &'static str;

    /// Value of text in quotes, or a word on the command line.
    #[must_use]
    fn of_text(_: &str) -> Option<Self> {
        None
    }

    /// Value of an integer.
    #[must_use]
    fn of_number(_: i64) -> Option<Self> {
        None
    }

    /// Value of `true` or `false`.
    #[must_use]
    fn of_flag(_: bool) -> Option<Self> {
        None
    }

    /// Value of a list of texts.
    #[must_use]
    fn of_texts(_: Vec<String>) -> Option<Self> {
        None
    }
}

/// Word that is no value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {allowed}")]
pub struct InvalidWord {
    /// Allowed values.
    pub allowed: &'static str,
}

/// Parses a word on the command line.
///
/// # Errors
/// [`InvalidWord`], with the allowed values.
pub fn of_word<T: Value>(word: &str) -> Result<T, InvalidWord> {
    T::of_text(word).ok_or(InvalidWord { allowed: T::ALLOWED })
}

/// Function for `#[serde(deserialize_with)]`.
pub(crate) fn of_file<'de, T: Value, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Reader<T>(PhantomData<T>);

    impl<'de, T: Value> Visitor<'de> for Reader<T> {
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

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                texts.push(text);
            }
            T::of_texts(texts).ok_or_else(|| A::Error::invalid_value(Unexpected::Seq, &self))
        }
    }

    deserializer.deserialize_any(Reader(PhantomData))
}

impl<T: Value> Value for Option<T> {
    const ALLOWED: &'static str = T::ALLOWED;

    fn of_text(text: &str) -> Option<Self> {
        T::of_text(text).map(Some)
    }

    fn of_number(number: i64) -> Option<Self> {
        T::of_number(number).map(Some)
    }

    fn of_texts(texts: Vec<String>) -> Option<Self> {
        T::of_texts(texts).map(Some)
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false";

    fn of_flag(flag: bool) -> Option<Self> {
        Some(flag)
    }
}

/// Name of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hostname(pub String);

impl Value for Hostname {
    const ALLOWED: &'static str = "a name without spaces, such as \"gpu-17\"";

    fn of_text(text: &str) -> Option<Self> {
        let is_name = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        is_name.then(|| Self(text.to_owned()))
    }
}

/// Group of users on the node, by name or number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupName(pub String);

impl Value for GroupName {
    const ALLOWED: &'static str = "a group, such as \"gpu-users\"";

    fn of_text(text: &str) -> Option<Self> {
        let is_name = !text.is_empty()
            && text.len() <= 256
            && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':');
        is_name.then(|| Self(text.to_owned()))
    }

    fn of_number(number: i64) -> Option<Self> {
        u32::try_from(number).ok().map(|number| Self(number.to_string()))
    }
}

/// Absolute path of a file: the service's working directory is arbitrary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbsolutePath(pub PathBuf);

impl Value for AbsolutePath {
    const ALLOWED: &'static str = "a path from the root, such as \"/var/log/uvmd.log\"";

    fn of_text(text: &str) -> Option<Self> {
        let path = PathBuf::from(text);
        (path.is_absolute() && path.file_name().is_some()).then_some(Self(path))
    }
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Entries with fields if the journal of systemd reads standard error, else text.
    Auto,
    /// Text for people.
    Text,
    /// JSON for programs, one object per line.
    Json,
}

impl Value for LogFormat {
    const ALLOWED: &'static str = "\"auto\", \"text\" or \"json\"";

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Source of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Probes, or the driver's tools where the kernel has neither kprobes nor fentry.
    Auto,
    /// Probes alone.
    Probes,
    /// The driver's tools alone.
    Tools,
}

impl Value for Source {
    const ALLOWED: &'static str = "\"auto\", \"probes\" or \"tools\"";

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "probes" => Some(Self::Probes),
            "tools" => Some(Self::Tools),
            _ => None,
        }
    }
}

impl Value for ToolsLevel {
    const ALLOWED: &'static str = "\"counters\", \"kinds\", \"moves\" or \"faults\"";

    fn of_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text)
    }
}

/// Cross-check of the probes by the driver's own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Crosscheck {
    /// None.
    Off,
    /// One process at a time.
    Sampled,
}

impl Value for Crosscheck {
    const ALLOWED: &'static str = "\"off\" or \"sampled\"";

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "sampled" => Some(Self::Sampled),
            _ => None,
        }
    }
}

/// Filter of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

impl LogFilter {
    /// Filter in the log's type.
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
        // A lone word that is not a level would count as a part, and a mistyped level would silence
        // everything; an empty one would mean "error".
        let is_level = |word: &str| !word.is_empty() && LevelFilter::from_str(word).is_ok();
        let is_clear = |directive: &str| match directive.split_once('=') {
            Some((part, level)) => !part.is_empty() && is_level(level),
            None => is_level(directive),
        };
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
pub(crate) mod tests {
    use super::*;

    pub(crate) fn texts<T: Value>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(T::of_text(text).is_some(), "{text:?}");
        }
        for text in bad {
            assert!(T::of_text(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn texts_are_parsed_as_allowed() {
        texts::<Hostname>(&["gpu-17", "node.example"], &["", "a b", "a\n"]);
        texts::<GroupName>(&["gpu-users", "1000"], &["", "a b", "a:b", "a\n"]);
        texts::<AbsolutePath>(&["/var/log/uvmd.log"], &["uvmd.log", "./x", "/", ""]);
        texts::<LogFormat>(&["auto", "text", "json"], &["JSON", "yaml", ""]);
        texts::<Source>(&["auto", "probes", "tools"], &["Tools", "ebpf", ""]);
        texts::<Crosscheck>(&["off", "sampled"], &["on", "Off", ""]);
        texts::<LogFilter>(
            &["off", "warn", "info,collector=debug", "INFO"],
            &["inof", "uvmd=shouting", "uvmd=", "=info", "info,", ""],
        );
    }
}
