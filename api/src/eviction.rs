//! Evictions by victim and evictor.

use serde::{Deserialize, Serialize};

use super::Owner;

/// Body of `GET /api/v1/evictions`: evictor and victim of every eviction since uvmd counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evictions {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// True until the attribution has been checked on hardware.
    pub inferred: bool,
    /// Most bytes first; null where they are not counted.
    pub pairs: Option<Vec<EvictionPair>>,
    /// Reason why there are no pairs, and what would count them; null where they are counted.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// Pairs that follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// Evictions from one GPU of one party's memory for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvictionPair {
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// Party whose memory was evicted.
    pub victim: Party,
    /// Party that needed the memory.
    pub evictor: Party,
    /// Cause: `fault`, `api`, `tool`, `device_allocation` or `other`.
    pub cause: String,
    /// Chunks of at most 2 MiB.
    pub evictions: u64,
    /// Bytes copied out.
    pub bytes: u64,
}

/// One side of an eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Party {
    /// `process`, `forgotten` for processes that are listed no more and for the smallest of too many pairs, or `unknown`.
    pub kind: String,
    /// Process id; null unless it is one that is listed.
    pub pid: Option<u32>,
    /// With `pid` it names the process.
    pub start_ticks: Option<u64>,
    /// Its short name.
    pub name: Option<String>,
    /// Owner of the process.
    pub owner: Option<Owner>,
}
