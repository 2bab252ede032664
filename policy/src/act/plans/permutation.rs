//! Exact permutation test of two groups of measurements.

/// One-sided p-value: the share of all arrangements of the measurements into groups of these sizes
/// in which the mean of the first group exceeds that of the second by at least the observed
/// difference. 1 if a group is empty, or with 16 or more measurements.
pub(crate) fn p_value(first: &[f64], second: &[f64]) -> f64 {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let is_computable = all.len() < 16 && !first.is_empty() && !second.is_empty();
    if !is_computable {
        return 1.0;
    }
    let total: f64 = all.iter().sum();
    // For fixed sizes and a fixed total, the difference of the means grows with the first sum.
    let observed: f64 = first.iter().sum();
    let slack = total.abs() * f64::EPSILON * 8.0;
    let (mut arrangements, mut as_large) = (0_u32, 0_u32);
    for chosen in 0_u32..1 << all.len() {
        if chosen.count_ones() as usize != first.len() {
            continue;
        }
        arrangements += 1;
        let sum: f64 = all.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, value)| value).sum();
        as_large += u32::from(sum >= observed - slack);
    }
    f64::from(as_large) / f64::from(arrangements)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_that_do_not_overlap_have_one_arrangement_of_70() {
        let p = p_value(&[84.0, 88.0, 85.0, 84.0], &[52.0, 60.0, 52.0, 53.0]);
        assert!((p - 1.0 / 70.0).abs() < 1e-12, "{p}");
    }

    #[test]
    fn one_exchanged_pair_of_neighbours_is_two_of_70() {
        let p = p_value(&[5.0, 6.0, 7.0, 3.9], &[4.0, 1.0, 2.0, 3.0]);
        assert!((p - 2.0 / 70.0).abs() < 1e-12, "{p}");
    }

    #[test]
    fn equal_measurements_are_no_evidence() {
        assert!((p_value(&[0.1; 4], &[0.1; 4]) - 1.0).abs() < f64::EPSILON);
        assert!((p_value(&[], &[1.0]) - 1.0).abs() < f64::EPSILON);
    }

    proptest! {
        #[test]
        fn p_value_is_a_share_and_grows_with_the_second_group(
            first in proptest::collection::vec(0.0..1e9, 4),
            second in proptest::collection::vec(0.0..1e9, 4),
            more in 0.0..1e9,
        ) {
            let p = p_value(&first, &second);
            prop_assert!(p > 0.0 && p <= 1.0);
            let worse: Vec<f64> = second.iter().map(|value| value + more).collect();
            prop_assert!(p_value(&first, &worse) >= p - 1e-12);
        }

        /// Chance alone passes a level of 5 % in at most 5 % of all arrangements.
        #[test]
        fn false_positive_rate_is_at_most_the_level(
            values in proptest::collection::vec(0.0..1e6, 8),
        ) {
            let mut passed = 0;
            let mut all = 0;
            for chosen in 0_u32..256 {
                if chosen.count_ones() == 4 {
                    let (first, second): (Vec<_>, Vec<_>) =
                        values.iter().enumerate().partition(|(at, _)| chosen >> at & 1 == 1);
                    let values = |group: Vec<(usize, &f64)>| group.iter().map(|(_, value)| **value).collect::<Vec<_>>();
                    passed += u32::from(p_value(&values(first), &values(second)) < 0.05);
                    all += 1;
                }
            }
            prop_assert!(f64::from(passed) / f64::from(all) <= 0.05);
        }
    }
}
