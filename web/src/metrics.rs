//! `/metrics`: a snapshot in the Prometheus text format. `definitions` lists all metrics; `doc`
//! writes their documentation.

mod definition;
mod definitions;
mod doc;
mod figures;
mod http;
mod labels;
mod listed;
mod own;

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Instant,
};

use axum::extract::State;
use definition::{Buckets, Definition, Sample, Samples};
pub use doc::markdown;
use figures::{Figures, PolicyCounts};
use http::Http;
use labels::HOSTNAME;
pub(crate) use listed::Listed;
use model::Distribution;
use prometheus::{
    TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::{
    App,
    problem::{Kind, Problem},
    query::{NoParameters, Parameters},
    responses::{Observation, Responses, SharedResponse, Text},
};

pub(crate) const PATH: &str = "/metrics";

/// Get the metrics
///
/// Metrics in the Prometheus text format.
#[utoipa::path(get, path = PATH, responses((status = OK, content_type = "text/plain", body = String)))]
pub(crate) async fn scrape(
    _: Parameters<NoParameters>,
    State(exposition): State<Exposition>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    responses.exposition(move |known| exposition.text(known)).await
}

/// Source of the exposition of metrics.
pub(crate) struct Exposition(App);

impl Exposition {
    pub(crate) const fn new(app: App) -> Self {
        Self(app)
    }

    fn text(&self, Observation { snapshot, verdicts, .. }: &Observation) -> Result<Text, Problem> {
        let Self(app) = self;
        let begun = Instant::now();
        // A panic elsewhere leaves the list valid.
        let mut listed = app.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = app.settings.processes_in_metrics().map(|max| listed.choose(snapshot, max.get()));
        let (policy_counts, http) = (PolicyCounts::now(&app.sources), Http::now(app));
        let figures = Figures::new(&app.node, snapshot, verdicts, policy_counts, http, listing);
        let encoder = TextEncoder::new();
        // Capacity of the last exposition and an eighth: doubling would allocate up to twice as
        // much.
        let mut text = String::with_capacity(app.exposition_bytes.load(Ordering::Relaxed) * 9 / 8);
        for definition in definitions::all() {
            let family = family(definition, &figures);
            // The format has no family without samples, such as those of GPUs before one is seen.
            if !family.get_metric().is_empty() {
                // One family at a time: with many owners, a family takes much more memory than its
                // text.
                encoder
                    .encode_utf8(&[family], &mut text)
                    .map_err(|error| Problem::new(Kind::InternalError, error.to_string()))?;
            }
        }
        app.exposition_bytes.store(text.len(), Ordering::Relaxed);
        app.scrapes.add(begun.elapsed());
        Ok(Text::of_type(prometheus::TEXT_FORMAT, text.into_bytes()))
    }
}

fn family(definition: &Definition, figures: &Figures<'_>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(definition.name.to_owned());
    family.set_help(definition.help.to_owned());
    let counter = |samples| {
        let set = |metric: &mut Metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        };
        (MetricType::COUNTER, metrics(definition, &figures.node.hostname, samples, set))
    };
    let (kind, metrics) = match &definition.samples {
        Samples::Counter(samples) => counter(samples(figures)),
        Samples::Count(count) => counter(count.samples(figures)),
        Samples::Gauge(samples) => (
            MetricType::GAUGE,
            metrics(definition, &figures.node.hostname, samples(figures), |metric, value| {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }),
        ),
        Samples::Histogram(buckets, samples) => (
            MetricType::HISTOGRAM,
            metrics(definition, &figures.node.hostname, samples(figures), |metric, value| {
                metric.set_histogram(histogram(buckets, &value));
            }),
        ),
    };
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn metrics<T>(
    definition: &Definition,
    hostname: &str,
    samples: Vec<Sample<T>>,
    set: impl Fn(&mut Metric, T),
) -> Vec<Metric> {
    let metric = |sample: Sample<T>| {
        let names = [&HOSTNAME].into_iter().chain(definition.labels.iter().copied());
        let values = [hostname.to_owned()].into_iter().chain(sample.labels);
        let labels = names.zip(values).map(|(label, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(label.name.to_owned());
            pair.set_value(value);
            pair
        });
        let mut metric = Metric::from_label(labels.collect());
        set(&mut metric, sample.value);
        metric
    };
    samples.into_iter().map(metric).collect()
}

fn histogram(buckets: &Buckets, distribution: &Distribution) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.set_sample_count(distribution.count());
    histogram.set_sample_sum(buckets.scaled(distribution.sum()));
    // The encoder adds the last bucket, without a bound.
    let buckets = buckets.bounds.iter().map(|bound| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(buckets.scaled(*bound));
        bucket.set_cumulative_count(distribution.at_most(*bound));
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram
}
