//! The endpoints and the server, over snapshots made up here.
#![cfg(test)]

mod answers;
mod api;
mod api_doc;
mod authority;
mod control;
mod decisions;
mod deeds;
mod detail;
mod door;
mod everything;
mod evictions;
mod history;
mod memory;
mod metrics;
mod metrics_doc;
mod openapi;
mod overload;
mod owner_metrics;
mod page_scripts;
mod pages;
mod peers;
mod process_metrics;
mod reload;
mod server;
mod socket;
mod support;
mod surface;
mod verdicts;
mod warnings;
