//! Definition of a metric: name, type, labels, help, and source of its samples. The exposition and
//! docs/metrics.md are generated from the definitions.

use model::{Distribution, Quantity};

use super::{
    figures::{Figures, Row},
    labels::Label,
};

/// Definition of one metric.
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static Label],
    pub(super) help: &'static str,
    pub(super) samples: Samples,
}

/// Type of a metric, and source of its samples.
pub(super) enum Samples {
    /// Monotonic until uvmd restarts.
    Counter(Of<f64>),
    /// The same, of one count: a sample for each row.
    Count(Count),
    /// A value that rises and falls.
    Gauge(Of<f64>),
    /// Distribution of values, with monotonic counts.
    Histogram(&'static Buckets, Of<Distribution>),
}

/// Source of samples of one kind.
type Of<T> = fn(&Figures<'_>) -> Vec<Sample<T>>;

/// Count of each row of a kind.
pub(super) struct Count {
    of: RowsOf,
    /// Quantity without which there are no samples: the count is absent, not 0.
    quantity: Option<Quantity>,
    value: fn(&Row<'_>) -> u64,
}

/// Rows of one kind. [`Self::count`] defines a metric of them.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Labels that the rows have values of.
    pub(super) labels: &'static [&'static Label],
    pub(super) of: RowsOf,
}

type RowsOf = for<'f> fn(&'f Figures<'_>) -> Vec<&'f Row<'f>>;

/// Upper bounds of a histogram's buckets. They must not change, as queries over time add up buckets
/// with the same bounds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    /// Bounds in the distribution's unit, ascending.
    pub(super) bounds: &'static [u64],
    /// Units of the distribution in one of the metric: 10^9 for nanoseconds shown as seconds.
    pub(super) units_per_one: u32,
}

/// Value of one series, with its label values in the order of the definition's labels.
pub(super) struct Sample<T = f64> {
    pub(super) labels: Vec<String>,
    pub(super) value: T,
}

/// Without samples where the quantity is not counted: it is absent, not 0.
pub(super) fn counted<T>(
    figures: &Figures<'_>,
    quantity: Quantity,
    samples: impl FnOnce() -> Vec<Sample<T>>,
) -> Vec<Sample<T>> {
    if figures.capabilities_of_a_gpu.has(quantity) { samples() } else { Vec::new() }
}

// === impl Count ===

impl Count {
    pub(super) fn samples(&self, figures: &Figures<'_>) -> Vec<Sample> {
        let Self { of, quantity, value } = self;
        if quantity.is_some_and(|quantity| !figures.capabilities_of_a_gpu.has(quantity)) {
            return Vec::new();
        }
        of(figures).into_iter().map(|row| row.sample([], value(row))).collect()
    }
}

// === impl Rows ===

impl Rows {
    /// Counter of each row.
    pub(super) const fn count(self, name: &'static str, value: fn(&Row<'_>) -> u64, help: &'static str) -> Definition {
        let Self { labels, of } = self;
        Definition { name, labels, help, samples: Samples::Count(Count { of, quantity: None, value }) }
    }

    /// Counter of each row, which is absent where the quantity is not counted.
    pub(super) const fn count_if(
        self,
        quantity: Quantity,
        name: &'static str,
        value: fn(&Row<'_>) -> u64,
        help: &'static str,
    ) -> Definition {
        let Self { labels, of } = self;
        Definition { name, labels, help, samples: Samples::Count(Count { of, quantity: Some(quantity), value }) }
    }
}

// === impl Buckets ===

impl Buckets {
    /// Value of the distribution in the metric's unit.
    pub(super) fn scaled(&self, value: u64) -> f64 {
        value as f64 / f64::from(self.units_per_one)
    }
}

// === impl Sample ===

impl Sample {
    pub(super) fn new<const N: usize>(labels: [&str; N], value: f64) -> Self {
        Self { labels: labels.map(str::to_owned).into(), value }
    }

    /// Sample of a count by its labels.
    pub(super) fn of(labels: &[String], value: u64) -> Self {
        Self { labels: labels.to_vec(), value: value as f64 }
    }
}

// === impl Row ===

impl Row<'_> {
    /// Sample with this row's labels and `more`.
    pub(super) fn sample<const N: usize>(&self, more: [&str; N], value: u64) -> Sample {
        let labels = self.labels.iter().cloned().chain(more.map(str::to_owned)).collect();
        Sample { labels, value: value as f64 }
    }

    /// Sample of a fractional value, with this row's labels.
    pub(super) fn number(&self, value: f64) -> Sample {
        Sample { labels: self.labels.clone(), value }
    }

    /// Samples for `variants`, whose names are the last label.
    pub(super) fn each<T: Copy>(
        &self,
        variants: &[T],
        name: fn(T) -> &'static str,
        value: impl Fn(T) -> u64,
    ) -> Vec<Sample> {
        variants.iter().map(|variant| self.sample([name(*variant)], value(*variant))).collect()
    }

    /// Distribution with this row's labels and `more`.
    pub(super) fn distribution<const N: usize>(
        &self,
        more: [&str; N],
        distribution: &Distribution,
    ) -> Sample<Distribution> {
        let labels = self.labels.iter().cloned().chain(more.map(str::to_owned)).collect();
        Sample { labels, value: distribution.clone() }
    }
}
