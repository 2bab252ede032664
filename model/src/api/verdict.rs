//! What is wrong, and what that rests on.

use serde::{Deserialize, Serialize};

use super::{Owner, Pattern};
use crate::verdict::Inputs;

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
    /// Kinds that cannot be told as uvmd is configured: who shows none may show one of these.
    #[serde(default)]
    pub untold: Vec<UntoldKind>,
    /// Where the next page begins: asks for it as `continue`. Null on the last one, and for one process.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many verdicts follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// A kind that cannot be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UntoldKind {
    /// See [`super::VerdictSummary::kind`].
    pub kind: String,
    /// Why.
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
    /// Whom it works for.
    pub owner: Owner,
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// What is wrong; see [`super::VerdictSummary::kind`].
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
    pub inputs: Inputs,
    /// What was counted since the beginning.
    pub total: Inputs,
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
