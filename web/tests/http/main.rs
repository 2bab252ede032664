//! The endpoints and the server, over snapshots made up here.
#![cfg(test)]

mod api;
mod api_doc;
mod detail;
mod metrics;
mod metrics_doc;
mod process_metrics;
mod server;
mod support;
