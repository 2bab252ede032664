//! One followed process, as the loop that acts sees it.

use std::{
    any::Any,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use actuator::PlanError;
use model::{Counters, Following, FollowingState, GpuKey, Memory, PlanReport, Process, ProcessId, Publication};
use plans::{ClaimLimits, Observation};

use crate::{
    capacity::Capacity,
    follow, lock,
    shared::{Latest, Sample, Shared, Target},
    sources::Sources,
    unavailable::{Failure, Unavailable},
};

/// Age up to which the last iteration counts as the current one: five intervals of reading calls.
const ITERATION_AGE_MAX: Duration = Duration::from_millis(250);
/// Age of the last pass of a follower beyond which its state is reported as unavailable.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(10);
/// Time for which a follower may be throttled before its state is reported as unavailable.
const THROTTLED_MAX: Duration = Duration::from_secs(2);

/// Followed process. Its thread ends some time after this value is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) target: Target,
    shared: Arc<Shared>,
    /// `None` once it has failed.
    thread: Option<JoinHandle<()>>,
    /// Failure of the thread.
    failure: Option<Failure>,
    /// Whether the previous thread has failed.
    is_restarted: bool,
    /// Bytes of the process that the GPU holds.
    capacity: Capacity,
    /// Error of the last command.
    error: Option<PlanError>,
    /// Number of tables that were not published: the thread had replaced or withdrawn them.
    outdated_tables: u64,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(helper_plan) = &mut *lock(&self.shared.helper_plan) {
            helper_plan.withdraw();
        }
    }
}

impl Followed {
    fn new(target: Target, shared: Arc<Shared>, thread: JoinHandle<()>) -> Self {
        let (thread, capacity) = (Some(thread), Capacity::default());
        let (failure, error, is_restarted, outdated_tables) = (None, None, false, 0);
        Self { target, shared, thread, failure, is_restarted, capacity, error, outdated_tables }
    }

    /// Measures the bytes of the process that the GPU holds.
    pub(crate) fn measure_capacity(&mut self, process: &Process) {
        let key = GpuKey::Known(self.target.gpu);
        if let Some(counters) = process.gpus.get(&key) {
            self.capacity.observe(counters, process.residency.get(&key).copied());
        }
    }

    /// Joins the thread if it has failed, and restarts it once: a third follower would fail as the first two did.
    pub(crate) fn restart_failed(&mut self, process: ProcessId, start: impl FnOnce() -> Option<Self>) {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let ended = thread.join();
            let failure = ended.map_or_else(|panic| Failure::Panic(panic_message(panic.as_ref())), |()| Failure::Ended);
            tracing::error!("the follower of process {} failed: {failure}", process.pid);
            self.failure = Some(failure);
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
    pub(crate) fn send_sample(
        &self,
        process: &Process,
        memory: Option<&Memory>,
        allocation_bytes_max: u64,
        may_probe: bool,
    ) {
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
            has_ended: helper_plan.is_published() && (self.error.is_some() || ended.is_some()),
            remote_mappings: process.gpus.values().map(mappings).fold(0, u64::saturating_add),
            idle_returns: returned.map(|block| (block.address, block.idle_returns)).collect(),
            interrupted_absences: interrupted.map(|block| (block.address, block.interrupted_absences)).collect(),
            dropped_records: process.blocks.dropped_records,
        })
    }

    /// Reason why the state of the thread is stale, if it is.
    fn stale_reason(&self, latest: &Latest) -> Option<Unavailable> {
        if let Some(failure) = &self.failure {
            return Some(Unavailable::Failed(failure.clone()));
        }
        let (age, throttled) = (latest.alive_at.elapsed(), latest.throttled_since.map(|at| at.elapsed()));
        if age > HEARTBEAT_AGE_MAX {
            return Some(Unavailable::Hung(age));
        }
        let is_long = throttled.is_some_and(|time| time > THROTTLED_MAX);
        is_long.then_some(Unavailable::Throttled)
    }

    pub(crate) fn following(&self) -> Following {
        let Target { policy, gpu, .. } = self.target;
        let mut report = PlanReport::default();
        if let Some(helper_plan) = &*lock(&self.shared.helper_plan) {
            if helper_plan.is_published() {
                helper_plan.send_heartbeat();
            }
            report = helper_plan.report();
        }
        report.ended = self.error.as_ref().map(ToString::to_string).or(report.ended);
        let latest = lock(&self.shared.latest);
        // The current bytes do not belong to an iteration of some time ago.
        let is_fresh = latest.read_at.is_some_and(|read| read.elapsed() <= ITERATION_AGE_MAX);
        let iteration = latest.iteration.filter(|_| is_fresh);
        let state = self.stale_reason(&latest).map_or_else(|| latest.state.clone(), FollowingState::from);
        Following { gpu, policy, state, iteration, report }
    }

    /// Publishes a table, or withdraws the published one. `id`: the process.
    pub(crate) fn carry_out(&mut self, id: ProcessId, publish: Option<Publication>) {
        self.error = None;
        let mut helper_plan = lock(&self.shared.helper_plan);
        let Some(Publication { version, launches_wait }) = publish else {
            if let Some(helper_plan) = &mut *helper_plan {
                helper_plan.withdraw();
            }
            return;
        };
        let latest = lock(&self.shared.latest);
        let table = latest.table.as_ref().filter(|(latest, _)| *latest == version);
        let (Some(helper_plan), Some((_, table))) = (&mut *helper_plan, table) else {
            // The loop sees the next table, or none, at its next interval.
            self.outdated_tables += 1;
            // A program may cause any number of them.
            if self.outdated_tables.is_power_of_two() {
                tracing::warn!(
                    "{} tables of process {} were outdated before they were published: its iterations change",
                    self.outdated_tables,
                    id.pid
                );
            }
            return;
        };
        self.error = helper_plan.publish(&table.plan(self.target.gpu.0, launches_wait)).err();
    }
}

/// Starts a thread that follows a process.
pub(crate) fn start(sources: &Sources, process: &Process, target: Target) -> Option<Followed> {
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

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU64, time::Instant};

    use model::GpuUuid;
    use sys::fake::until;

    use super::*;

    const TARGET: Target = Target { policy: "auto-plan", gpu: GpuUuid([7; 16]), gpu_bytes: 2 << 20 };
    const PROCESS: ProcessId = ProcessId { pid: 1, start_ticks: 1 };

    #[test]
    fn outdated_tables_are_counted() {
        let mut followed = Followed::new(TARGET, Arc::new(Shared::default()), thread::spawn(|| ()));
        for version in 1..=3 {
            followed.carry_out(PROCESS, Some(Publication { version, launches_wait: false }));
        }
        followed.carry_out(PROCESS, None);
        assert_eq!(followed.outdated_tables, 3);
    }

    #[test]
    fn state_of_a_hung_throttled_or_failed_follower_is_unavailable() {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !of_thread.stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut followed = Followed::new(TARGET, Arc::clone(&shared), thread);
        let now = Instant::now();
        let state = |followed: &Followed, age: Duration, pause: Option<Duration>| {
            let mut latest = lock(&shared.latest);
            latest.alive_at = now.checked_sub(age).unwrap();
            latest.throttled_since = pause.map(|pause| now.checked_sub(pause).unwrap());
            drop(latest);
            followed.following().state
        };
        assert_eq!(state(&followed, Duration::ZERO, None), FollowingState::Watching);
        let FollowingState::Unavailable(reason) = state(&followed, HEARTBEAT_AGE_MAX + Duration::from_secs(1), None)
        else {
            panic!()
        };
        assert!(reason.starts_with("its follower has not reported for 1"), "{reason}");
        let FollowingState::Unavailable(reason) = state(&followed, Duration::ZERO, Some(THROTTLED_MAX * 2)) else {
            panic!()
        };
        assert_eq!(reason, "its user has used up its processor time for following calls");
        shared.stop.store(true, Ordering::Relaxed);
        let failed = FollowingState::Unavailable("its follower failed: its thread has ended".to_owned());
        until("its end", || {
            followed.restart_failed(PROCESS, || None);
            (state(&followed, Duration::ZERO, None) == failed).then_some(())
        });
    }

    #[test]
    fn failed_follower_is_restarted_once() {
        let starts = AtomicU64::new(0);
        let start = || {
            starts.fetch_add(1, Ordering::Relaxed);
            let thread = thread::spawn(|| panic!("no such tensor"));
            Some(Followed::new(TARGET, Arc::new(Shared::default()), thread))
        };
        let mut followed = start().unwrap();
        until("its second failure", || {
            followed.restart_failed(PROCESS, start);
            (followed.is_restarted && followed.failure.is_some()).then_some(())
        });
        followed.restart_failed(PROCESS, start);
        assert_eq!(starts.load(Ordering::Relaxed), 2);
        let FollowingState::Unavailable(reason) = followed.following().state else { panic!() };
        assert_eq!(reason, "its follower failed: no such tensor");
    }
}
