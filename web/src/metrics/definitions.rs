//! All metrics, in the order of the exposition.
//!
//! Counters come from the snapshot's totals, which retain the counts of forgotten processes, so
//! that they are monotonic while uvmd counts (docs/metrics.md names the exceptions). A series for
//! each access type, direction and cause exists from the first sight of its GPU, with 0, so that
//! `rate()` covers the first increase.

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

/// Definitions of all metrics.
pub(super) fn all() -> impl Iterator<Item = &'static Definition> {
    [
        gpu::DEFINITIONS,
        gpu::SINGLE,
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
