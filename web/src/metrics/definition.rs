//! What a metric is: name, type, labels, help, and where its samples come from. The exposition and docs/metrics.md are both made of these.

use model::Distribution;

use super::{
    figures::{Figures, Row},
    labels::Label,
};

/// One metric.
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static Label],
    pub(super) help: &'static str,
    pub(super) samples: Samples,
}

/// Where a metric's samples come from, by how its value moves.
pub(super) enum Samples {
    /// Only up, until uvmd restarts.
    Counter(Of<f64>),
    /// Up and down.
    Gauge(Of<f64>),
    /// A distribution of values; its counts only go up.
    Histogram(&'static Buckets, Of<Distribution>),
}

/// Takes samples of one kind.
type Of<T> = fn(&Figures<'_>) -> Vec<Sample<T>>;

/// The upper bounds of a histogram's buckets. They must not change: queries over time add up what has the same bounds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// In the distribution's unit, growing.
    pub(super) bounds: &'static [u64],
    /// How many of the distribution's units make one of the metric's: 10^9 for nanoseconds shown as seconds.
    pub(super) units_per_one: u32,
}

/// One series' value, with its label values in the order of the definition's labels.
pub(super) struct Sample<T = f64> {
    pub(super) labels: Vec<String>,
    pub(super) value: T,
}

// === impl Buckets ===

impl Buckets {
    /// A value of the distribution, in the metric's unit.
    pub(super) fn scaled(&self, value: u64) -> f64 {
        value as f64 / f64::from(self.units_per_one)
    }
}

// === impl Sample ===

impl Sample {
    pub(super) fn new<const N: usize>(labels: [&str; N], value: f64) -> Self {
        Self { labels: labels.map(str::to_owned).into(), value }
    }

    /// Of what is counted by its labels.
    pub(super) fn of(labels: &[String], value: u64) -> Self {
        Self { labels: labels.to_vec(), value: value as f64 }
    }
}

// === impl Row ===

impl Row<'_> {
    /// A sample with this row's labels and `more`.
    pub(super) fn sample<const N: usize>(&self, more: [&str; N], value: u64) -> Sample {
        let labels = self.labels.iter().cloned().chain(more.map(str::to_owned)).collect();
        Sample { labels, value: value as f64 }
    }

    /// A sample with this row's labels, of what is not counted in whole ones.
    pub(super) fn number(&self, value: f64) -> Sample {
        Sample { labels: self.labels.clone(), value }
    }

    /// One sample for each of `variants`, which are named.
    pub(super) fn each<T: Copy, const N: usize>(
        &self,
        variants: [T; N],
        name: fn(T) -> &'static str,
        value: impl Fn(T) -> u64,
    ) -> Vec<Sample> {
        variants.into_iter().map(|variant| self.sample([name(variant)], value(variant))).collect()
    }

    /// A sample with this row's labels and `more`.
    pub(super) fn distribution<const N: usize>(
        &self,
        more: [&str; N],
        distribution: &Distribution,
    ) -> Sample<Distribution> {
        let labels = self.labels.iter().cloned().chain(more.map(str::to_owned)).collect();
        Sample { labels, value: distribution.clone() }
    }
}
