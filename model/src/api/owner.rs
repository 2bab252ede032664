//! Whom processes work for.

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
    /// Container id.
    pub container: Option<String>,
    /// `containerd`, `cri-o`, `docker` or `podman`.
    pub container_runtime: Option<String>,
    /// UID of the Kubernetes pod.
    pub pod_uid: Option<String>,
    /// Slurm job.
    pub slurm_job: Option<String>,
    /// Slurm step.
    pub slurm_step: Option<String>,
    /// Innermost systemd service or scope.
    pub unit: Option<String>,
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
    /// Running processes.
    pub processes: u64,
    /// Time of the last count.
    pub last_active_at: String,
    /// Reuse of evicted and reclaimed memory.
    pub reuse: Reuse,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: Counts,
    /// The same by GPU.
    pub gpus: Vec<OwnerGpu>,
}

/// One owner on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnerGpu {
    /// The GPU's UUID; null if it is not known.
    pub uuid: Option<String>,
    /// Reuse of evicted and reclaimed memory.
    pub reuse: Reuse,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}
