//! Text of times, addresses and quantities.

mod quantity;

use std::{fmt, time::SystemTime};

pub use quantity::{Formatter, bytes, count, counted, duration, nanoseconds, per_second, percent, share};
use serde::{Deserializer, de};
use thiserror::Error;

/// Text in another form than the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// No time.
    #[error("{0:?} is no time in UTC such as \"2027-01-01T00:00:00Z\"")]
    Time(String),
    /// No address.
    #[error("{0:?} is no address such as 0x7f2a40000000")]
    Address(String),
    /// No amount of memory, or more than 64 bits.
    #[error("{0:?} is no amount of memory such as 40GiB, 512MB or a number of bytes")]
    Bytes(String),
}

/// RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn time(at: SystemTime) -> String {
    // A clock that was never set may read as earlier than 1970, which RFC 3339 could say and the formatter cannot.
    humantime::format_rfc3339_millis(at.max(SystemTime::UNIX_EPOCH)).to_string()
}

/// Reads a time as [`time`] writes it, or with less or more digits.
///
/// # Errors
/// [`ParseError::Time`].
pub fn parse_time(text: &str) -> Result<SystemTime, ParseError> {
    humantime::parse_rfc3339(text).map_err(|_| ParseError::Time(text.to_owned()))
}

/// In hexadecimal, with `0x`.
#[must_use]
pub fn address(address: u64) -> String {
    format!("{address:#x}")
}

/// Reads an address as [`address`] writes it.
///
/// # Errors
/// [`ParseError::Address`].
pub fn parse_address(text: &str) -> Result<u64, ParseError> {
    // A sign is a digit to the parser.
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    address.ok_or_else(|| ParseError::Address(text.to_owned()))
}

/// Reads bytes, or as many of a unit: `40GiB`, `1.5 TiB`, `512MB`. Powers of 1024 have an i, powers of 1000 none.
///
/// # Errors
/// [`ParseError::Bytes`].
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::Bytes(text.to_owned());
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(error()),
    };
    // Whole numbers are exact.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit_bytes).ok_or_else(error);
    }
    let bytes = number.parse::<f64>().map_err(|_| error())? * unit_bytes as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: it fits")]
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(error()) }
}

/// Reads a number of bytes, or text with a unit, from a document.
pub(crate) fn bytes_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of bytes, or text with a unit, such as \"64 MiB\"")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Self::Value, E> {
            Ok(Some(bytes))
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
            let invalid = |_| E::invalid_value(de::Unexpected::Signed(bytes), &self);
            u64::try_from(bytes).map(Some).map_err(invalid)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let invalid = |_| E::invalid_value(de::Unexpected::Str(text), &self);
            parse_bytes(text).map(Some).map_err(invalid)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(Bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(time(at), "2023-11-14T22:13:20.250Z");
        assert_eq!(parse_time(&time(at)), Ok(at));
        assert_eq!(parse_time("2023-11-14T22:13:20Z"), Ok(at - Duration::from_millis(250)));
        assert_eq!(parse_address(&address(0x7f2a_4000_0000)), Ok(0x7f2a_4000_0000));
    }

    #[test]
    fn what_is_no_time_or_address_is_refused() {
        for text in ["", "tomorrow", "2h", "2023-11-14", "2023-11-14T22:13:20", "2023-11-14T22:13:20+01:00"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        for text in ["", "0x", "1234", "0x+1", "0x12345678901234567", "0xg"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_read_with_and_without_units_and_fractions() {
        assert_eq!(parse_bytes("40GiB"), Ok(40 << 30));
        assert_eq!(parse_bytes("1.5 TiB"), Ok(3 << 39));
        assert_eq!(parse_bytes("512mb"), Ok(512_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "GiB", "40 GBit", "-1GiB", "1.2.3GiB", "99999999999TiB", "1e9"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
