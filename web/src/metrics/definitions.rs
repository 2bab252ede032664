//! Every metric, in the order they are shown.
//!
//! Counters come from the snapshot's totals, which keep what a forgotten process did, so they do not go back while uvmd counts (docs/metrics.md
//! names the exceptions). A series for every access type, direction and cause is there from the first sight of its GPU, with 0, so that `rate()`
//! sees the first increase.

mod eviction;
mod gpu;
mod http;
mod memory;
mod node;
mod own;
mod owner;
mod policy;
mod process;
mod service;

use super::definition::Definition;

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Definition> {
    [
        gpu::DEFINITIONS,
        eviction::DEFINITIONS,
        memory::DEFINITIONS,
        node::DEFINITIONS,
        owner::DEFINITIONS,
        process::DEFINITIONS,
        policy::DEFINITIONS,
        service::DEFINITIONS,
        http::DEFINITIONS,
        own::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}
