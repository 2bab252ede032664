//! Whom processes work for.

use serde::{Deserialize, Serialize};

use super::{Counts, Reuse};

/// What a process's cgroup says of whom it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owner {
    /// What its sums are kept by: `pod`, `job`, `container`, `unit` or `other`.
    pub kind: String,
    /// Which of that kind; empty for `other`.
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

/// Body of `GET /api/v1/owners`: sums over all processes of each owner, those that have ended among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Owners {
    /// When this was taken: rates are the difference of two answers over the time between them.
    pub time: String,
    /// Busiest first.
    pub owners: Vec<OwnerTotals>,
    /// Where the next page begins: asks for it as `continue`. Null on the last one.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many owners follow this page.
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
    /// Its processes that live.
    pub processes: u64,
    /// When anything was last counted for it.
    pub last_active: String,
    /// What of its traffic came back.
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
    /// What of the traffic here came back.
    pub reuse: Reuse,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}
