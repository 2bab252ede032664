//! Followers of all processes.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use model::{
    ActuatorChoice, ActuatorKind, Directive, Following, GpuKey, GpuUuid, Memory, Mode, PlanCommand, PlanReport,
    Process, ProcessId, Snapshot, policy::of_plans,
};
use recorder::Recordings;
use sys::{Roots, host_memory::HostMemory};

use crate::{
    followed::{Followed, start},
    planning::Planners,
    settings::Settings,
    shared::Target,
    sources::Sources,
    unavailable::{Disabled, Unavailable},
};

/// Maximum interval of the loop: a helper needs a heartbeat each 5 s, and blocks of a trial last 4 s.
const INTERVAL_MAX: Duration = Duration::from_millis(500);

/// Followers of all processes, used by the loop that acts.
#[derive(Debug)]
pub struct Followers {
    /// Sources, or the reason why no plan may be carried out.
    pub(crate) sources: Result<Sources, Disabled>,
    /// Memory of the node; if unknown, the maximum.
    node_bytes: u64,
    followed: BTreeMap<ProcessId, Followed>,
}

impl Followers {
    /// Followers of no process yet. `recordings`: `None` if they are not enabled.
    #[must_use]
    pub fn new(recordings: Option<Arc<Recordings>>, planners: Planners, settings: Settings) -> Self {
        let Settings { interval, actuator, probes } = settings;
        let sources = if interval > INTERVAL_MAX {
            Err(Disabled::Interval)
        } else if actuator == ActuatorChoice::Only(ActuatorKind::Ioctl) {
            Err(Disabled::NoHelper)
        } else {
            recordings.map(|recordings| Sources::new(recordings, planners, probes)).ok_or(Disabled::NoRecordings)
        };
        let node_bytes = HostMemory::read(&Roots::default()).map_or(u64::MAX, |memory| memory.total_bytes);
        Self { sources, node_bytes, followed: BTreeMap::new() }
    }

    /// Follows the processes whose directive names a plan policy, and no others. `deferred`: processes whose
    /// memory is that of an earlier interval, and was delivered then.
    pub fn follow(
        &mut self,
        snapshot: &Snapshot,
        directives: &BTreeMap<ProcessId, Directive>,
        memory: &BTreeMap<ProcessId, Memory>,
        deferred: &BTreeSet<ProcessId>,
    ) -> BTreeMap<ProcessId, Following> {
        let mut all = BTreeMap::new();
        let mut targets = BTreeMap::new();
        let gpus_bytes = snapshot.gpus.values().filter_map(|gpu| gpu.memory_bytes).fold(0, u64::saturating_add);
        let allocation_bytes_max = self.node_bytes.saturating_add(gpus_bytes);
        for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
            let Some(policy) = directives.get(&process.id).and_then(|directive| of_plans(&directive.policy)) else {
                continue;
            };
            // Without a GPU, no plan is possible.
            let Some(gpu) = gpus(process).next() else { continue };
            let followable = match &self.sources {
                Ok(sources) => target(process, policy.name, gpu, snapshot).map(|target| (sources, target)),
                Err(disabled) => Err((*disabled).into()),
            };
            match followable {
                Ok((sources, target)) => drop(targets.insert(process.id, (sources, target, process))),
                Err(reason) => drop(all.insert(process.id, unavailable(gpu, policy.name, reason))),
            }
        }
        self.followed.retain(|id, followed| targets.get(id).is_some_and(|(_, target, _)| *target == followed.target));
        for (id, (sources, target, process)) in targets {
            let followed = match self.followed.entry(id) {
                Entry::Occupied(occupied) => occupied.into_mut(),
                Entry::Vacant(vacant) => match sources.recordings.check(id) {
                    Err(unread) => {
                        all.insert(id, unavailable(target.gpu, target.policy, unread.into()));
                        continue;
                    }
                    Ok(()) => match start(sources, process, target) {
                        Some(followed) => vacant.insert(followed),
                        None => continue,
                    },
                },
            };
            followed.restart_failed(id, || start(sources, process, target));
            followed.measure_capacity(process);
            let may_act = directives.get(&id).is_some_and(|directive| directive.mode == Mode::Act);
            let memory = memory.get(&id).filter(|_| !snapshot.source.block_records.is_off);
            if !deferred.contains(&id) {
                followed.send_sample(process, memory, allocation_bytes_max, may_act && sources.probes.is_some());
            }
            all.insert(id, followed.following());
        }
        all
    }

    /// Stops following all processes.
    pub fn clear(&mut self) {
        self.followed.clear();
    }

    /// Carries out commands. Does not wait: they are stores to memory that the processes share.
    pub fn carry_out(&mut self, commands: Vec<PlanCommand>) {
        for PlanCommand { process, publish } in commands {
            if let Some(followed) = self.followed.get_mut(&process) {
                followed.carry_out(process, publish);
            }
        }
    }
}

/// What a process is followed for.
fn target(process: &Process, policy: &'static str, gpu: GpuUuid, snapshot: &Snapshot) -> Result<Target, Unavailable> {
    if gpus(process).nth(1).is_some() {
        return Err(Unavailable::SeveralGpus);
    }
    let gpu_bytes = snapshot.gpus.get(&GpuKey::Known(gpu)).and_then(|gpu| gpu.memory_bytes);
    Ok(Target { policy, gpu, gpu_bytes: gpu_bytes.ok_or(Unavailable::UnknownGpuMemory)? })
}

fn unavailable(gpu: GpuUuid, policy: &'static str, reason: Unavailable) -> Following {
    Following { gpu, policy, state: reason.into(), iteration: None, report: PlanReport::default() }
}

fn gpus(process: &Process) -> impl Iterator<Item = GpuUuid> {
    process.gpus.keys().copied().filter_map(GpuKey::uuid)
}
