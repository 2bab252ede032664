//! Byte counts as users write them: `4096`, `"64 KiB"`, `"2 MiB"`.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// Byte count in a scenario file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;

impl Bytes {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => MIB,
            "GiB" => 1 << 30,
            _ => return Err(format!("{text:?} is not a size; write bytes, or a whole number of KiB, MiB or GiB")),
        };
        let number: u64 = number.parse().map_err(|_| format!("{text:?} is not a size: no whole number in front"))?;
        number.checked_mul(scale).map(Self).ok_or_else(|| format!("{text:?} does not fit in 64 bits"))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes as a whole number or a string like \"64 KiB\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::custom(format!("{value} bytes: a size is not negative")))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Bytes, E> {
                Bytes::parse(value).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Format bytes for readers, in the largest unit in which the value is at least 1.
pub(crate) fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        _ => format!("{:.2} GiB", bytes as f64 / (1024.0 * MIB as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_is_in_bytes() {
        for (text, bytes) in [("4096", 4096), ("64 KiB", 65536), ("2MiB", 2 * MIB), (" 1 GiB ", 1 << 30), ("7 B", 7)] {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn an_ambiguous_or_invalid_size_is_rejected() {
        for text in ["64 KB", "64 kib", "-1", "", "MiB", "1.5 MiB", "18446744073709551615 KiB", "1 2 KiB"] {
            assert!(Bytes::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_formatted_in_the_largest_fitting_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(65536), "64.0 KiB");
        assert_eq!(human(96 * MIB), "96.0 MiB");
        assert_eq!(human(3 << 30), "3.00 GiB");
    }
}
