//! Figures of the HTTP server.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use model::Distribution;

use crate::{App, closed::Closed, responses};

/// Figures at one moment.
pub(super) struct Http {
    /// Open connections, and event streams among them.
    pub(super) connections: usize,
    pub(super) streams: usize,
    /// Requests rejected for want of a place.
    pub(super) rejected_connections: u64,
    /// Requests for an event stream that were rejected.
    pub(super) rejected_streams: u64,
    /// Requests whose passwords could not be verified in time.
    pub(super) rejected_passwords: u64,
    /// Connections that the service closed, by reason.
    pub(super) closed: [(Closed, u64); Closed::ALL.len()],
    /// Responses with metrics, and all other large responses.
    pub(super) exposition: responses::Figures,
    pub(super) responses: responses::Figures,
    /// Requests by route and status code.
    pub(super) requests: BTreeMap<(String, u16), u64>,
    /// Durations of snapshots for requests, and of earlier scrapes.
    pub(super) snapshot_durations: Distribution,
    pub(super) scrape_durations: Distribution,
}

impl Http {
    pub(super) fn now(App { responses, streams, table, requests, scrapes, unverified, .. }: &App) -> Self {
        let snapshot_durations = responses.snapshot_durations();
        let [responses, exposition] = responses.figures();
        Self {
            connections: table.open(),
            streams: streams.count(),
            rejected_connections: table.rejected(),
            rejected_streams: streams.rejected(),
            rejected_passwords: unverified.load(Ordering::Relaxed),
            closed: Closed::ALL.map(|closed| (closed, table.closed(closed))),
            exposition,
            responses,
            requests: requests.now(),
            snapshot_durations,
            scrape_durations: scrapes.durations(),
        }
    }
}
