//! Metrics of the HTTP server.

use crate::metrics::{
    definition::{Buckets, Definition, Sample, Samples},
    http::Http,
    labels::{CLOSED, CODE, REJECTED, RESPONSE_KIND, ROUTE},
};

/// Bounds of 1 ms to 5 s, the time limit of a request.
const DURATIONS: Buckets = Buckets {
    bounds: &[
        1_000_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
    ],
    units_per_one: 1_000_000_000,
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
        name: "uvmd_http_requests_total",
        labels: &[&ROUTE, &CODE],
        help: "Requests by route and status code; each is counted when its response starts.",
        samples: Samples::Counter(|figures| {
            let sample =
                |((route, code), count): (&(String, u16), &u64)| Sample::new([route, &code.to_string()], *count as f64);
            figures.http.requests.iter().map(sample).collect()
        }),
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
            let Http { responses, exposition, rejected_connections, rejected_streams, rejected_passwords, .. } =
                &figures.http;
            [
                ("build_queue", responses.rejected_by_queue + exposition.rejected_by_queue),
                ("response_memory", responses.rejected_by_budget + exposition.rejected_by_budget),
                ("connections", *rejected_connections),
                ("recorded_calls", responses.rejected_by_source),
                ("event_streams", *rejected_streams),
                ("passwords", *rejected_passwords),
            ]
            .map(|(reason, count)| Sample::new([reason], count as f64))
            .into()
        }),
    },
    Definition {
        name: "uvmd_http_responses_built_total",
        labels: &[&RESPONSE_KIND],
        help: "Responses built from snapshots. Concurrent equal requests share one.",
        samples: Samples::Counter(|figures| {
            let Http { responses, exposition, .. } = &figures.http;
            [("api", responses.built), ("metrics", exposition.built)]
                .map(|(kind, built)| Sample::new([kind], built as f64))
                .into()
        }),
    },
    Definition {
        name: "uvmd_http_response_bytes",
        labels: &[&RESPONSE_KIND],
        help: "Memory of responses until they have been sent, shared ones counted once. The limit is 24 MiB each for the API and for the metrics, or one response if that is larger.",
        samples: Samples::Gauge(|figures| {
            let Http { responses, exposition, .. } = &figures.http;
            [("api", responses.bytes), ("metrics", exposition.bytes)]
                .map(|(kind, bytes)| Sample::new([kind], bytes as f64))
                .into()
        }),
    },
    Definition {
        name: "uvmd_snapshot_duration_seconds",
        labels: &[],
        help: "Time to take a snapshot for requests: reading the kernel's maps, and the wait for the collector.",
        samples: Samples::Histogram(&DURATIONS, |figures| {
            vec![Sample { labels: Vec::new(), value: figures.http.snapshot_durations.clone() }]
        }),
    },
    Definition {
        name: "uvmd_scrape_duration_seconds",
        labels: &[],
        help: "Time to write the metrics, without the snapshot: of the scrapes before this one.",
        samples: Samples::Histogram(&DURATIONS, |figures| {
            vec![Sample { labels: Vec::new(), value: figures.http.scrape_durations.clone() }]
        }),
    },
];
