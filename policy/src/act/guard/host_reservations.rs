//! Host memory reserved for processes: pending migrations to the host, and memory at a GPU whose
//! preferred location is the host. Computed at most once in an interval, so that a step costs no search.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use model::{GpuKey, Process, ProcessId};

use super::{account::Account, room::resident_within};
use crate::act::scene::Scene;

/// Reserved host memory in bytes, of all processes and by cgroup.
#[derive(Clone, Debug, Default)]
pub(super) struct HostReservations {
    node_bytes: u64,
    by_cgroup: BTreeMap<PathBuf, u64>,
}

/// Bytes of a process that may be at its GPUs, and thus move to the host. Blocks are not read of all
/// processes.
fn at_gpus_bytes(process: &Process, scene: &Scene<'_>) -> u64 {
    let snapshot = scene.snapshot;
    let of_gpu = |gpu: &GpuKey| snapshot.gpus.get(gpu).and_then(|gpu| gpu.memory_bytes).unwrap_or(u64::MAX);
    if snapshot.source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_some()) {
        process.gpus.keys().map(of_gpu).fold(0, u64::saturating_add)
    } else {
        process.residency.values().map(|resident| resident.max_bytes).fold(0, u64::saturating_add)
    }
}

impl HostReservations {
    /// Reservations for the live processes of a scene.
    pub(super) fn of(scene: &Scene<'_>, accounts: &BTreeMap<ProcessId, Account>) -> Self {
        let mut reservations = Self::default();
        let mut bound_bytes_of_all: u64 = 0;
        for process in scene.snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
            let Some(account) = accounts.get(&process.id) else { continue };
            let bound_bytes = resident_within(&account.host_preferred, scene.blocks_of(process.id));
            let bound_bytes = bound_bytes.min(at_gpus_bytes(process, scene));
            reservations.add(process.cgroup.as_deref(), account.pending_to_host_bytes.saturating_add(bound_bytes));
            bound_bytes_of_all = bound_bytes_of_all.saturating_add(bound_bytes);
        }
        // All together, no more than the GPUs have. The bound of each process may be too high.
        let gpus = scene.snapshot.gpus.values().map(|gpu| gpu.memory_bytes.unwrap_or(u64::MAX));
        let excess = bound_bytes_of_all.saturating_sub(gpus.fold(0, u64::saturating_add));
        reservations.node_bytes = reservations.node_bytes.saturating_sub(excess);
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::SystemTime};

    use model::{DriverInfo, Gpu, Residency, Snapshot, SourceState, SourceStatus, Verdicts};

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const GPU: GpuKey = GpuKey::Unknown(0);
    const OTHER: ProcessId = ProcessId { pid: 2, start_ticks: 1 };
    const PROCESS: ProcessId = ProcessId { pid: 1, start_ticks: 1 };

    #[test]
    fn memory_of_unknown_blocks_is_reserved_as_far_as_it_is_at_a_gpu() {
        let mut process = Process::new(PROCESS, "program");
        process.cgroup = Some("/job".into());
        process.residency.insert(GPU, Residency::exactly(4 << 20));
        let source = SourceStatus {
            driver: Some(DriverInfo::default()),
            ..SourceStatus::new(SourceState::Counting { since: NOW })
        };
        let large = Process { id: OTHER, cgroup: Some("/other".into()), ..process.clone() };
        let mut snapshot = Snapshot { processes: vec![process, large], ..Snapshot::empty(NOW, source) };
        snapshot.processes[1].residency.insert(GPU, Residency::exactly(80 << 30));
        snapshot.gpus.insert(GPU, Gpu { memory_bytes: Some(80 << 30), ..Gpu::default() });
        let mut account = Account::new(1, NOW);
        account.host_preferred.insert(0, 250 << 30);
        account.pending_to_host_bytes = 4096;
        let scene = Scene {
            now: NOW,
            snapshot: &snapshot,
            verdicts: &Verdicts::default(),
            memory: &BTreeMap::new(),
            links: &BTreeMap::new(),
            headroom_bytes: &BTreeMap::new(),
            node_headroom_bytes: 0,
            following: &BTreeMap::new(),
            deferred: &BTreeSet::new(),
            directives: &BTreeMap::new(),
            acting_enabled: true,
        };
        let reservations =
            HostReservations::of(&scene, &BTreeMap::from([(PROCESS, account.clone()), (OTHER, account)]));
        assert_eq!(reservations.node_bytes(), (80 << 30) + 2 * 4096, "no more than the GPUs have");
        assert_eq!(reservations.cgroup_bytes(Some(Path::new("/job"))), (4 << 20) + 4096);
        assert_eq!(reservations.cgroup_bytes(Some(Path::new("/other"))), (80 << 30) + 4096);
        assert_eq!(reservations.cgroup_bytes(Some(Path::new("/third"))), 0);
    }
}
