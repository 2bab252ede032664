//! Processes.

use model::{order::Expected, text};
use serde::{Deserialize, Serialize};

use super::{Block, Counts, CountsSummary, GpuId, Owner, Residency, Reuse};

/// Body of `GET /api/v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processes {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// Running processes first, busiest first; then those that exited recently.
    pub processes: Vec<Process>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    pub r#continue: Option<String>,
    /// Processes that follow this page.
    pub remaining: u64,
}

/// Defines [`Process`] and [`ProcessSummary`], which share these fields.
macro_rules! processes {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// One process.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct Process {
            $($(#[$doc])* pub $field: $type,)*
            /// Sums over all GPUs, and CPU faults.
            #[serde(flatten)]
            pub counts: Counts,
            /// Counts by GPU.
            pub gpus: Vec<ProcessGpu>,
        }

        /// One process without breakdowns and counts by GPU. With many processes and GPUs a listing
        /// is a tenth of that of [`Process`].
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct ProcessSummary {
            $($(#[$doc])* pub $field: $type,)*
            /// Sums over all GPUs, and CPU faults.
            #[serde(flatten)]
            pub counts: CountsSummary,
            /// GPUs that it was seen on.
            pub gpus: Vec<GpuId>,
        }

        impl From<ProcessSummary> for Process {
            /// Breakdowns and the counts of each GPU are empty.
            fn from(ProcessSummary { $($field,)* counts, gpus }: ProcessSummary) -> Self {
                let gpus = gpus.into_iter().map(|id| ProcessGpu { id, ..ProcessGpu::default() });
                Self { $($field,)* counts: counts.into(), gpus: gpus.collect() }
            }
        }
    };
}

processes! {
    /// Process id.
    pid: u32,
    /// Start time in clock ticks since boot; with `pid` it names the process.
    start_ticks: u64,
    /// Time of its start.
    started_at: Option<String>,
    /// Time from which it is counted, if it may have used the driver before: what it did before is in no
    /// count. Null if it was counted from the start.
    counted_from: Option<String>,
    /// Short name (comm).
    name: String,
    /// Real user id.
    uid: u32,
    /// User name.
    user: Option<String>,
    /// Cgroup path.
    cgroup: Option<String>,
    /// `running` or `exited`.
    state: String,
    /// Time of its exit.
    exited_at: Option<String>,
    /// Bytes of managed memory it has mapped; null if that could not be read.
    managed_bytes: Option<u64>,
    /// Owner of the process.
    owner: Owner,
    /// Bytes of it resident in GPU memory, over all GPUs: an estimate. Null where unknown.
    resident: Option<Residency>,
    /// Reuse of evicted and reclaimed memory, over all GPUs; null where the source has no block records.
    reuse: Option<Reuse>,
    /// Foremost concern; null if there is none.
    diagnosis: Option<Diagnosis>,
    /// Active verdicts, worst first.
    verdicts: Vec<VerdictSummary>,
    /// Process that evicted most of its memory in the last window; null if it was none but itself.
    victim_of: Option<Evictor>,
    /// Open decisions, the newest first.
    decisions: Vec<DecisionSummary>,
}

/// Body of `GET /api/v1/processes/summary`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessSummaries {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// As in the listing of processes.
    pub processes: Vec<ProcessSummary>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    pub r#continue: Option<String>,
    /// Processes that follow this page.
    pub remaining: u64,
}

/// One process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessGpu {
    /// Names of the GPU.
    #[serde(flatten)]
    pub id: GpuId,
    /// Bytes of its managed memory resident in this GPU; null where unknown.
    pub resident: Option<Residency>,
    /// Reuse of evicted and reclaimed memory; null where the source has no block records.
    pub reuse: Option<Reuse>,
    /// Times that this GPU took a 2 MiB block from another GPU of the process by a fault.
    #[serde(default)]
    pub peer_bounces: Option<u64>,
    /// Bytes copied to it by these faults, in blocks that another GPU had taken from it before.
    #[serde(default)]
    pub peer_reclaimed_bytes: Option<u64>,
    /// Counts of this GPU.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A verdict in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerdictSummary {
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// `capacity_thrash`, `ping_pong`, `driver_throttling`, `streaming` or `first_touch_storm`.
    pub kind: String,
    /// Name of the kind for people, such as `capacity thrash`.
    #[serde(default)]
    pub label: String,
    /// Whether it is thrashing: work is repeated.
    pub thrashing: bool,
    /// Begin of the first window that showed it.
    pub started_at: String,
}

/// Foremost concern of a process: a decision in effect, else the evictor of its memory, else its worst verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diagnosis {
    /// `decision`, `victim` or `verdict`.
    pub kind: String,
    /// Diagnosis in a few words, such as `capacity thrash`, `victim of 41207` or `acting: cycle, link -55 %`.
    #[serde(default)]
    pub label: String,
    /// Its meaning, as a sentence.
    #[serde(default)]
    pub description: String,
    /// With `decision`: the newest decision in effect.
    pub decision: Option<DecisionSummary>,
    /// With `victim`: the evictor.
    pub evictor: Option<Evictor>,
    /// With `verdict`: the worst verdict. With `victim`: the verdict that the evictor causes, if there is one.
    pub verdict: Option<VerdictSummary>,
}

/// Evictor of a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evictor {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot; `pid` and this identify the process.
    pub start_ticks: u64,
    /// Its short name.
    pub name: String,
    /// Bytes per second of the victim's memory evicted for it in the last window; 0 if it evicted nothing
    /// of the victim's in that window, because other processes did.
    pub bytes_per_second: u64,
    /// True until the attribution has been checked on hardware.
    pub inferred: bool,
}

impl Evictor {
    /// Evicted bytes and evictor, about the victim: `8.0 GiB/s of its memory is evicted for 182 streams`, or
    /// `without 182 streams, it would fit into the GPU`.
    #[must_use]
    pub fn description(&self) -> String {
        let Self { pid, name, bytes_per_second, .. } = self;
        match bytes_per_second {
            0 => format!("without {pid} {name}, it would fit into the GPU"),
            rate => format!("{}/s of its memory is evicted for {pid} {name}", text::bytes(*rate)),
        }
    }
}

/// Body of `GET /api/v1/processes/{pid}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessDetail {
    /// As in the listing.
    #[serde(flatten)]
    pub process: Process,
    /// Whether fields that require read permission are omitted.
    pub redacted: bool,
    /// Its command line. Requires read permission; null without, or if it could not be read.
    pub command_line: Option<String>,
    /// The busiest blocks of its memory, busiest first. Requires read permission; empty without.
    pub blocks: Vec<Block>,
    /// Number of known blocks.
    pub blocks_known: u64,
    /// Blocks evicted from the table to make room.
    pub blocks_forgotten: u64,
    /// Block records left out by sampling, as too many came at once; if not 0, the blocks' counts are lower bounds.
    pub block_records_sampled_out: u64,
    /// Block records dropped for lack of space; likewise.
    pub block_records_dropped: u64,
}

/// A decision about a process that is in force, or would be; see [`super::decision::Decision`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionSummary {
    /// Its name.
    pub id: u64,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// By which policy.
    pub policy: String,
    /// `shadow`, `trial` or `confirmed`.
    pub stage: String,
    /// Stage and policy in words, such as `acting: cycle`.
    pub action: String,
    /// `action` with its effect, such as `acting: cycle, link -55 %`.
    #[serde(default)]
    pub label: String,
    /// See [`super::decision::Decision::effect`].
    #[serde(default)]
    pub effect: String,
    /// Expected benefit.
    pub expected: Expected,
    /// Saved share of the process's bytes over the GPU's link for the same work; negative if there are more. Null until measured.
    pub link_bytes_saved: Option<f64>,
    /// Saved share of its GPU faults, likewise.
    pub faults_saved: Option<f64>,
}
