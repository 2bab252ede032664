//! Sizes as people write them: `40GiB`.

/// Bytes, or a number with KiB, MiB, GiB or TiB, with or without a point and a space.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let text = text.trim();
    let of = |&(unit, shift): &(&str, u32)| text.strip_suffix(unit).map(|number| (number.trim_end(), shift));
    let (number, shift) = UNITS.iter().find_map(of).unwrap_or((text, 0));
    let wrong = || format!("{text:?} is no size: 40GiB, 512 MiB, 1.5TiB or a number of bytes");
    let most = u64::MAX >> shift;
    if let Ok(whole) = number.parse::<u64>() {
        return if whole <= most { Ok(whole << shift) } else { Err(wrong()) };
    }
    let part = number.parse::<f64>().ok().filter(|part| *part >= 0.0 && *part < most as f64 && shift > 0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "neither negative nor too large")]
    part.map(|part| (part * (1_u64 << shift) as f64) as u64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        let sizes = ["17", "3 B", "512KiB", "1.5 MiB", "40GiB", "2TiB"].map(|text| parse(text).unwrap());
        assert_eq!(sizes, [17, 3, 512 << 10, 3 << 19, 40 << 30, 2 << 40]);
        for wrong in ["", "GiB", "-1GiB", "1.5", "40GB", "1e99GiB", "nan MiB", "18446744073709551615KiB", "99999999TiB"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
