//! Bayesian optimisation of weights: a Gaussian process over the simplex with the kernel Matérn
//! 5/2, and expected improvement. There is no randomness: the same objective gives the same
//! weights.

use std::f64::consts::{PI, SQRT_2};

use serde::{Deserialize, Serialize};

use super::score::Weights;

/// Number of evaluations besides those of the pure scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Evenly spread weights.
    pub starts: usize,
    /// Weights of the largest expected improvement.
    pub steps: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { starts: 8, steps: 40 }
    }
}

/// Candidates of each step.
const POOL: usize = 256;
/// Least expected improvement of a step, as a share of the observed deviation.
const LEAST_IMPROVEMENT: f64 = 1e-6;
/// Length scales of the kernel; the one of the largest likelihood is used.
const LENGTHS: [f64; 4] = [0.1, 0.2, 0.4, 0.8];
/// Noise as a share of the variance: objectives jump where a selection changes.
const NOISE: f64 = 1e-4;

/// Minimises an objective: evaluates it at the pure weights, then at others, until the effort is
/// spent or a value is at most `enough`.
pub(super) fn minimise(effort: Effort, enough: f64, mut objective: impl FnMut(Weights) -> f64) {
    let pure = (0..4).map(|at| std::array::from_fn(|score| if score == at { 1.0 } else { 0.0 }));
    let mut observed: Vec<(Weights, f64)> = Vec::new();
    for weights in pure.chain((1..=effort.starts).map(on_simplex)) {
        observed.push((weights, objective(weights)));
        if observed.last().is_some_and(|(_, value)| *value <= enough) {
            return;
        }
    }
    for _ in 0..effort.steps {
        let Some(weights) = most_promising(&observed, effort.starts) else { return };
        let value = objective(weights);
        if value <= enough {
            return;
        }
        observed.push((weights, value));
    }
}

fn most_promising(observed: &[(Weights, f64)], skipped: usize) -> Option<Weights> {
    let best = observed.iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?.0;
    let (process, least) = Process::fitted(observed)?;
    let spread = (1..=POOL).map(|at| on_simplex(skipped + at));
    // Near the best: a part of the way to each of the spread ones.
    let near = (1..=POOL / 4).map(|at| toward(best, on_simplex(at), 0.15));
    let improvements = spread.chain(near).map(|weights| (process.improvement(&weights, least), weights));
    let (most, weights) = improvements.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (most > LEAST_IMPROVEMENT).then_some(weights)
}

fn toward(from: Weights, to: Weights, share: f64) -> Weights {
    let mut weights = from;
    for (own, other) in weights.iter_mut().zip(to) {
        *own += share * (other - *own);
    }
    weights
}

/// Point of Halton's sequence that fills the simplex evenly. Its three numbers, sorted, are the
/// cuts of a stick of length 1.
fn on_simplex(number: usize) -> Weights {
    let mut cuts = [2, 3, 5].map(|base| radical_inverse(number, base));
    cuts.sort_by(f64::total_cmp);
    let [a, b, c] = cuts;
    [a, b - a, c - b, 1.0 - c]
}

/// The digits of a number mirrored at the point.
fn radical_inverse(mut number: usize, base: usize) -> f64 {
    let (mut inverse, mut digit) = (0.0, 1.0);
    while number > 0 {
        digit /= base as f64;
        inverse += digit * (number % base) as f64;
        number /= base;
    }
    inverse
}

/// Gaussian process of mean 0 and variance 1 through the observed values.
struct Process<'a> {
    observed: &'a [(Weights, f64)],
    length: f64,
    /// Lower triangle of the Cholesky decomposition of the covariances, by rows.
    lower: Vec<Vec<f64>>,
    /// The observed values, multiplied by the inverse of `lower`.
    values: Vec<f64>,
}

impl<'a> Process<'a> {
    /// The process of the largest likelihood, and the least observed value on its scale. `None`
    /// where all values are equal.
    fn fitted(observed: &'a [(Weights, f64)]) -> Option<(Self, f64)> {
        let count = observed.len() as f64;
        let mean = observed.iter().map(|(_, value)| value).sum::<f64>() / count;
        let variance = observed.iter().map(|(_, value)| (value - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt();
        if !(deviation.is_finite() && deviation > 0.0) {
            return None;
        }
        let scaled: Vec<_> = observed.iter().map(|(_, value)| (value - mean) / deviation).collect();
        let processes = LENGTHS.into_iter().filter_map(|length| {
            let lower = cholesky(observed, length)?;
            let values = solved(&lower, &scaled);
            let likelihood = -0.5 * dot(&values, &values) - diagonal(&lower).map(f64::ln).sum::<f64>();
            Some((likelihood, Self { observed, length, lower, values }))
        });
        let (_, process) = processes.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some((process, scaled.iter().copied().fold(f64::INFINITY, f64::min)))
    }

    /// Expected improvement over the least value.
    fn improvement(&self, weights: &Weights, least: f64) -> f64 {
        let covariances: Vec<_> =
            self.observed.iter().map(|(observed, _)| matern(observed, weights, self.length)).collect();
        let solved = solved(&self.lower, &covariances);
        let mean = dot(&solved, &self.values);
        let deviation = (1.0 - dot(&solved, &solved)).max(0.0).sqrt();
        if deviation < 1e-9 {
            return 0.0;
        }
        let gap = (least - mean) / deviation;
        deviation * (gap * normal(gap) + (-0.5 * gap * gap).exp() / (2.0 * PI).sqrt())
    }
}

/// Cholesky decomposition; `None` where the covariances are not positive definite in floating
/// point.
fn cholesky(observed: &[(Weights, f64)], length: f64) -> Option<Vec<Vec<f64>>> {
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(observed.len());
    for (of, _) in observed {
        let mut row = Vec::with_capacity(lower.len() + 1);
        for (before, (other, _)) in lower.iter().zip(observed) {
            let rest = matern(of, other, length) - dot(&row, before);
            row.push(rest / before.last()?);
        }
        let square = 1.0 + NOISE - dot(&row, &row);
        if square <= 0.0 {
            return None;
        }
        row.push(square.sqrt());
        lower.push(row);
    }
    Some(lower)
}

/// x of L x = b.
fn solved(lower: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let mut solved = Vec::with_capacity(right.len());
    for ((row, diagonal), right) in lower.iter().zip(diagonal(lower)).zip(right) {
        solved.push((right - dot(row, &solved)) / diagonal);
    }
    solved
}

fn diagonal(lower: &[Vec<f64>]) -> impl Iterator<Item = f64> {
    lower.iter().filter_map(|row| row.last().copied())
}

/// Dot product over the length of the shorter one.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn matern(a: &Weights, b: &Weights, length: f64) -> f64 {
    let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    let scaled = (5.0 * square).sqrt() / length;
    (1.0 + scaled + scaled * scaled / 3.0) * (-scaled).exp()
}

/// Cumulative distribution function of the normal distribution: Abramowitz and Stegun 7.1.26, to
/// 1e-7.
fn normal(value: f64) -> f64 {
    let x = value.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .iter()
        .fold(0.0, |sum, c| (sum + c) * t);
    let above = 0.5 * series * (-x * x).exp();
    if value < 0.0 { above } else { 1.0 - above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_is_that_of_tables() {
        for (value, known) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.96, 0.024_997_9), (3.0, 0.998_650_1)] {
            assert!((normal(value) - known).abs() < 2e-7, "{value}: {}", normal(value));
        }
    }

    #[test]
    fn points_of_the_sequence_are_weights() {
        for weights in (1..500).map(on_simplex) {
            assert!(weights.iter().all(|weight| *weight >= 0.0) && (weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn process_passes_through_observations() {
        let observed: Vec<_> =
            (1..12).map(on_simplex).map(|weights| (weights, 3.0 * weights[0] - weights[2])).collect();
        let (process, _) = Process::fitted(&observed).unwrap();
        let rows = || process.lower.iter().zip(&observed).enumerate();
        for (at, (row, (of, _))) in rows() {
            for (other_at, (other_row, (other, _))) in rows() {
                let noise = if at == other_at { NOISE } else { 0.0 };
                assert!((dot(row, other_row) - matern(of, other, process.length) - noise).abs() < 1e-12);
            }
        }
        assert!(observed.iter().all(|(weights, _)| process.improvement(weights, -9.0) < 1e-3));
    }

    #[test]
    fn minimum_of_a_bowl_is_found_and_pure_weights_come_first() {
        let target = [0.1, 0.6, 0.1, 0.2];
        let bowl = |weights: &Weights| weights.iter().zip(target).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let mut evaluated = Vec::new();
        minimise(Effort::default(), 0.0, |weights| {
            evaluated.push(weights);
            bowl(&weights)
        });
        assert!((0..4).all(|at| evaluated[at][at] >= 1.0) && evaluated.len() <= 4 + 8 + 40);
        let least = evaluated.iter().map(bowl).fold(f64::INFINITY, f64::min);
        let spread = (1..=48).map(|at| bowl(&on_simplex(at))).fold(f64::INFINITY, f64::min);
        assert!(least < 0.002 && least < spread / 2.0, "{least}, {spread} by spreading alone");
    }

    #[test]
    fn sufficient_value_ends_the_search() {
        let mut evaluated = 0;
        minimise(Effort::default(), 1.0, |_| {
            evaluated += 1;
            if evaluated == 3 { 1.0 } else { 2.0 }
        });
        assert_eq!(evaluated, 3);
    }
}
