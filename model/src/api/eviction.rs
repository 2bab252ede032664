//! Who pushed whose memory out.

use serde::{Deserialize, Serialize};

use super::Owner;

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
    /// Where the next page begins: asks for it as `continue`. Null on the last one.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many pairs follow this page.
    #[serde(default)]
    pub remaining: u64,
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
    /// `process`, `forgotten` for processes that are listed no more and for the smallest of too many pairs, or `unknown`.
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
