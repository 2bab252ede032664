//! Processes.

use serde::{Deserialize, Serialize};

use super::{Block, Counts, Owner, Residency, Reuse};
use crate::plan::Expected;

/// Body of `GET /api/v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processes {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
    /// Living processes first, busiest first; then those that ended recently.
    pub processes: Vec<Process>,
    /// Where the next page begins: asks for it as `continue`. Null on the last one.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many processes follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// How much of it is in GPU memory, all GPUs together: an estimate. Null where that cannot be told.
    #[serde(default)]
    pub resident: Option<Residency>,
    /// What of its traffic came back, all GPUs together.
    #[serde(default)]
    pub reuse: Reuse,
    /// What is wrong with it now, worst first; empty while nothing is.
    #[serde(default)]
    pub verdicts: Vec<VerdictSummary>,
    /// Who pushed most of its memory out lately, if somebody else did.
    #[serde(default)]
    pub victim_of: Option<VictimOf>,
    /// What is done about it now, or would be, the newest first; empty where nothing is.
    #[serde(default)]
    pub decisions: Vec<DecisionSummary>,
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
    /// How much of the process's managed memory is in this GPU's; null where that cannot be told.
    #[serde(default)]
    pub resident: Option<Residency>,
    /// What of the traffic here came back.
    #[serde(default)]
    pub reuse: Reuse,
    /// What was counted here.
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

/// Body of `GET /api/v1/processes/{pid}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// `shadow`, `trial` or `kept`.
    pub stage: String,
    /// What it was to bring.
    pub expected: Expected,
    /// What part of the process's bytes over the GPU's link it saves for the same work; negative if there are more. Null until that is known.
    pub link_bytes_saved: Option<f64>,
    /// What part of its GPU faults it saves, likewise.
    pub faults_saved: Option<f64>,
}
