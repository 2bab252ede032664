//! The JSON bodies of the HTTP API. Bytes and counts are plain numbers with the unit in the name; times are RFC 3339.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// Living processes first, busiest first; then those that ended recently.
    pub processes: Vec<Process>,
}

/// What was counted, as sums and by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// GPU fault entries, after the driver merged equal faults of a batch.
    pub fault_entries: u64,
    /// GPU faults before merging.
    pub fault_instances: u64,
    /// CPU faults on managed memory. 0 in a GPU's own counts: they belong to no GPU.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes received from another GPU.
    pub bytes_dtod: u64,
    /// Bytes pushed out of GPU memory because it was needed.
    pub evicted_bytes: u64,
    /// Events that belong here and could not be counted.
    pub dropped_events: u64,
    /// `fault_entries` by access type.
    pub fault_entries_by_access: BTreeMap<String, u64>,
    /// `fault_instances` by access type.
    pub fault_instances_by_access: BTreeMap<String, u64>,
    /// `cpu_faults` by access type.
    pub cpu_faults_by_access: BTreeMap<String, u64>,
    /// Bytes by direction (`htod`, `dtoh`, `dtod`), then by cause.
    pub bytes_by_cause: BTreeMap<String, BTreeMap<String, u64>>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot; with `pid` it names the process.
    pub start_ticks: u64,
    /// When it started.
    pub started: Option<String>,
    /// Short name (comm).
    pub name: String,
    /// Real user id.
    pub uid: u32,
    /// User name.
    pub user: Option<String>,
    /// Cgroup path.
    pub cgroup: Option<String>,
    /// `running` or `ended`.
    pub state: String,
    /// When it ended.
    pub ended: Option<String>,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same by GPU.
    pub gpus: Vec<ProcessGpu>,
}

/// One process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGpu {
    /// The driver's processor id that the GPU had last; null once another GPU has that id.
    pub gpu: Option<u32>,
    /// The GPU's UUID; null if it is not known.
    pub uuid: Option<String>,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Body of `GET /api/v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// uvmd's version.
    pub version: String,
    /// The node's name.
    pub hostname: String,
    /// When this was taken.
    pub time: String,
    /// The source of events: `ebpf`.
    pub backend: String,
    /// `waiting`, `refused` or `counting`.
    pub state: String,
    /// What is missing, why the driver is refused, or what keeps uvmd from telling all that it could; empty when all is well.
    pub reasons: Vec<String>,
    /// Since when it counts.
    pub counting_since: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// The family of struct layouts in use.
    pub layout: Option<String>,
    /// GPUs seen.
    pub gpus: Vec<Gpu>,
    /// Probes attached.
    pub probes: Vec<Probe>,
    /// Events that were not counted, over all reasons.
    pub dropped_events: u64,
    /// The same by reason.
    pub dropped_events_by_reason: BTreeMap<String, u64>,
    /// Sums over every process seen since uvmd counts.
    pub total: Counts,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's processor id that the GPU had last; null once another GPU has that id.
    pub gpu: Option<u32>,
    /// The GPU's UUID; null for what was counted on a GPU that is not known.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Sums over every process seen on it since uvmd counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The driver function.
    pub name: String,
    /// How often it ran.
    pub hits: u64,
    /// Nanoseconds spent in it, where the kernel measures that.
    pub run_time_ns: Option<u64>,
}
