//! Numbers in text files of the kernel.

/// Decimal number at the start of a text; `u64::MAX` for "max".
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"max") {
        return Some(u64::MAX);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let mut value = None::<u64>;
    for digit in digits {
        value = Some(value.unwrap_or(0).saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    }
    value
}

/// Number after a prefix in the first line that has both. The prefix includes the separator.
#[must_use]
pub fn number_after(prefix: &[u8], text: &[u8]) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| number(line.strip_prefix(prefix)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_writes_them() {
        assert_eq!(number(b"max\n"), Some(u64::MAX));
        assert_eq!(number(b"4096\n"), Some(4096));
        assert_eq!(number(b"99999999999999999999999\n"), Some(u64::MAX));
        assert_eq!(number(b"\n"), None);
        let stat = b"anon 5\nfile 6\ninactive_file 77\n";
        assert_eq!((number_after(b"inactive_file ", stat), number_after(b"inactive ", stat)), (Some(77), None));
    }
}
