//! Extremes: idle times are either very short or a large part of the iteration.

use serde::Serialize;

use crate::autoswap::Problem;

/// Measure of this observation for an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extremes {
    /// Least duration of a long absence: the boundary between two groups of durations on a
    /// logarithmic scale.
    pub long_from_ns: f64,
    /// Share of long absences.
    pub long_share: f64,
    /// Of bytes times idle time, the share of absences longer than a quarter of the iteration.
    pub bytes_by_time_share: f64,
}

impl Extremes {
    /// Measures all absences of a problem. Without any, all shares are 0.
    #[must_use]
    pub fn of(problem: &Problem<'_>) -> Self {
        let lengths: Vec<_> = problem.absences().iter().map(|of| (problem.idle_ns(of), of.bytes as f64)).collect();
        let long_from_ns = long_from_ns(&lengths.iter().map(|of| of.0).collect::<Vec<_>>());
        let long = lengths.iter().filter(|of| of.0 >= long_from_ns).count();
        let area = |from_ns: f64| {
            let of = lengths.iter().filter(|of| of.0 > from_ns);
            of.map(|(ns, bytes)| ns * bytes).sum::<f64>()
        };
        let part = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        Self {
            long_from_ns,
            long_share: part(long as f64, lengths.len() as f64),
            bytes_by_time_share: part(area(problem.period_ns() / 4.0), area(0.0)),
        }
    }
}

/// Boundary between two clusters of logarithms (2-means): half way between their means. 0 if all
/// are equal.
pub(super) fn long_from_ns(lengths_ns: &[f64]) -> f64 {
    let logarithms: Vec<_> = lengths_ns.iter().map(|ns| ns.max(1.0).ln()).collect();
    let ends =
        logarithms.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &of| (low.min(of), high.max(of)));
    let (mut short, mut long) = ends;
    if short >= long {
        return 0.0;
    }
    // Converges in a few rounds; each moves the boundary in one direction only.
    for _ in 0..32 {
        let middle = f64::midpoint(short, long);
        let mean = |is_long: bool| {
            let group = logarithms.iter().filter(|&&of| (of >= middle) == is_long);
            group.clone().sum::<f64>() / group.count() as f64
        };
        (short, long) = (mean(false), mean(true));
    }
    f64::midpoint(short, long).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_two_kinds_part_between_them() {
        let from_ns = long_from_ns(&[9.0, 10.0, 12.0, 15.0, 9_000.0, 10_000.0, 30_000.0]);
        assert!(from_ns > 100.0 && from_ns < 2000.0, "{from_ns}");
        assert_eq!(long_from_ns(&[5.0, 5.0]).to_bits(), 0);
        assert_eq!(long_from_ns(&[]).to_bits(), 0);
    }
}
