//! Repeats at the end of a sequence.

/// Number of last tokens that equal those p before them, for each p, counted back from the end. The
/// entry at 0 is the number of tokens.
///
/// Z-array of the reversed sequence, in linear time.
pub(super) fn suffix_repeats(tokens: &[u64]) -> Vec<usize> {
    let count = tokens.len();
    let from_end = |index: usize| tokens.get(count - 1 - index);
    let mut lengths = vec![0; count];
    if let Some(first) = lengths.first_mut() {
        *first = count;
    }
    // Tokens [left, right) equal the beginning of the sequence.
    let (mut left, mut right) = (0, 0);
    for at in 1..count {
        let matched = if at < right { lengths.get(at - left).copied().unwrap_or(0).min(right - at) } else { 0 };
        let mut length = matched;
        while at + length < count && from_end(length) == from_end(at + length) {
            length += 1;
        }
        if at + length > right {
            (left, right) = (at, at + length);
        }
        if let Some(entry) = lengths.get_mut(at) {
            *entry = length;
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_equal_those_of_pairwise_comparison() {
        let mut seed = 1_u64;
        for count in 0..60 {
            let tokens: Vec<u64> = (0..count)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    seed >> 63
                })
                .collect();
            let from_end = |index: usize| tokens[tokens.len() - 1 - index];
            let plain = |p: usize| (0..tokens.len() - p).take_while(|&i| from_end(i) == from_end(i + p)).count();
            let expected: Vec<_> = (0..tokens.len()).map(plain).collect();
            assert_eq!(suffix_repeats(&tokens), expected, "{tokens:?}");
        }
    }
}
