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
    /// Why it does not count all that it should, although it counts: who has reached which quota, and what this driver does not let it count. Empty when
    /// all is well.
    #[serde(default)]
    pub degraded: Vec<Degradation>,
    /// Entries of the kernel's maps that users were refused since uvmd started, by user and kind.
    #[serde(default)]
    pub quota_refusals: Vec<QuotaRefusals>,
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
    /// Lines of the audit log that could not be written.
    #[serde(default)]
    pub audit_lines_dropped: u64,
    /// What is wrong with uvmd itself, which goes on and does not do all that it should; empty when all is well.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// When the configuration was read last, and what came of it.
    #[serde(default)]
    pub configuration: Configuration,
    /// Sums over every process seen since uvmd counts.
    pub total: Counts,
}

/// One reason why uvmd counts less than it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Degradation {
    /// `quota_reached`, `registration_rate`, `owner_quota_reached` or `residency_unavailable`.
    pub reason: String,
    /// The user that caused it; null where none did.
    pub uid: Option<u32>,
    /// That user's name, where the node knows one.
    pub user: Option<String>,
    /// The process that caused it; null where none did alone.
    pub pid: Option<u32>,
    /// One sentence: what is not counted, of whom, and what to do about it.
    pub description: String,
}

/// Entries that a user was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaRefusals {
    /// The user; null for all users beyond the first sixteen that were refused anything.
    pub uid: Option<u32>,
    /// Its name, where the node knows one.
    pub user: Option<String>,
    /// What: `va_spaces`, `processes`, `counts`, `distributions`, `evictor_pairs`, `evictions`, `calls` or `users`.
    pub resource: String,
    /// How often.
    pub refusals: u64,
}

/// Something that is wrong with uvmd itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Warning {
    /// Which, for programs: as the label of `uvmd_warning_active`.
    pub name: String,
    /// What, for people.
    pub message: String,
}

/// When the configuration was read last, and what came of it: at the start, and at each SIGHUP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// Whether it was in order then; if not, what was in force before still is.
    pub last_reload_successful: bool,
    /// When it was so last.
    pub last_reload_success_at: String,
    /// Why it could not be taken; null where it was.
    pub error: Option<String>,
    /// Options that have other values in the file now and need a restart to take effect.
    pub needs_restart: Vec<String>,
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
