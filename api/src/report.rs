//! Report on an owner, such as a job: the cost of managed memory to it, also after its processes have exited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{OwnerEviction, Verdict};

/// Body of `GET /api/v1/owners/{kind}/{id}/report`: usage of managed memory by an owner, and by the steps of a job, since it was listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerReport {
    /// Time of the snapshot.
    pub time: String,
    /// As in [`super::Owner::kind`].
    pub kind: String,
    /// As in [`super::Owner::id`].
    pub id: String,
    /// User of its first process; null if no process of it was seen.
    pub uid: Option<u32>,
    /// Name of that user; null without one.
    pub user: Option<String>,
    /// Running processes.
    pub processes: u64,
    /// Rate of the link between host and GPU, the highest of the GPUs that it used; null if unknown.
    pub link_bytes_per_second: Option<u64>,
    /// Maximum of the managed memory of all processes at a GPU over that GPU's memory, while it used the GPU; null if unknown.
    pub peak_gpu_oversubscription_ratio: Option<f64>,
    /// Sums over all processes, in steps or not.
    #[serde(flatten)]
    pub usage: ReportedUsage,
    /// Steps of a job, by name: at most 32, and the sum of the others.
    pub steps: Vec<StepReport>,
    /// Evictions for this owner, as in [`super::OwnerDetail::evictions_inflicted`].
    pub evictions_inflicted: Option<Vec<OwnerEviction>>,
    /// Evictions of this owner's memory, as in [`super::OwnerDetail::evictions_suffered`].
    pub evictions_suffered: Option<Vec<OwnerEviction>>,
    /// Worst verdict with its remedies: the one with most copied bytes, thrashing ones first. Null without any.
    pub worst_verdict: Option<Verdict>,
    /// Step of that verdict's process; null in no step.
    pub worst_verdict_step: Option<String>,
    /// True until the attribution of evictions has been verified on hardware.
    pub inferred: bool,
}

/// Usage of one step of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepReport {
    /// Step, such as `0` or `batch`; null for processes in no step, and for steps beyond the limit.
    pub step: Option<String>,
    /// Usage of the step.
    #[serde(flatten)]
    pub usage: ReportedUsage,
}

/// Usage of managed memory, over all GPUs and processes. Quantities that the source does not count are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportedUsage {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// Bytes copied from the host to GPUs.
    pub bytes_htod: u64,
    /// Bytes copied from GPUs to the host.
    pub bytes_dtoh: u64,
    /// Bytes evicted from GPUs, for any process.
    pub evicted_bytes: Option<u64>,
    /// Bytes of any process evicted for these processes.
    pub induced_eviction_bytes: Option<u64>,
    /// Bytes copied to GPUs, by block records.
    pub fetched_bytes: Option<u64>,
    /// Part of `fetched_bytes` that had been evicted before.
    pub refetched_bytes: Option<u64>,
    /// Part of `fetched_bytes` that a CPU fault had reclaimed before.
    pub cpu_reclaimed_bytes: Option<u64>,
    /// Link time of refetches: `refetched_bytes` over `link_bytes_per_second`. A lower bound of the cost of evictions.
    pub refetch_seconds: Option<f64>,
    /// Seconds under each kind of verdict, summed over processes and GPUs. Kinds without time are absent.
    pub verdict_seconds: BTreeMap<String, f64>,
    /// Maximum of the managed memory of the running processes at a GPU over that GPU's memory; null if unknown.
    pub peak_oversubscription_ratio: Option<f64>,
}
