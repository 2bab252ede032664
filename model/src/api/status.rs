//! The service and its source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Counts, Gpu};

/// Body of `GET /api/v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// uvmd's version.
    pub version: String,
    /// The node's name.
    pub hostname: String,
    /// When this was taken.
    pub time: String,
    /// Whether whoever asked may read command lines, and where in memory something happens.
    #[serde(default)]
    pub read_authority: bool,
    /// Whether whoever asked may change overrides, and switch acting off and on.
    #[serde(default)]
    pub write_authority: bool,
    /// The source of events: `ebpf`.
    pub backend: String,
    /// `waiting`, `refused` or `counting`.
    pub state: String,
    /// What is missing, why the driver is refused, what keeps uvmd from telling all that it could, or what of its files is not in order; empty when all
    /// is well.
    pub reasons: Vec<String>,
    /// Since when it counts.
    pub counting_since: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// The family of struct layouts in use.
    pub layout: Option<String>,
    /// What nvidia-uvm was loaded with: module parameters that change what is counted, by name.
    #[serde(default)]
    pub driver_parameters: BTreeMap<String, String>,
    /// GPUs seen.
    pub gpus: Vec<Gpu>,
    /// The probes, those that this driver lacks among them.
    pub probes: Vec<Probe>,
    /// Events that were not counted, over all reasons.
    pub dropped_events: u64,
    /// The same by reason.
    pub dropped_events_by_reason: BTreeMap<String, u64>,
    /// Records of single blocks that the probes wrote. Their losses make blocks' counts lower bounds, and nothing else.
    pub block_records: u64,
    /// Block records left out because too many came at once.
    pub block_records_sampled_out: u64,
    /// Block records for which there was no room.
    pub block_records_dropped: u64,
    /// Lines of uvmd's own log that could not be written.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Sums over every process seen since uvmd counts.
    pub total: Counts,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Probe {
    /// The driver function.
    pub name: String,
    /// How often it ran.
    pub hits: u64,
    /// Nanoseconds spent in it, where the kernel measures that.
    pub run_time_ns: Option<u64>,
    /// What is not counted because it could not be attached, and why; null where it is attached.
    pub missing: Option<String>,
}
