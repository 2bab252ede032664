//! Plans of moves at launches, for programs with the helper in them whose directive names a plan policy.
//!
//! Each such process whose calls are recorded has a thread, [`follow`], which follows them: the quotas of
//! recordings therefore apply to plans, too. [`planning`] makes plans in separate processes. Memory and
//! processor time for both are limited per user. The loop that acts reads the resulting state, and publishes
//! a plan to the helper in the process, or none. It also sends the helper's heartbeat: if the loop hangs,
//! programs run without their plans.

mod backoff;
mod capacity;
mod filters;
mod follow;
mod meter;
mod planning;
mod shares;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use actuator::{HelperPlan, headroom};
use capacity::Capacity;
use model::{
    ActuatorChoice, ActuatorKind, Counters, Directive, Following, FollowingState, GpuKey, GpuUuid, IterationBegin,
    Memory, Mode, PlanCommand, PlanReport, Process, ProcessId, Publication, Snapshot, policy::of_plans,
};
use planning::PLANNERS_CREDIT_PART;
pub(crate) use planning::{Planners, run_if_planner};
use plans::{ClaimLimits, FaultCounts, Observation, ProbeQuota, Table};
use recorder::{READING_CREDIT_PART, SEARCHES_CREDIT_PART};
use shares::Shares;
use sys::{
    Roots,
    cpu_budget::{Accounts, Allowance},
};

use crate::recording::Recorder;

/// Maximum interval of the loop: a helper needs a beat each 5 s, and blocks of a trial last 4 s.
const INTERVAL_MAX: Duration = Duration::from_millis(500);
/// Maximum starts of probing while a process is followed: a program may change its iterations without end.
const PROBE_STARTS_MAX: u32 = 4;
/// Age up to which the last iteration counts as the current one: five intervals of reading calls.
const ITERATION_AGE_MAX: Duration = Duration::from_millis(250);
/// Age of the last pass of a follower beyond which its state is reported as unavailable.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(10);
/// Time for which a follower may be throttled before its state is reported as unavailable.
const THROTTLED_MAX: Duration = Duration::from_secs(2);
/// Processor time of followers for a user, planners excluded.
const FOLLOWING_ALLOWANCE: Allowance =
    Allowance { part: 50, burst: Duration::from_millis(500), credit_part: Some(FOLLOWING_CREDIT_PART) };
/// Share of a process's own processor time that its user's followers may use in addition: 1 / this.
const FOLLOWING_CREDIT_PART: u32 = 40;
/// Maximum share of a process's own processor time for all work on its calls together: 1 / this.
const CREDITS_PART: u32 = 10;
const _: () = {
    let parts = [READING_CREDIT_PART, SEARCHES_CREDIT_PART, FOLLOWING_CREDIT_PART, PLANNERS_CREDIT_PART];
    let [reading, searches, following, planners] = parts;
    let all = reading * searches * following * planners;
    assert!(all / reading + all / searches + all / following + all / planners <= all / CREDITS_PART);
};

/// Followers of all processes, used by the loop that acts.
pub(crate) struct Followers {
    sources: Sources,
    /// Reason why no plan may be carried out.
    disabled: Option<&'static str>,
    /// Memory of the node; if unknown, the maximum.
    node_bytes: u64,
    followed: BTreeMap<ProcessId, Followed>,
}

/// Sources of calls and plans for all followers, and their limits.
#[derive(Clone)]
struct Sources {
    recorder: Recorder,
    planners: Planners,
    /// Processor time of followers.
    accounts: Arc<Mutex<Accounts>>,
    /// Memory of followers.
    shares: Shares,
    probes: Probes,
}

/// Permitted probes of launches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probes {
    /// Whether probes are permitted.
    pub(crate) is_enabled: bool,
    /// Maximum bytes that they move in an iteration; a quarter of the GPU's memory by default.
    pub(crate) bytes: Option<u64>,
}

impl Probes {
    fn quota_of(self, gpu_bytes: u64) -> Option<ProbeQuota> {
        let iteration_bytes = self.bytes.unwrap_or(gpu_bytes / 4).min(gpu_bytes);
        self.is_enabled.then_some(ProbeQuota { iteration_bytes, starts: PROBE_STARTS_MAX })
    }
}

/// Policy and GPU for which a process is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    policy: &'static str,
    gpu: GpuUuid,
    gpu_bytes: u64,
}

/// Followed process. Its thread ends some time after this value is dropped.
#[derive(Debug)]
struct Followed {
    target: Target,
    shared: Arc<Shared>,
    /// `None` once it has failed.
    thread: Option<JoinHandle<()>>,
    /// Reason why the thread has failed.
    failure: Option<String>,
    /// Whether the previous thread has failed.
    is_restarted: bool,
    /// Bytes of the process that the GPU holds.
    capacity: Capacity,
    /// Error of the last command.
    error: Option<String>,
}

/// State shared by the thread and the loop.
#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    latest: Mutex<Latest>,
    /// Counts that the thread has not taken yet.
    sample: Mutex<Option<Sample>>,
    /// Plan of the helper in the process, once it is found.
    helper_plan: Mutex<Option<HelperPlan>>,
}

/// Counts of uvmd's probes, as input of a plan.
#[derive(Debug)]
struct Sample {
    /// GPU faults of the process by VA block; `None` if they are not counted.
    faults: Option<FaultCounts>,
    /// Limits of the memory that its calls may claim.
    claim_limits: ClaimLimits,
    /// Managed bytes of the process that the GPU holds, if known.
    capacity_bytes: Option<u64>,
    /// Observation by which probes of launches are judged; `None` if probes are not permitted.
    observation: Option<Observation>,
}

#[derive(Debug)]
struct Latest {
    state: FollowingState,
    iteration: Option<IterationBegin>,
    /// Time at which the calls for this state were read.
    read_at: Option<Instant>,
    /// Time of the thread's last turn.
    beat_at: Instant,
    /// Begin of the current throttling, if any.
    throttled_since: Option<Instant>,
    /// Plan or table of a probe, with its version.
    table: Option<(u64, Table)>,
}

impl Default for Shared {
    fn default() -> Self {
        let latest = Latest {
            state: FollowingState::Watching,
            iteration: None,
            read_at: None,
            beat_at: Instant::now(),
            throttled_since: None,
            table: None,
        };
        let (latest, sample, helper_plan) = (Mutex::new(latest), Mutex::new(None), Mutex::new(None));
        Self { stop: AtomicBool::new(false), latest, sample, helper_plan }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(helper_plan) = &mut *lock(&self.shared.helper_plan) {
            helper_plan.withdraw();
        }
    }
}

impl Followers {
    pub(crate) fn new(
        recorder: Recorder,
        actuator: ActuatorChoice,
        planners: Planners,
        probes: Probes,
        interval: Duration,
    ) -> Self {
        let disabled = if interval > INTERVAL_MAX {
            Some(
                "policy.interval is more than 500 ms, the limit for plans: each interval measures a plan and sends a heartbeat to its helper",
            )
        } else if actuator == ActuatorChoice::Only(ActuatorKind::Ioctl) {
            Some("policy.actuator is \"ioctl\", and only the helper carries out plans")
        } else if !recorder.is_enabled() {
            Some("recordings are not enabled (recordings.enabled)")
        } else {
            None
        };
        let accounts = Arc::new(Mutex::new(Accounts::new(FOLLOWING_ALLOWANCE)));
        let shares = Shares::default();
        let sources = Sources { recorder, planners, accounts, shares, probes };
        let node_bytes = headroom::node_bytes(&Roots::default()).unwrap_or(u64::MAX);
        Self { sources, disabled, node_bytes, followed: BTreeMap::new() }
    }

    /// Follows the processes whose directive names a plan policy, and no others. `deferred`: processes whose
    /// memory is that of an earlier interval, and was delivered then.
    pub(crate) fn follow(
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
            match self.target(process, policy.name, gpu, snapshot) {
                Ok(target) => drop(targets.insert(process.id, (target, process))),
                Err(reason) => drop(all.insert(process.id, unavailable(gpu, policy.name, reason.to_owned()))),
            }
        }
        self.followed.retain(|id, followed| targets.get(id).is_some_and(|(target, _)| *target == followed.target));
        for (id, (target, process)) in targets {
            let followed = match self.followed.entry(id) {
                Entry::Occupied(occupied) => occupied.into_mut(),
                Entry::Vacant(vacant) => match self.sources.recorder.is_recorded(id) {
                    Err(reason) => {
                        all.insert(id, unavailable(target.gpu, target.policy, reason));
                        continue;
                    }
                    Ok(()) => match start(&self.sources, process, target) {
                        Some(followed) => vacant.insert(followed),
                        None => continue,
                    },
                },
            };
            followed.restart_failed(id, || start(&self.sources, process, target));
            followed.measure_capacity(process);
            let may_act = directives.get(&id).is_some_and(|directive| directive.mode == Mode::Act);
            let memory = memory.get(&id).filter(|_| !snapshot.source.block_records.is_off);
            if !deferred.contains(&id) {
                followed.send_sample(process, memory, allocation_bytes_max, may_act && self.sources.probes.is_enabled);
            }
            all.insert(id, followed.following());
        }
        all
    }

    /// Stops following all processes.
    pub(crate) fn clear(&mut self) {
        self.followed.clear();
    }

    fn target(
        &self,
        process: &Process,
        policy: &'static str,
        gpu: GpuUuid,
        snapshot: &Snapshot,
    ) -> Result<Target, &'static str> {
        if let Some(reason) = self.disabled {
            return Err(reason);
        }
        if gpus(process).nth(1).is_some() {
            return Err("the process uses several GPUs, and a plan is for one GPU");
        }
        let gpu_bytes = snapshot.gpus.get(&GpuKey::Known(gpu)).and_then(|gpu| gpu.memory_bytes);
        Ok(Target { policy, gpu, gpu_bytes: gpu_bytes.ok_or("the GPU's memory size is unknown")? })
    }

    /// Carries out commands. Does not wait: they are stores to memory that the processes share.
    pub(crate) fn carry_out(&mut self, commands: Vec<PlanCommand>) {
        for PlanCommand { process, publish } in commands {
            if let Some(followed) = self.followed.get_mut(&process) {
                followed.carry_out(publish);
            }
        }
    }
}

impl Followed {
    fn new(target: Target, shared: Arc<Shared>, thread: JoinHandle<()>) -> Self {
        let (thread, capacity) = (Some(thread), Capacity::default());
        Self { target, shared, thread, failure: None, is_restarted: false, capacity, error: None }
    }

    /// Measures the bytes of the process that the GPU holds.
    fn measure_capacity(&mut self, process: &Process) {
        let key = GpuKey::Known(self.target.gpu);
        if let Some(counters) = process.gpus.get(&key) {
            self.capacity.observe(counters, process.residency.get(&key).copied());
        }
    }

    /// Joins the thread if it has failed, and restarts it once: a third follower would fail as the first two did.
    fn restart_failed(&mut self, process: ProcessId, start: impl FnOnce() -> Option<Self>) {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let reason = thread
                .join()
                .map_or_else(|panic| panic_message(panic.as_ref()), |()| "its thread has ended".to_owned());
            tracing::error!("the follower of process {} failed: {reason}", process.pid);
            self.failure = Some(reason);
        }
        if self.failure.is_some()
            && !self.is_restarted
            && let Some(next) = start()
        {
            *self = next;
            self.is_restarted = true;
        }
    }

    /// Passes counts of the process to the thread, which needs them until there is a plan, except while it
    /// pauses.
    fn send_sample(&self, process: &Process, memory: Option<&Memory>, allocation_bytes_max: u64, may_probe: bool) {
        let needs_no_sample = |state: &FollowingState| {
            matches!(state, FollowingState::Planning(_) | FollowingState::Refused(_) | FollowingState::Planned(_))
        };
        let needs_sample = {
            let latest = lock(&self.shared.latest);
            self.failure.is_none() && latest.throttled_since.is_none() && !needs_no_sample(&latest.state)
        };
        if !needs_sample {
            return;
        }
        let counts = |memory: &Memory| {
            let faulted = memory.blocks.iter().filter(|block| block.fault_entries > 0);
            faulted.map(|block| (block.address, block.fault_entries)).collect()
        };
        let observation = memory.filter(|_| may_probe).and_then(|memory| self.observation(process, memory));
        // Mappings by /proc, and blocks since. If /proc was not read, no claim is rejected.
        let known = memory.filter(|_| process.managed_bytes.is_some());
        let mapped = known.map(|memory| {
            let mapped = memory.ranges.iter().filter(|range| range.mapped);
            mapped.map(|range| range.begin..range.end).collect()
        });
        let claim_limits = ClaimLimits { allocation_bytes_max, mapped };
        let (faults, capacity_bytes) = (memory.map(counts), self.capacity.bytes());
        *lock(&self.shared.sample) = Some(Sample { faults, claim_limits, capacity_bytes, observation });
    }

    /// Observation by which probes are judged; `None` until the plan of the helper is found.
    fn observation(&self, process: &Process, memory: &Memory) -> Option<Observation> {
        let helper_plan = lock(&self.shared.helper_plan);
        let helper_plan = helper_plan.as_ref()?;
        let PlanReport { ended, counters } = helper_plan.report();
        let mappings = |counters: &Counters| counters.remote_mappings.total();
        let returned = memory.blocks.iter().filter(|block| block.idle_returns > 0);
        let interrupted = memory.blocks.iter().filter(|block| block.interrupted_absences > 0);
        Some(Observation {
            iterations: counters.iterations,
            moves: counters.moves,
            late: counters.late,
            skipped: counters.skipped,
            has_ended: helper_plan.is_published() && self.error.clone().or(ended).is_some(),
            remote_mappings: process.gpus.values().map(mappings).fold(0, u64::saturating_add),
            idle_returns: returned.map(|block| (block.address, block.idle_returns)).collect(),
            interrupted_absences: interrupted.map(|block| (block.address, block.interrupted_absences)).collect(),
            dropped_records: process.blocks.dropped_records,
        })
    }

    /// Reason why the state of the thread is stale, if it is.
    fn stale_reason(&self, latest: &Latest) -> Option<String> {
        if let Some(reason) = &self.failure {
            return Some(format!("its follower failed: {reason}"));
        }
        let (age, throttled) = (latest.beat_at.elapsed(), latest.throttled_since.map(|at| at.elapsed()));
        if age > HEARTBEAT_AGE_MAX {
            return Some(format!("its follower has not reported for {} s", age.as_secs()));
        }
        let is_long = throttled.is_some_and(|time| time > THROTTLED_MAX);
        is_long.then(|| "its user has used up its processor time for following calls".to_owned())
    }

    fn following(&self) -> Following {
        let Target { policy, gpu, .. } = self.target;
        let mut report = PlanReport::default();
        if let Some(helper_plan) = &*lock(&self.shared.helper_plan) {
            if helper_plan.is_published() {
                helper_plan.beat();
            }
            report = helper_plan.report();
        }
        report.ended = self.error.clone().or(report.ended);
        let latest = lock(&self.shared.latest);
        // The current bytes do not belong to an iteration of some time ago.
        let is_fresh = latest.read_at.is_some_and(|read| read.elapsed() <= ITERATION_AGE_MAX);
        let iteration = latest.iteration.filter(|_| is_fresh);
        let state = self.stale_reason(&latest).map_or_else(|| latest.state.clone(), FollowingState::Unavailable);
        Following { gpu, policy, state, iteration, report }
    }

    fn carry_out(&mut self, publish: Option<Publication>) {
        self.error = None;
        let mut helper_plan = lock(&self.shared.helper_plan);
        let Some(helper_plan) = &mut *helper_plan else { return };
        let Some(Publication { version, launches_wait }) = publish else { return helper_plan.withdraw() };
        let latest = lock(&self.shared.latest);
        let table = latest.table.as_ref().filter(|(latest, _)| *latest == version);
        // The plan has been replaced: the loop sees that at the next interval.
        let Some((_, table)) = table else { return };
        let published = helper_plan.publish(&table.plan(self.target.gpu.0, launches_wait));
        self.error = published.err().map(|error| error.to_string());
    }
}

/// Starts a thread that follows a process.
fn start(sources: &Sources, process: &Process, target: Target) -> Option<Followed> {
    let shared = Arc::new(Shared::default());
    let (sources, of_thread, id, user) = (sources.clone(), Arc::clone(&shared), process.id, process.uid);
    let follow = move || follow::run(&sources, id, user, target, &of_thread);
    match thread::Builder::new().name("follower".to_owned()).spawn(follow) {
        Ok(thread) => Some(Followed::new(target, shared, thread)),
        Err(error) => {
            tracing::warn!("cannot start a follower of process {}: {error}", id.pid);
            None
        }
    }
}

/// Message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

fn unavailable(gpu: GpuUuid, policy: &'static str, reason: String) -> Following {
    let (state, report) = (FollowingState::Unavailable(reason), PlanReport::default());
    Following { gpu, policy, state, iteration: None, report }
}

fn gpus(process: &Process) -> impl Iterator<Item = GpuUuid> {
    process.gpus.keys().copied().filter_map(GpuKey::uuid)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
