//! `/metrics`: a snapshot in the Prometheus text format. `definitions` is the one list of what there is; `doc` prints it for people.

mod definitions;
mod doc;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
};
use definitions::{DEFINITIONS, Definition, Kind, Sample};
pub use doc::markdown;
use model::Snapshot;
use prometheus::{
    TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::{
    Node,
    problem::{NoParameters, Parameters, Problem},
    source::Fresh,
};

pub(crate) async fn scrape(
    _: Parameters<NoParameters>,
    State(node): State<Arc<Node>>,
    Fresh(snapshot): Fresh,
) -> Result<impl IntoResponse, Problem> {
    let text = exposition(&node, &snapshot)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

fn exposition(node: &Node, snapshot: &Snapshot) -> prometheus::Result<String> {
    let families: Vec<_> = DEFINITIONS
        .iter()
        .map(|definition| family(definition, (definition.samples)(node, snapshot)))
        // The format has no family without samples: before a GPU is seen there are none of it.
        .filter(|family| !family.get_metric().is_empty())
        .collect();
    TextEncoder::new().encode_to_string(&families)
}

fn family(definition: &Definition, samples: Vec<Sample>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(definition.name.to_owned());
    family.set_help(definition.help.to_owned());
    family.set_field_type(match definition.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
    });
    family.set_metric(samples.into_iter().map(|sample| metric(definition, sample)).collect());
    family
}

fn metric(definition: &Definition, sample: Sample) -> Metric {
    let labels = definition.labels.iter().zip(sample.labels).map(|(label, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(label.name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::from_label(labels.collect());
    match definition.kind {
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(sample.value);
            metric.set_counter(counter);
        }
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(sample.value);
            metric.set_gauge(gauge);
        }
    }
    metric
}
