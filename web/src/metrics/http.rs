//! What serving clients is like.

use std::collections::BTreeMap;

use model::Distribution;

use crate::{App, closed::Closed, responses};

/// At one moment.
pub(super) struct Http {
    /// Connections that are open, and streams of events among them.
    pub(super) connections: usize,
    pub(super) streams: usize,
    /// Requests that were turned away for want of a place.
    pub(super) rejected_connections: u64,
    /// Requests for a stream that were turned away.
    pub(super) rejected_streams: u64,
    /// Connections that the service closed, by reason.
    pub(super) closed: [(Closed, u64); Closed::ALL.len()],
    /// Of the metrics, and of everything else that may be large.
    pub(super) exposition: responses::Figures,
    pub(super) responses: responses::Figures,
    /// Requests by route and status code.
    pub(super) requests: BTreeMap<(String, u16), u64>,
    /// Times that snapshots for requests took, and the scrapes before this one.
    pub(super) snapshot_durations: Distribution,
    pub(super) scrape_durations: Distribution,
}

impl Http {
    pub(super) fn now(App { responses, streams, directory, requests, scrapes, .. }: &App) -> Self {
        let snapshot_durations = responses.snapshot_durations();
        let [responses, exposition] = responses.figures();
        Self {
            connections: directory.open(),
            streams: streams.all(),
            rejected_connections: directory.rejected(),
            rejected_streams: streams.rejected(),
            closed: Closed::ALL.map(|closed| (closed, directory.closed(closed))),
            exposition,
            responses,
            requests: requests.now(),
            snapshot_durations,
            scrape_durations: scrapes.durations(),
        }
    }
}
