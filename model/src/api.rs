//! The JSON bodies of the HTTP API. Bytes and counts are plain numbers with the unit in the name; times are RFC 3339.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processes {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
    /// Living processes first, busiest first; then those that ended recently.
    pub processes: Vec<Process>,
}

/// What was counted, as sums and by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Bytes of each copy from host to GPU; one is within a block of 2 MiB.
    pub migration_bytes_htod: Distribution,
    /// Bytes of each copy from GPU to host.
    pub migration_bytes_dtoh: Distribution,
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
    /// From fault to replay: nanoseconds that each of those batches took, from its first fault entry to its replay.
    pub batch_service_ns: Distribution,
    /// Times that the GPU was told to try again after such a batch.
    pub replays: u64,
    /// Service time: nanoseconds of each run of the driver's fault handler, which serves several batches. Only in a GPU's totals.
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessDetail {
    /// As in the listing.
    #[serde(flatten)]
    pub process: Process,
    /// Whether what needs read authority was left out, as whoever asked has none.
    #[serde(default)]
    pub redacted: bool,
    /// Its command line. Needs read authority; null without, or if it could not be read.
    #[serde(default)]
    pub command_line: Option<String>,
    /// The busiest blocks of its memory, busiest first. Needs read authority; empty without.
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// `bytes_htod` by what brought them.
    pub bytes_htod_by_cause: CopiedBytes,
    /// `bytes_dtoh` by what brought them.
    pub bytes_dtoh_by_cause: CopiedBytes,
    /// Of the bytes copied to a GPU, those that had been pushed out before.
    pub refetched_bytes: u64,
    /// And those that a CPU that faulted had taken.
    pub returned_bytes: u64,
    /// Times that it changed sides between a CPU that faulted and a GPU.
    pub alternations: u64,
    /// What of it is in GPU memory.
    pub resident: Residency,
    /// When the last of this happened.
    pub last_seen: String,
}

/// Bytes copied one way, by what brought them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopiedBytes {
    /// A fault; of a CPU's, with what the driver's tree prefetcher brought around it.
    pub fault: u64,
    /// The driver's tree prefetcher, around a GPU's fault.
    pub tree_prefetch: u64,
    /// That memory was needed.
    pub eviction: u64,
    /// The application or a tool asked, or the GPU's access counters.
    pub other: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Whom it works for.
    #[serde(default)]
    pub owner: Owner,
    /// How much of it is in GPU memory, all GPUs together: an estimate.
    #[serde(default)]
    pub resident: Residency,
    /// What of its traffic came back, all GPUs together.
    #[serde(default)]
    pub reuse: Reuse,
    /// What is wrong with it now, worst first; empty while nothing is.
    #[serde(default)]
    pub verdicts: Vec<VerdictSummary>,
    /// Who pushed most of its memory out lately, if somebody else did.
    #[serde(default)]
    pub victim_of: Option<VictimOf>,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same by GPU.
    pub gpus: Vec<ProcessGpu>,
}

/// One process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessGpu {
    /// The driver's processor id that the GPU had last; null once another GPU has that id.
    pub gpu: Option<u32>,
    /// The GPU's UUID; null if it is not known.
    pub uuid: Option<String>,
    /// How much of the process's managed memory is in this GPU's.
    #[serde(default)]
    pub resident: Residency,
    /// What of the traffic here came back.
    #[serde(default)]
    pub reuse: Reuse,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}

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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

/// What a process's cgroup says of whom it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owner {
    /// What its sums are kept by: `pod`, `job`, `container`, `unit` or `other`.
    pub kind: String,
    /// Which of that kind; empty for `other`.
    pub id: String,
    /// Container id.
    pub container: Option<String>,
    /// `containerd`, `cri-o`, `docker` or `podman`.
    pub container_runtime: Option<String>,
    /// UID of the Kubernetes pod.
    pub pod_uid: Option<String>,
    /// Slurm job.
    pub slurm_job: Option<String>,
    /// Slurm step.
    pub slurm_step: Option<String>,
    /// Innermost systemd service or scope.
    pub unit: Option<String>,
}

/// Bytes resident in GPU memory, with the bounds within which the true number lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Residency {
    /// The best estimate.
    pub bytes: u64,
    /// No less than this.
    pub min_bytes: u64,
    /// No more than this.
    pub max_bytes: u64,
}

/// Traffic that brought back what was there before. From block records: a lower bound where records were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reuse {
    /// Bytes copied to GPUs, as the records tell.
    pub fetched_bytes: u64,
    /// Of those, bytes that had been evicted before.
    pub refetched_bytes: u64,
    /// Of those, bytes that a CPU had taken by faults before.
    pub returned_bytes: u64,
    /// Times that a block changed sides between a CPU that faulted and a GPU.
    pub alternations: u64,
}

/// A verdict in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerdictSummary {
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// `capacity_thrash`, `ping_pong`, `driver_throttling`, `streaming` or `first_touch_storm`.
    pub kind: String,
    /// Since when.
    pub since: String,
}

/// Who pushed a process's memory out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VictimOf {
    /// Process id.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// Its short name.
    pub name: String,
    /// Bytes a second that it lost to it in the last window.
    pub bytes_per_second: u64,
    /// True until this has been checked on hardware.
    pub inferred: bool,
}

/// Body of `GET /api/v1/verdicts`, and of `GET /api/v1/processes/{pid}/verdict` for one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdicts {
    /// When this was taken.
    pub time: String,
    /// Those in force, the one with most traffic first.
    pub active: Vec<Verdict>,
    /// Those that are over, the latest first.
    pub ended: Vec<Verdict>,
}

/// A verdict on one process at one GPU, with its evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    /// Process id.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// Its short name; empty once it is forgotten.
    pub name: String,
    /// Whom it works for.
    pub owner: Owner,
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// What is wrong; see [`VerdictSummary::kind`].
    pub kind: String,
    /// Whether it is thrashing: work is done again that was done before.
    pub thrashing: bool,
    /// The beginning of the first window that showed it.
    pub since: String,
    /// When it was told first.
    pub confirmed: String,
    /// The end of the last window that showed it; null while it is in force.
    pub ended: Option<String>,
    /// The busiest ranges involved, busiest first. Needs read authority; null without.
    pub ranges: Option<Vec<InvolvedRange>>,
    /// Seconds of the last window that showed it.
    pub window_seconds: f64,
    /// What was counted in that window.
    pub inputs: VerdictInputs,
    /// What was counted since the beginning.
    pub total: VerdictInputs,
    /// What was checked in that window.
    pub checks: Vec<Check>,
    /// Those who lose memory to this process, most bytes first.
    pub victims: Vec<VerdictVictim>,
}

/// A process that loses memory to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerdictVictim {
    /// Process id.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// Its short name.
    pub name: String,
    /// Whom it works for.
    pub owner: Owner,
    /// Bytes a second that it lost in the last window.
    pub bytes_per_second: u64,
    /// True until this has been checked on hardware.
    pub inferred: bool,
}

/// A range that a verdict is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InvolvedRange {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// The address behind the last, likewise.
    pub end: String,
    /// Its length.
    pub bytes: u64,
    /// How it is accessed.
    pub pattern: Pattern,
    /// What part of the traffic that the verdict is about is its, from 0 to 1.
    pub share: f64,
    /// What part of the bytes fetched into it came back, from 0 to 1.
    pub refetch_ratio: f64,
}

/// What a verdict rests on: what was counted between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerdictInputs {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes of it pushed out because memory was needed, for itself or for others.
    pub evicted_bytes: u64,
    /// Bytes pushed out because memory was needed for it: anybody's, its own among them.
    #[serde(default)]
    pub evicted_bytes_caused: u64,
    /// Bytes that became resident with nothing to copy.
    pub populated_bytes: u64,
    /// Bytes copied to the GPU, as the block records tell.
    pub fetched_bytes: u64,
    /// Of those, bytes that had been evicted before.
    pub refetched_bytes: u64,
    /// Of those, bytes that a CPU had taken by faults before.
    pub returned_bytes: u64,
    /// Times that a block changed sides between a CPU that faulted and a GPU.
    pub alternations: u64,
    /// Times that the driver held a processor back.
    pub throttles: u64,
    /// How long, together.
    pub throttled_ns: u64,
    /// Pages that the driver found to be thrashing.
    pub thrashing_pages: u64,
    /// Bytes that the driver pinned elsewhere because of that; 0 unless a tool is attached to the process.
    pub pinned_bytes: u64,
    /// Block records that were left out or lost: if not 0, what rests on records is a lower bound.
    pub lost_records: u64,
}

/// A condition that a verdict rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// A short name: `refetch_ratio`.
    pub name: String,
    /// What was compared, in words.
    pub what: String,
    /// What it was.
    pub value: f64,
    /// What it was compared with.
    pub threshold: f64,
    /// Whether it is as the verdict needs it.
    pub holds: bool,
}

/// In which order memory is faulted on. Accesses that hit raise no fault and are not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pattern {
    /// `sequential`, `strided`, `cyclic`, `random`, `hot_set` or `unknown`.
    pub kind: String,
    /// Of a strided one: bytes from one place to the next; negative downwards.
    pub stride_bytes: Option<i64>,
    /// The share of what was seen lately that fits it, from 0 to 1.
    pub confidence: f64,
    /// How many steps that rests on.
    pub steps: u64,
}

/// Body of `GET /api/v1/processes/{pid}/ranges`. Needs read authority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ranges {
    /// When this was taken.
    pub time: String,
    /// The busiest, busiest first.
    pub ranges: Vec<Range>,
    /// How many there are.
    pub ranges_known: u64,
    /// Blocks forgotten to make room: if not 0, counts are lower bounds.
    pub blocks_forgotten: u64,
    /// Block records left out or lost; likewise.
    pub records_lost: u64,
    /// What cannot be known from faults.
    pub limits: Vec<String>,
}

/// A range of managed memory: one allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Range {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// The address behind the last, likewise.
    pub end: String,
    /// Its length.
    pub bytes: u64,
    /// Whether it is mapped still.
    pub mapped: bool,
    /// What of it is in GPU memory.
    pub resident: Residency,
    /// How it is accessed.
    pub pattern: Pattern,
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
    /// Bytes that became resident with nothing to copy.
    pub populated_bytes: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Times that a block or a part of it was pushed out.
    pub evictions: u64,
    /// What came back.
    pub reuse: Reuse,
}

/// Body of `GET /api/v1/processes/{pid}/heatmap`. Needs read authority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatMap {
    /// When this was taken.
    pub time: String,
    /// In the order of addresses.
    pub ranges: Vec<HeatRange>,
    /// Ranges beyond the number that is shown at once.
    pub ranges_left_out: u64,
}

/// One range in cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatRange {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// The address behind the last, likewise.
    pub end: String,
    /// Bytes of a cell; the last one may be cut short.
    pub cell_bytes: u64,
    /// In the order of addresses.
    pub cells: Vec<HeatCell>,
}

/// Some neighbouring blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeatCell {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied to a GPU.
    pub fetched_bytes: u64,
    /// Bytes copied to the host.
    pub returned_to_host_bytes: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Bytes fetched again after that.
    pub refetched_bytes: u64,
    /// Bytes in GPU memory.
    pub resident: Residency,
    /// Seconds since anything was last seen of it; null where nothing ever was.
    pub idle_seconds: Option<f64>,
}

/// Body of `GET /api/v1/processes/{pid}/history` and `GET /api/v1/gpus/{uuid}/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// When the first interval began.
    pub begin: String,
    /// Seconds of each interval.
    pub interval_seconds: f64,
    /// Oldest first, without gaps; null where nothing was read.
    pub samples: Vec<Option<HistorySample>>,
}

/// What was counted in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistorySample {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Bytes pushed out because memory was needed.
    pub evicted_bytes: u64,
    /// Bytes fetched again.
    pub refetched_bytes: u64,
    /// Bytes in GPU memory at the interval's end.
    pub resident_bytes: u64,
}

/// Body of `GET /api/v1/evictions`: who pushed whose memory out since uvmd counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evictions {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
    /// True until the attribution has been checked on hardware.
    pub inferred: bool,
    /// Most bytes first.
    pub pairs: Vec<EvictionPair>,
}

/// What was pushed out of one GPU of one party for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvictionPair {
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// Whose memory was pushed out.
    pub victim: Party,
    /// Whom the memory was needed for.
    pub evictor: Party,
    /// What for: `fault`, `api`, `tool`, `device_allocation` or `other`.
    pub cause: String,
    /// Pieces of at most 2 MiB.
    pub evictions: u64,
    /// Bytes copied out.
    pub bytes: u64,
}

/// One side of an eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Party {
    /// `process`, `forgotten` for processes that are listed no more, or `unknown`.
    pub kind: String,
    /// Process id; null unless it is one that is listed.
    pub pid: Option<u32>,
    /// With `pid` it names the process.
    pub start_ticks: Option<u64>,
    /// Its short name.
    pub name: Option<String>,
    /// Whom it works for.
    pub owner: Option<Owner>,
}

/// Body of `GET /api/v1/gpus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gpus {
    /// When this was taken.
    pub time: String,
    /// By index, then UUID.
    pub gpus: Vec<GpuDetail>,
}

/// One GPU, with its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GpuDetail {
    /// As in the status.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// NVML's index, by which nvidia-smi and DCGM name it.
    pub index: Option<u32>,
    /// Address on the PCI bus.
    pub pci_address: Option<String>,
    /// All of its memory.
    pub memory_bytes: Option<u64>,
    /// What of it is taken, by managed memory and everything else.
    pub memory_used_bytes: Option<u64>,
    /// Managed memory of the living processes that use it. One that uses several GPUs is counted at each.
    pub managed_bytes: u64,
    /// How much managed memory is in it.
    pub resident: Residency,
    /// `managed_bytes` over `memory_bytes`.
    pub oversubscription_ratio: Option<f64>,
    /// What of the traffic here came back.
    pub reuse: Reuse,
    /// `nvml` or `procfs`; null where nothing was told.
    pub source: Option<String>,
}

/// Body of `GET /api/v1/owners`: sums over all processes of each owner, those that have ended among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owners {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
    /// Busiest first.
    pub owners: Vec<OwnerTotals>,
}

/// One owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerTotals {
    /// As in [`Owner::kind`].
    pub kind: String,
    /// As in [`Owner::id`].
    pub id: String,
    /// Its processes that live.
    pub processes: u64,
    /// When anything was last counted for it.
    pub last_active: String,
    /// What of its traffic came back.
    pub reuse: Reuse,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same by GPU.
    pub gpus: Vec<OwnerGpu>,
}

/// One owner on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerGpu {
    /// The GPU's UUID; null if it is not known.
    pub uuid: Option<String>,
    /// What of the traffic here came back.
    pub reuse: Reuse,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}
