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
        help: "Open connections of clients, over TCP and on the Unix socket.",
        samples: Samples::Gauge(|figures| vec![Sample::new([], figures.http.connections as f64)]),
    },
    Definition {
        name: "uvmd_http_event_streams",
        labels: &[],
        help: "Open event streams.",
        samples: Samples::Gauge(|figures| vec![Sample::new([], figures.http.streams as f64)]),
    },
    Definition {
        name: "uvmd_http_connections_closed_total",
        labels: &[&CLOSED],
        help: "Connections that uvmd closed before their peers did. While this grows, clients are slow or too many, or an attack is under way.",
        samples: Samples::Counter(|figures| {
            figures.http.closed.iter().map(|(closed, count)| Sample::new([closed.name()], *count as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_http_requests_rejected_total",
        labels: &[&REJECTED],
        help: "Requests rejected with 503 under overload. Retry-After has the time of the next try.",
        samples: Samples::Counter(|figures| {
            let Http { responses, exposition, rejected_connections, rejected_streams, .. } = &figures.http;
            [
                ("build_queue", responses.rejected_by_queue + exposition.rejected_by_queue),
                ("response_memory", responses.rejected_by_budget + exposition.rejected_by_budget),
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
        help: "Responses built from snapshots. Concurrent requests for the same share one.",
        samples: Samples::Counter(|figures| {
            let Http { responses, exposition, .. } = &figures.http;
            [("api", responses.built), ("metrics", exposition.built)]
                .map(|(kind, built)| Sample::new([kind], built as f64))
                .into()
        }),
    },
    Definition {
        name: "uvmd_http_response_bytes",
        labels: &[&ANSWER_KIND],
        help: "Memory of responses until they have been sent, shared ones counted once. The limit is 24 MiB for the API and 16 MiB for the metrics, or one response if that is larger.",
        samples: Samples::Gauge(|figures| {
            let Http { responses, exposition, .. } = &figures.http;
            [("api", responses.bytes), ("metrics", exposition.bytes)]
                .map(|(kind, bytes)| Sample::new([kind], bytes as f64))
                .into()
        }),
    },
];
