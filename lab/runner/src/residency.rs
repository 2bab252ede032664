//! Where an allocation's pages are.

use serde::{Deserialize, Serialize};

/// How much of an allocation is where. A page that is duplicated counts in each place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Residency {
    pub(crate) allocation: String,
    pub(crate) cpu_bytes: u64,
    /// For each of the machine's GPUs, by number.
    pub(crate) gpu_bytes: Vec<u64>,
    /// Pages that nobody touched yet.
    pub(crate) nowhere_bytes: u64,
}
