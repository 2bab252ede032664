//! What serving clients is like.

use crate::{App, connection_table::Closed, responses};

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
}

impl Http {
    pub(super) fn now(App { responses, streams, directory, .. }: &App) -> Self {
        let [responses, exposition] = responses.figures();
        Self {
            connections: directory.open(),
            streams: streams.all(),
            rejected_connections: directory.rejected(),
            rejected_streams: streams.rejected(),
            closed: Closed::ALL.map(|closed| (closed, directory.closed(closed))),
            exposition,
            responses,
        }
    }
}
