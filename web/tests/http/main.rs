//! The endpoints and the server, over snapshots made up here.
#![cfg(test)]

mod api;
mod api_doc;
mod authority;
mod control;
mod decisions;
mod deeds;
mod detail;
mod everything;
mod evictions;
mod history;
mod memory;
mod metrics;
mod metrics_doc;
mod openapi;
mod owner_metrics;
mod process_metrics;
mod server;
mod socket;
mod support;
mod verdicts;
