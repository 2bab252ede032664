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
    /// Time of the snapshot.
    pub time: String,
    /// Whether the client has read permission: for command lines and addresses.
    pub can_read: bool,
    /// Whether the client has write permission: for overrides and the switch of acting.
    pub can_write: bool,
    /// The source of events: `ebpf` or `tools`.
    pub backend: String,
    /// The source, and what it does not count.
    #[serde(default)]
    pub source: Source,
    /// `waiting`, `refused` or `counting`.
    pub state: String,
    /// Reasons why counts are incomplete: quotas that were reached, and what this driver does not expose. Empty if they are complete.
    pub degraded: Vec<Degradation>,
    /// Entries of the kernel's maps that users were refused since uvmd started, by user and kind.
    pub quota_refusals: Vec<QuotaRefusals>,
    /// Missing prerequisites, the reason for a refused driver, restrictions, and errors in uvmd's files; empty without any.
    pub reasons: Vec<String>,
    /// Time since which it counts.
    pub counting_started_at: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// The driver's global fatal error, its effect and the remedy, as a sentence; null if none is known.
    pub driver_fatal_error: Option<String>,
    /// The family of struct layouts in use.
    pub layout: Option<String>,
    /// How the probes are attached to the driver: `kprobe` or `fentry`; null while they are not.
    pub attachment: Option<String>,
    /// Module parameters of nvidia-uvm that change what is counted, by name.
    pub driver_parameters: BTreeMap<String, String>,
    /// GPUs seen.
    pub gpus: Vec<Gpu>,
    /// The probes, those that this driver lacks among them.
    pub probes: Vec<Probe>,
    /// Events dropped, for all reasons.
    pub dropped_events: u64,
    /// Dropped events by reason.
    pub dropped_events_by_reason: BTreeMap<String, u64>,
    /// Block records that the probes wrote. Dropped ones make the counts of blocks lower bounds, and nothing else.
    pub block_records: u64,
    /// Block records omitted by sampling, because too many came at once.
    pub block_records_sampled_out: u64,
    /// Block records dropped for lack of space.
    pub block_records_dropped: u64,
    /// Lines of uvmd's own log that could not be written.
    pub log_lines_dropped: u64,
    /// Lines of the audit log that could not be written.
    pub audit_lines_dropped: u64,
    /// Active warnings about uvmd itself; empty without any.
    pub warnings: Vec<Warning>,
    /// Last read of the configuration, and its result.
    pub configuration: Configuration,
    /// Sums over every process seen since uvmd counts.
    pub total: Counts,
}

/// Source of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Source {
    /// As `backend` of the status.
    pub backend: String,
    /// Quantities that are not counted by this source, on this driver, as configured: null here, absent from the metrics. Empty if
    /// all are.
    pub not_counted: Vec<String>,
    /// Cross-check of the probes by the driver's own counters; null where it is off.
    #[serde(default)]
    pub crosscheck: Option<Crosscheck>,
}

/// Comparisons of the probes with the driver's own counters, since uvmd started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Crosscheck {
    /// Checks of a process. A process can be checked several times.
    pub checks: u64,
    /// Comparisons of a figure.
    pub comparisons: u64,
    /// Comparisons in which the probes counted more or less than the driver.
    pub disagreements: u64,
    /// Comparisons without a result: the probes dropped events meanwhile, or a deviation was new.
    pub inconclusive: u64,
    /// Process that was checked last; null before the first check.
    pub last_process: Option<CheckedProcess>,
}

/// Process that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckedProcess {
    /// Process id.
    pub pid: u32,
    /// Start time, in clock ticks since boot: with the pid it is unique.
    pub start_ticks: u64,
}

/// A reason why uvmd counts less than it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Degradation {
    /// `quota_reached`, `registration_rate`, `owner_quota_reached`, `residency_unavailable`, `source_reduced`, `tools_quota`,
    /// `holder_hangs`, `queue_full`, `attached_late`, `sources_disagree` or `cgroup_namespace`.
    pub reason: String,
    /// The user that caused it; null where none did.
    pub uid: Option<u32>,
    /// Name of the user, if the node knows one.
    pub user: Option<String>,
    /// The process that caused it; null where none did alone.
    pub pid: Option<u32>,
    /// Uncounted part, its owner and the remedy, as a sentence.
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
    /// Resource: `va_spaces`, `processes`, `counts`, `distributions`, `evictor_pairs`, `evictions`, `calls`, `users` or `cpu_fault_sites`.
    pub resource: String,
    /// Number of refusals.
    pub refusals: u64,
}

/// Something that is wrong with uvmd itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Warning {
    /// Name, as the label of `uvmd_warning_active`.
    pub name: String,
    /// Description, as a sentence.
    pub message: String,
}

/// Last read of the configuration, at the start or on SIGHUP, and its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// Entity tag of the configuration in effect, as `etag_after` in the audit log. Equal configurations have equal tags.
    pub etag: String,
    /// Whether it was valid; if not, the former configuration stays in effect.
    pub last_reload_successful: bool,
    /// Time of the last success.
    pub last_reload_success_at: String,
    /// Error of the last read; null if it succeeded.
    pub error: Option<String>,
    /// Options whose new values in the file take effect after a restart.
    pub restart_required: Vec<String>,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Probe {
    /// The driver function.
    pub name: String,
    /// Number of runs.
    pub hits: u64,
    /// Time spent in it, in nanoseconds, where the kernel measures that.
    pub run_time_ns: Option<u64>,
    /// Reason why the probe is not attached, and what is not counted without it; null where it is attached.
    pub unavailable_reason: Option<String>,
}
