//! Host memory reserved for processes: pending migrations to the host, and memory at a GPU whose
//! preferred location is the host. Computed at each interval, so that a step costs no search.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use model::ProcessId;

use super::{account::Account, room::resident_within};
use crate::act::scene::Scene;

/// Reserved host memory in bytes, of all processes and by cgroup.
#[derive(Clone, Debug, Default)]
pub(super) struct HostReservations {
    node_bytes: u64,
    by_cgroup: BTreeMap<PathBuf, u64>,
}

impl HostReservations {
    /// Reservations for the live processes of a scene.
    pub(super) fn of(scene: &Scene<'_>, accounts: &BTreeMap<ProcessId, Account>) -> Self {
        let mut reservations = Self::default();
        for process in scene.snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
            let Some(account) = accounts.get(&process.id) else { continue };
            let bound_bytes = resident_within(&account.host_preferred, scene.blocks_of(process.id));
            reservations.add(process.cgroup.as_deref(), account.pending_to_host_bytes.saturating_add(bound_bytes));
        }
        reservations
    }

    /// Reserves these bytes for a process of this cgroup.
    pub(super) fn add(&mut self, cgroup: Option<&Path>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.node_bytes = self.node_bytes.saturating_add(bytes);
        if let Some(cgroup) = cgroup {
            let reserved = self.by_cgroup.entry(cgroup.to_owned()).or_default();
            *reserved = reserved.saturating_add(bytes);
        }
    }

    pub(super) const fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    /// Reserved bytes of a process's cgroup; those of the node if the cgroup is unknown.
    pub(super) fn cgroup_bytes(&self, cgroup: Option<&Path>) -> u64 {
        cgroup.map_or(self.node_bytes, |cgroup| self.by_cgroup.get(cgroup).copied().unwrap_or_default())
    }
}
