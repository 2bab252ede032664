//! Amounts of memory as people write them.

/// Bytes, or as many of a unit: `40GiB`, `1.5 TiB`, `512MB`. Powers of 1024 have an i, powers of 1000 none.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let error = || format!("{text:?} is no amount of memory such as 40GiB, 512MB or a number of bytes");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_and_without_units_and_fractions() {
        assert_eq!(parse("40GiB"), Ok(40 << 30));
        assert_eq!(parse("1.5 TiB"), Ok(3 << 39));
        assert_eq!(parse("512mb"), Ok(512_000_000));
        assert_eq!(parse("4096"), Ok(4096));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "GiB", "40 GBit", "-1GiB", "1.2.3GiB", "99999999999TiB", "1e9"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
