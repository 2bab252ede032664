//! What serving clients is like.

use crate::metrics::{
    definition::{Definition, Sample, Samples},
    http::Http,
    labels::{ANSWER_KIND, CLOSED, REJECTED},
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvmd_http_connections",
        labels: &[],
        help: "Connections of clients that are open, over TCP and on the Unix socket.",
        samples: Samples::Gauge(|figures| vec![Sample::new([], figures.http.connections as f64)]),
    },
    Definition {
        name: "uvmd_http_event_streams",
        labels: &[],
        help: "Streams of events that are open.",
        samples: Samples::Gauge(|figures| vec![Sample::new([], figures.http.streams as f64)]),
    },
    Definition {
        name: "uvmd_http_connections_closed_total",
        labels: &[&CLOSED],
        help: "Connections that uvmd closed though their peers had not. While this grows, clients are slow or too many, or somebody attacks.",
        samples: Samples::Counter(|figures| {
            figures.http.closed.iter().map(|(closed, count)| Sample::new([closed.name()], *count as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_http_requests_rejected_total",
        labels: &[&REJECTED],
        help: "Requests answered with 503 as uvmd had too much to do. Retry-After says when to come back.",
        samples: Samples::Counter(|figures| {
            let Http { answers, exposition, rejected_connections, rejected_streams, .. } = &figures.http;
            [
                ("build_queue", answers.rejected_by_queue + exposition.rejected_by_queue),
                ("response_memory", answers.rejected_by_budget + exposition.rejected_by_budget),
                ("connections", *rejected_connections),
                ("event_streams", *rejected_streams),
            ]
            .map(|(reason, count)| Sample::new([reason], count as f64))
            .into()
        }),
    },
    Definition {
        name: "uvmd_http_responses_built_total",
        labels: &[&ANSWER_KIND],
        help: "Answers made of what was read. All who ask for the same at one moment share one.",
        samples: Samples::Counter(|figures| {
            let Http { answers, exposition, .. } = &figures.http;
            [("api", answers.built), ("metrics", exposition.built)]
                .map(|(kind, built)| Sample::new([kind], built as f64))
                .into()
        }),
    },
    Definition {
        name: "uvmd_http_response_bytes",
        labels: &[&ANSWER_KIND],
        help: "Memory that answers take until they have been sent, shared ones counted once. Those of the API have at most 24 MiB and those of the metrics 16 MiB, or one answer if that is larger.",
        samples: Samples::Gauge(|figures| {
            let Http { answers, exposition, .. } = &figures.http;
            [("api", answers.bytes), ("metrics", exposition.bytes)]
                .map(|(kind, bytes)| Sample::new([kind], bytes as f64))
                .into()
        }),
    },
];
