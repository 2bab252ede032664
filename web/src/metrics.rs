//! `/metrics`: a snapshot in the Prometheus text format. `definitions` is the one list of what there is; `doc` prints it for people.

mod definition;
mod definitions;
mod doc;
mod figures;
mod labels;
mod listed;
mod own;

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use definition::{Buckets, Definition, Sample, Samples};
pub use doc::markdown;
pub(crate) use figures::Deeds;
use figures::Figures;
pub(crate) use listed::Listed;
use model::{Distribution, Snapshot, Verdicts};
use prometheus::{
    TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::{
    Node,
    problem::{NoParameters, Parameters, Problem},
    source::{Fresh, Judged},
};

/// The metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", responses((status = OK, content_type = "text/plain", body = String)))]
pub(crate) async fn scrape(
    _: Parameters<NoParameters>,
    State(node): State<Arc<Node>>,
    State(listed): State<Arc<Mutex<Listed>>>,
    State(judged): State<Judged>,
    State(deeds): State<Deeds>,
    Fresh(snapshot): Fresh,
) -> Result<impl IntoResponse, Problem> {
    // A panic elsewhere leaves it whole: whoever is listed is listed.
    let mut listed = listed.lock().unwrap_or_else(PoisonError::into_inner);
    let text = exposition(&node, &snapshot, &judged.now(), deeds, &mut listed)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

fn exposition(
    node: &Node,
    snapshot: &Snapshot,
    verdicts: &Verdicts,
    deeds: Deeds,
    listed: &mut Listed,
) -> prometheus::Result<String> {
    let listing = node.processes_in_metrics.map(|max| listed.choose(snapshot, max.get()));
    let figures = Figures::new(node, snapshot, verdicts, deeds, listing);
    let families: Vec<_> = definitions::all()
        .map(|definition| family(definition, &figures))
        // The format has no family without samples: before a GPU is seen there are none of it.
        .filter(|family| !family.get_metric().is_empty())
        .collect();
    TextEncoder::new().encode_to_string(&families)
}

fn family(definition: &Definition, figures: &Figures<'_>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(definition.name.to_owned());
    family.set_help(definition.help.to_owned());
    let (kind, metrics) = match definition.samples {
        Samples::Counter(samples) => (
            MetricType::COUNTER,
            metrics(definition, samples(figures), |metric, value| {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }),
        ),
        Samples::Gauge(samples) => (
            MetricType::GAUGE,
            metrics(definition, samples(figures), |metric, value| {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }),
        ),
        Samples::Histogram(buckets, samples) => (
            MetricType::HISTOGRAM,
            metrics(definition, samples(figures), |metric, value| metric.set_histogram(histogram(buckets, &value))),
        ),
    };
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn metrics<T>(definition: &Definition, samples: Vec<Sample<T>>, set: impl Fn(&mut Metric, T)) -> Vec<Metric> {
    let metric = |sample: Sample<T>| {
        let labels = definition.labels.iter().zip(sample.labels).map(|(label, value)| {
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
    // The encoder adds the last one, without a bound.
    let buckets = buckets.bounds.iter().map(|bound| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(buckets.scaled(*bound));
        bucket.set_cumulative_count(distribution.at_most(*bound));
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram
}
