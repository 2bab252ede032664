//! The endpoints and the server, over snapshots made up here.
#![cfg(test)]

mod api;
mod api_doc;
mod metrics;
mod metrics_doc;
mod server;
mod support;
