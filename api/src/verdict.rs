//! Verdicts and their evidence.

use model::verdict::Inputs;
use serde::{Deserialize, Serialize};

use super::{Evictor, Owner, Pattern};

/// Body of `GET /api/v1/verdicts`, and of `GET /api/v1/processes/{pid}/verdict` for one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdicts {
    /// Time of the snapshot.
    pub time: String,
    /// Active verdicts, the one with most traffic first.
    pub active: Vec<Verdict>,
    /// Ended verdicts, the latest first.
    pub ended: Vec<Verdict>,
    /// Kinds that cannot be judged with this configuration. A process without a verdict may still show one of them.
    pub unavailable: Vec<UnavailableKind>,
    /// Remarks on one process beyond its verdicts, as sentences; empty in a list of several.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page, and for one process.
    pub r#continue: Option<String>,
    /// Verdicts that follow this page.
    pub remaining: u64,
}

/// A kind of verdict that cannot be judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnavailableKind {
    /// See [`super::VerdictSummary::kind`].
    pub kind: String,
    /// Name of the kind for people.
    #[serde(default)]
    pub label: String,
    /// Reason, as a sentence.
    pub reason: String,
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
    /// Owner.
    pub owner: Owner,
    /// User id of the process; null once it is forgotten.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Name of that user; null without one.
    #[serde(default)]
    pub user: Option<String>,
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// UUID of the other GPU of a `ping_pong` or `driver_throttling` between two; null if it is between CPUs and the GPU, or not known.
    #[serde(default)]
    pub peer_uuid: Option<String>,
    /// Kind; see [`super::VerdictSummary::kind`].
    pub kind: String,
    /// Name of the kind for people, such as `capacity thrash`.
    #[serde(default)]
    pub label: String,
    /// The verdict as a sentence, with its process and GPU. Names of processes in it are as the programs chose them.
    #[serde(default)]
    pub summary: String,
    /// Reason of the verdict as a sentence: the counts of its last window.
    #[serde(default)]
    pub reason: String,
    /// Remedies. In `GET /api/v1/processes/{pid}/verdict` for active verdicts; null elsewhere. Those that depend on ranges require read permission.
    #[serde(default)]
    pub remedies: Option<Remedies>,
    /// Whether it is thrashing: work is done again that was done before.
    pub thrashing: bool,
    /// Begin of the first window that showed it.
    pub started_at: String,
    /// Time of the first report.
    pub confirmed_at: String,
    /// End of the last window that showed it; null while it is active.
    pub ended_at: Option<String>,
    /// Busiest ranges involved, busiest first. Requires read permission; null without.
    pub ranges: Option<Vec<InvolvedRange>>,
    /// Seconds of the last window that showed it.
    pub window_seconds: f64,
    /// Inputs of that window.
    pub inputs: Inputs,
    /// Inputs since the begin.
    pub total: Inputs,
    /// Checks of that window.
    pub checks: Vec<Check>,
    /// Process that causes a `capacity_thrash` of memory that would fit into the GPU alone: the one without which the others would fit, else the one for
    /// which most was evicted. Where sizes are unknown, at least half of the bytes must be for it. Null if the process itself causes it.
    pub evictor: Option<Evictor>,
    /// Processes that lose memory to this one, most bytes first.
    pub victims: Vec<VerdictVictim>,
}

/// Remedies for a verdict: those that its evidence supports, and those that appear effective and are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Remedies {
    /// Cheapest first.
    pub effective: Vec<Remedy>,
    /// Remedies that do not help, each with its reason.
    pub ineffective: Vec<String>,
}

/// A remedy with its evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Remedy {
    /// Action to take.
    pub action: String,
    /// Observation that supports the action.
    pub evidence: String,
    /// Condition that would refute the action and cannot be observed; null without one.
    pub unless: Option<String>,
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
    /// Owner.
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
    /// Access pattern.
    pub pattern: Pattern,
    /// What part of the traffic that the verdict is about is its, from 0 to 1.
    pub traffic_ratio: f64,
    /// What part of the bytes fetched into it came back, from 0 to 1.
    pub refetch_ratio: f64,
}

/// A condition that a verdict rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// A short name: `refetch_ratio`.
    pub name: String,
    /// The condition with its value and limit, as a sentence: `92 % of arriving bytes were refetched (limit 25 %)`.
    pub description: String,
    /// Value in the window.
    pub value: f64,
    /// Threshold of the comparison.
    pub threshold: f64,
    /// Whether the condition is met.
    pub met: bool,
}
