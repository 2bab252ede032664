//! Numbers for display.

use std::fmt::Write;

/// Number with thousands separators: 1234567 as 1,234,567.
pub(crate) fn digits(number: u64) -> String {
    let plain = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            let _ = grouped.write_char(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(digits(number), text);
        }
    }
}
