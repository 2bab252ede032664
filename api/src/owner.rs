//! Owners of processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Counts, Reuse};

/// Owner of a process, from its cgroup path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owner {
    /// Kind of owner: `pod`, `job`, `container`, `unit` or `other`.
    pub kind: String,
    /// Identifier within the kind; empty for `other`.
    pub id: String,
    /// Short name that still identifies it, such as `ml/llm-7b-0`, `pod 3f2a9c1e` of a pod without names, or `job 4711`; empty for `other`.
    #[serde(default)]
    pub label: String,
    /// Container id.
    pub container: Option<String>,
    /// `containerd`, `cri-o`, `docker` or `podman`.
    pub container_runtime: Option<String>,
    /// UID of the Kubernetes pod.
    pub pod_uid: Option<String>,
    /// Names of that pod; null where they are not known.
    #[serde(default)]
    pub names: Option<PodNames>,
    /// Slurm job.
    pub slurm_job: Option<String>,
    /// Slurm step.
    pub slurm_step: Option<String>,
    /// Innermost systemd service or scope.
    pub unit: Option<String>,
}

/// Names of a Kubernetes pod, from the file of `owners.names`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PodNames {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub pod: String,
    /// Name of the container; null for a whole pod with several, and where it is not known.
    pub container: Option<String>,
    /// Controller, such as `Deployment/llm`; null without one.
    pub workload: Option<String>,
    /// Labels that uvmd-fleet passes on.
    pub labels: BTreeMap<String, String>,
}

/// Body of `GET /api/v1/owners`: sums over all processes of each owner, exited ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owners {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// Busiest first.
    pub owners: Vec<OwnerTotals>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// Owners that follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// One owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerTotals {
    /// As in [`Owner::kind`].
    pub kind: String,
    /// As in [`Owner::id`].
    pub id: String,
    /// As in [`Owner::label`].
    #[serde(default)]
    pub label: String,
    /// Names of a pod; null where they are not known, and for other owners.
    #[serde(default)]
    pub names: Option<PodNames>,
    /// Running processes.
    pub processes: u64,
    /// Time of the last count.
    pub last_active_at: String,
    /// Reuse of evicted and reclaimed memory; null where the source has no block records.
    pub reuse: Option<Reuse>,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// Counts by GPU.
    pub gpus: Vec<OwnerGpu>,
}

/// One owner on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerGpu {
    /// The GPU's UUID; null if it is not known.
    pub uuid: Option<String>,
    /// Reuse of evicted and reclaimed memory; null where the source has no block records.
    pub reuse: Option<Reuse>,
    /// Counts at this GPU.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Body of `GET /api/v1/owners/{kind}/{id}`: an owner with its processes, verdicts and evictions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerDetail {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// Sums, as in the list.
    #[serde(flatten)]
    pub totals: OwnerTotals,
    /// Listed processes, running ones first, busiest first; 100 at most.
    pub members: Vec<OwnerProcess>,
    /// Listed processes that are omitted.
    pub members_omitted: u64,
    /// Active and ended verdicts of listed processes, active ones first; 100 at most.
    pub verdicts: Vec<OwnerVerdict>,
    /// Verdicts that are omitted.
    pub verdicts_omitted: u64,
    /// Evictions of other owners' memory, and of its own, for this owner; most bytes first. Null where pairs of victim and evictor are not
    /// counted.
    pub evictions_inflicted: Option<Vec<OwnerEviction>>,
    /// Evictions of this owner's memory; most bytes first. Null likewise.
    pub evictions_suffered: Option<Vec<OwnerEviction>>,
    /// True until the attribution of evictions has been checked on hardware.
    pub inferred: bool,
}

/// Process of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerProcess {
    /// Process id.
    pub pid: u32,
    /// Start time; with `pid` it identifies the process.
    pub start_ticks: u64,
    /// Short name.
    pub name: String,
    /// `running` or `exited`.
    pub state: String,
}

/// Verdict on a process of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerVerdict {
    /// Process id.
    pub pid: u32,
    /// Start time; with `pid` it identifies the process.
    pub start_ticks: u64,
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// Kind of verdict.
    pub kind: String,
    /// Start of the verdict.
    pub started_at: String,
    /// End of the verdict; null while it is active.
    pub ended_at: Option<String>,
}

/// Evictions between an owner and another one, since uvmd counts. They outlive processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerEviction {
    /// UUID of the GPU; null if it is not known.
    pub gpu_uuid: Option<String>,
    /// Kind of the other owner; null if it could not be named.
    pub kind: Option<String>,
    /// Id of the other owner.
    pub id: Option<String>,
    /// Cause: `fault`, `api`, `tool`, `device_allocation` or `other`.
    pub cause: String,
    /// Chunks of at most 2 MiB.
    pub evictions: u64,
    /// Bytes copied out.
    pub bytes: u64,
}
