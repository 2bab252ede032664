//! Tests of the endpoints and of the server, over snapshots made up here.
#![cfg(test)]

mod api;
mod api_doc;
mod auth;
mod control;
mod decisions;
mod detail;
mod diagnosis;
mod evictions;
mod fakes;
mod filters;
mod history;
mod memory;
mod memory_server;
mod metrics;
mod metrics_doc;
mod metrics_listener;
mod openapi;
mod ops;
mod overload;
mod owner_metrics;
mod owners;
mod page_scripts;
mod pages;
mod peers;
mod populated;
mod problems;
mod process_metrics;
mod reload;
mod responses;
mod server;
mod socket;
mod support;
mod surface;
mod verdicts;
mod warnings;
