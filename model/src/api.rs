//! The JSON bodies of the HTTP API. Bytes and counts are plain numbers with the unit in the name; times are RFC 3339.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
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
    /// Bytes that became resident at the GPU with nothing to copy, as on first touch.
    pub populated_bytes: u64,
    /// Pieces of memory, of at most 2 MiB, pushed out of GPU memory because it was needed.
    pub evictions: u64,
    /// The same, by whom the memory was needed for; of anybody's, its own among them.
    pub evictions_caused: u64,
    /// Bytes copied out in `evictions_caused`.
    pub evicted_bytes_caused: u64,
    /// Fault batches that held faults of it.
    pub batches: u64,
    /// Its fault entries in each of those batches.
    pub batch_entries: Distribution,
    /// Nanoseconds that each of those batches took, from its first fault entry to its replay.
    pub batch_service_ns: Distribution,
    /// Times that the GPU was told to try again after such a batch.
    pub replays: u64,
    /// Nanoseconds of each run of the driver's fault handler. Only in a GPU's totals.
    pub handler_ns: Distribution,
    /// Pages that the driver found to be thrashing. It does not see thrashing by evictions.
    pub thrashing_pages: u64,
    /// Times that the driver held a processor back from a thrashing page.
    pub throttles: u64,
    /// How long, together.
    pub throttled_ns: u64,
    /// Mappings to memory that stays on another processor.
    pub remote_mappings: u64,
    /// Bytes so mapped; what is mapped again counts again.
    pub remote_mapped_bytes: u64,
    /// Calls of the application about its memory: prefetches and advice.
    pub api_calls: u64,
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
    /// `remote_mappings` by cause.
    pub remote_mappings_by_cause: BTreeMap<String, u64>,
    /// `remote_mapped_bytes` by cause.
    pub remote_mapped_bytes_by_cause: BTreeMap<String, u64>,
    /// `api_calls` by kind.
    pub api_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    pub api_bytes_by_kind: BTreeMap<String, u64>,
    /// The same calls by other processes, such as uvmd itself, by kind.
    pub tool_calls_by_kind: BTreeMap<String, u64>,
    /// Bytes in the ranges that those calls named, by kind.
    pub tool_bytes_by_kind: BTreeMap<String, u64>,
}

/// How a quantity was distributed: quantiles to one significant digit, count and sum exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// Nine of ten values are.
    pub p90: u64,
    /// 99 of 100 values are.
    pub p99: u64,
    /// All values are.
    pub max: u64,
}

/// Body of `GET /api/v1/processes/{pid}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDetail {
    /// As in the listing.
    #[serde(flatten)]
    pub process: Process,
    /// The busiest blocks of its memory, busiest first.
    pub blocks: Vec<Block>,
    /// How many blocks are known.
    pub blocks_known: u64,
    /// How many were forgotten to make room.
    pub blocks_forgotten: u64,
    /// Block records left out because too many came at once; if not 0, the blocks' counts are lower bounds.
    pub block_records_sampled_out: u64,
    /// Block records for which there was no room; likewise.
    pub block_records_dropped: u64,
}

/// One VA block of 2 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its first address, in hexadecimal, with `0x`.
    pub address: String,
    /// UUID of the GPU that last faulted on it, received it or lost it.
    pub gpu_uuid: Option<String>,
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes copied from one GPU to another.
    pub bytes_dtod: u64,
    /// Bytes that became resident at a GPU with nothing to copy.
    pub populated_bytes: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Times that it or a part of it was pushed out.
    pub evictions: u64,
    /// When the last of this happened.
    pub last_seen: String,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Bytes of managed memory it has mapped; null if that could not be read.
    pub managed_bytes: Option<u64>,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same by GPU.
    pub gpus: Vec<ProcessGpu>,
}

/// One process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What is not counted because it could not be attached, and why; null where it is attached.
    pub missing: Option<String>,
}
