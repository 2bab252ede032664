//! Following of the calls of one process, on a separate thread.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use actuator::HelperPlan;
use call_ring::plan::Destination;
use model::{FollowingState, IterationBegin, LaunchLead, PlannedIteration, ProbeFigures, ProbedIteration, ProcessId};
use plans::{Bytes, Follower, IterationStart, Planned, ProbeCounts, ProbeQuota, Probing, Settings, State};
use recorder::{Memories, NewCalls, Recordings, Unread};
use sys::{Roots, clock, cpu_time};

use crate::{
    filters::Filters,
    lock,
    meter::Meter,
    shared::{Sample, Shared, Target},
    shares::Share,
    sources::Sources,
    unavailable::Unavailable,
};

/// Polling interval of new calls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polling interval of the plan of the helper.
const HELPER_INTERVAL: Duration = Duration::from_secs(1);
/// Calls after which the memory of a follower is counted again.
const CALLS_PER_RESIZE: usize = 64;
/// Processor time of a pass after which it ends, and is charged.
const PASS_MAX: Duration = Duration::from_millis(100);
/// Maximum ranges in the description of a plan.
const RANGES_MAX: usize = 256;

/// State of a follower.
struct Session {
    /// `None` while it is not recorded.
    calls: Option<Calls>,
    tables: Tables,
    /// Memory of its follower.
    share: Share,
    /// Remaining quota of probes. It is not renewed when calls are lost.
    probes: Option<ProbeQuota>,
}

/// Tables of a process that may be published.
#[derive(Default)]
struct Tables {
    /// Number of tables so far.
    versions: u64,
    filters: Filters,
}

impl Tables {
    /// Version of the next table, which may be published as the filters of the process permit.
    fn next(&mut self) -> u64 {
        self.filters.check();
        self.versions += 1;
        self.versions
    }
}

/// Calls of a process, as far as they were followed.
struct Calls {
    follower: Follower,
    /// Number of calls recorded before the next one.
    added: u64,
}

/// Follows a process until its [`Followed`](crate::followed::Followed) is dropped.
pub(crate) fn run(sources: &Sources, process: ProcessId, user: u32, target: Target, shared: &Shared) {
    let share = sources.shares.start(user);
    let probes = sources.probes.map(|probes| probes.quota(target.gpu_bytes));
    let mut session = Session { calls: None, tables: Tables::default(), share, probes };
    let mut looked_up_at: Option<Instant> = None;
    let mut meter = Meter::new(process);
    while !shared.stop.load(Ordering::Relaxed) {
        let begun = cpu_time::of_this_thread();
        if let Some(used) = meter.used() {
            lock(&sources.accounts).credit(user, used);
            sources.planners.credit(user, used);
        }
        if let Err(reason) = session.share.retain(now()) {
            session.calls = None;
            unavailable(shared, reason);
        }
        let is_throttled = lock(&sources.accounts).is_over(user, now());
        mark_alive(shared, is_throttled);
        if is_throttled {
            if let Some(calls) = &mut session.calls {
                calls.follower.pause();
            }
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        if lock(&shared.helper_plan).is_none() && looked_up_at.is_none_or(|at| at.elapsed() >= HELPER_INTERVAL) {
            looked_up_at = Some(Instant::now());
            match helper_plan(&sources.recordings, process) {
                Ok(helper_plan) => {
                    session.tables.filters.set(helper_plan.filter_check());
                    *lock(&shared.helper_plan) = Some(helper_plan);
                }
                Err(reason) => unavailable(shared, reason),
            }
        }
        let has_helper_plan = lock(&shared.helper_plan).is_some();
        // Calls wait for the first counts: without these, no plan can be made.
        let has_counts = session.calls.is_some() || lock(&shared.sample).is_some();
        if has_helper_plan && has_counts {
            follow(sources, process, user, target, shared, &mut session);
        }
        let has_table = lock(&shared.latest).table.is_some();
        if has_table {
            session.tables.filters.check();
        }
        let spent = cpu_time::of_this_thread().saturating_sub(begun);
        lock(&sources.accounts).charge(user, spent, now());
        // The thread takes at most half of a processor.
        thread::sleep(POLL_INTERVAL.max(spent));
    }
}

/// Records that the thread is alive, and whether it is throttled.
fn mark_alive(shared: &Shared, is_throttled: bool) {
    let mut latest = lock(&shared.latest);
    latest.alive_at = Instant::now();
    latest.throttled_since = is_throttled.then(|| latest.throttled_since.unwrap_or(latest.alive_at));
}

fn follow(sources: &Sources, process: ProcessId, user: u32, target: Target, shared: &Shared, session: &mut Session) {
    let Session { calls, tables, share, probes } = session;
    let read_at = Instant::now();
    let mut first_bytes = 0;
    if calls.is_none() {
        if !share.is_due(now()) {
            return;
        }
        // The share is taken before the calls are copied. The program's state counts twice: as it was before the
        // retained calls, and as it is now.
        first_bytes = 2 * sources.recordings.bytes_of(process);
        if let Err(reason) = share.resize(first_bytes, now()) {
            return unavailable(shared, reason);
        }
    }
    let added = calls.as_ref().map(|calls| calls.added);
    let NewCalls { program, calls: new, added } = match sources.recordings.calls_since(process, added) {
        // The followed calls stay valid until calls are lost; then the process is followed anew.
        Err(Unread::Throttled) => {
            let Some(Calls { follower, .. }) = calls else { return unavailable(shared, Unread::Throttled) };
            if follower.poll().is_some() {
                publish_state(shared, process, follower, tables);
            }
            return publish_wait_reason(shared, follower, Some(Unread::Throttled));
        }
        Err(unread) => {
            *calls = None;
            share.end();
            return unavailable(shared, unread);
        }
        Ok(new) => new,
    };
    // Calls were lost before they were read: those after them are followed anew.
    if let Some(program) = program {
        let settings =
            Settings { user, gpu: target.gpu.0, gpu_bytes: target.gpu_bytes, has_fault_counts: true, probes: *probes };
        let follower = Follower::with_program(*program, settings, sources.planners.start(process, user, target.policy));
        *calls = Some(Calls { follower, added });
        shared.publish(FollowingState::Watching, None, None);
    }
    let Some(Calls { follower, added: before }) = calls else { return };
    let sample = lock(&shared.sample).take();
    let observation = sample.map(|Sample { faults, claim_limits, capacity_bytes, observation }| {
        follower.add_fault_counts(faults);
        follower.set_claim_limits(claim_limits);
        follower.set_capacity(capacity_bytes);
        observation
    });
    let mut remaining = new.into_iter();
    let (begun_at, mut spent) = (cpu_time::of_this_thread(), Duration::ZERO);
    while let count @ 1.. = next_calls(remaining.len(), spent) {
        for (at, call) in remaining.by_ref().take(count).enumerate() {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let change = follower.add(call);
            if (change.is_some() || at == 0)
                && let Err(reason) = share.resize(follower.bytes().max(first_bytes), now())
            {
                *calls = None;
                return unavailable(shared, reason);
            }
            if change.is_some() {
                publish_state(shared, process, follower, tables);
            }
        }
        spent = cpu_time::of_this_thread().saturating_sub(begun_at);
    }
    // The remaining calls are read again.
    *before = added.saturating_sub(remaining.len() as u64);
    let is_caught_up = remaining.len() == 0;
    if *follower.state() != State::Watching {
        share.reset_backoff();
    }
    if follower.poll().is_some() {
        publish_state(shared, process, follower, tables);
    }
    publish_wait_reason(shared, follower, None);
    // After the calls, which may move the same memory.
    if let Some(observation) = observation.filter(|_| is_caught_up)
        && follower.observe(observation.as_ref()).is_some()
    {
        publish_state(shared, process, follower, tables);
    }
    *probes = follower.probe_quota();
    let mut latest = lock(&shared.latest);
    latest.iteration = last_iteration(follower);
    if is_caught_up {
        latest.read_at = Some(read_at);
    }
}

/// Number of calls to follow next, in a pass that has taken this long.
fn next_calls(remaining: usize, spent: Duration) -> usize {
    if spent < PASS_MAX { remaining.min(CALLS_PER_RESIZE) } else { 0 }
}

/// The last iteration that has begun.
fn last_iteration(follower: &Follower) -> Option<IterationBegin> {
    follower.iteration().map(|IterationStart { number, at_ns }| IterationBegin { number, at_ns })
}

/// Publishes the state of a follower, which has changed.
fn publish_state(shared: &Shared, process: ProcessId, follower: &Follower, tables: &mut Tables) {
    let iteration = last_iteration(follower);
    match follower.state() {
        State::Watching => shared.publish(FollowingState::Watching, iteration, None),
        State::Planning => shared.publish(FollowingState::Planning(follower.planning_status()), iteration, None),
        State::Refused(refusal) => {
            let reason = match follower.retry_delay() {
                Some(delay) => format!("{refusal}; planned again after {} s", delay.as_secs()),
                None => refusal.to_string(),
            };
            shared.publish(FollowingState::Refused(reason), iteration, None);
        }
        State::Probing(probing) => {
            let Probing { table, duration_ns, counts } = &**probing;
            let was_probing = matches!(lock(&shared.latest).state, FollowingState::Probing(_));
            if !was_probing {
                tracing::info!("probing {1} launches of an iteration of process {0}", process.pid, counts.launches);
            }
            let version = table.is_some().then(|| tables.next());
            let bytes = |destination| table.as_ref().map_or(0, |table| table.bytes(destination));
            let state = ProbedIteration {
                publish: version,
                to_gpu_bytes: bytes(Destination::Gpu),
                to_host_bytes: bytes(Destination::Host),
                duration_ns: *duration_ns,
                figures: probe_figures(*counts),
            };
            let table = version.zip(table.clone());
            shared.publish(FollowingState::Probing(state), iteration, table);
        }
        State::Planned(planned) => {
            if let Some(ProbeCounts { launches, probed, iterations, named_bytes, touched_bytes }) = planned.probe_counts
            {
                tracing::info!(
                    "{probed} of {launches} launches of process {} were probed in {iterations} iterations: they name {named_bytes} bytes, and access at most {touched_bytes} of them",
                    process.pid
                );
                log_evidence(process, follower, planned.first_launch, planned.tokens.len());
            }
            let version = tables.next();
            let state = FollowingState::Planned(planned_iteration(version, planned));
            shared.publish(state, iteration, Some((version, planned.table())));
        }
    }
}

/// Publishes what a follower without a plan waits for. `unread`: the reason why its calls are not read, if
/// any.
fn publish_wait_reason(shared: &Shared, follower: &Follower, unread: Option<Unread>) {
    let state = match (follower.state(), unread) {
        (State::Planning, _) => FollowingState::Planning(follower.planning_status()),
        (State::Watching, Some(unread)) => Unavailable::from(unread).into(),
        (State::Watching, None) => FollowingState::Watching,
        (State::Probing(_) | State::Planned(_) | State::Refused(_), _) => return,
    };
    lock(&shared.latest).state = state;
}

/// Logs what each probed launch accesses, for comparisons.
fn log_evidence(process: ProcessId, follower: &Follower, first_launch: u64, launches: usize) {
    let Some(evidence) = follower.evidence().filter(|_| tracing::enabled!(tracing::Level::DEBUG)) else { return };
    for op in evidence.launches() {
        let (touched, untouched): (Vec<_>, Vec<_>) = (evidence.touched(op).collect(), evidence.untouched(op).collect());
        tracing::debug!(
            "probe of {}: launch {op} of {launches} from {first_launch}: accessed {touched:x?}, not accessed {untouched:x?}",
            process.pid
        );
    }
}

fn unavailable(shared: &Shared, reason: impl Into<Unavailable>) {
    shared.publish(reason.into().into(), None, None);
}

/// Plan of the helper in a process, found with its ring.
fn helper_plan(recordings: &Recordings, process: ProcessId) -> Result<HelperPlan, Unavailable> {
    let Memories { ring, plan } = recordings.memories(process)?;
    let plan = plan.map_err(Unavailable::PlanMemory)?.ok_or(Unavailable::NoPlanMemory)?;
    Ok(HelperPlan::new(Roots::default(), process.pid, ring, plan)?)
}

fn now() -> Duration {
    clock::monotonic()
}

fn planned_iteration(version: u64, planned: &Planned) -> PlannedIteration {
    let Bytes { to_gpu, to_host, faulted, evicted } = planned.traffic.bytes;
    PlannedIteration {
        version,
        planner: planned.planner,
        launches: planned.tokens.len() as u64,
        duration_ns: planned.duration_ns,
        moves: planned.moves.len() as u64,
        to_gpu_bytes: to_gpu,
        to_host_bytes: to_host,
        faulted_bytes: faulted,
        evicted_bytes: evicted,
        faulted_blocks: planned.traffic.faulted_pieces,
        driver_bytes: planned.traffic_without_plan.bytes.total(),
        driver_faulted_blocks: planned.traffic_without_plan.faulted_pieces,
        peak_bytes: planned.peak_bytes,
        room_bytes: planned.room_bytes,
        lead: LaunchLead::of(&planned.leads),
        coverage_percent: planned.coverage_percent(),
        probes: planned.probe_counts.map(probe_figures),
        ranges: ranges(planned),
    }
}

const fn probe_figures(counts: ProbeCounts) -> ProbeFigures {
    let ProbeCounts { launches, probed, iterations, named_bytes, touched_bytes } = counts;
    ProbeFigures { launches, probed, iterations, named_bytes, touched_bytes }
}

/// Ranges of the moved memory. If there are too many, gaps between them are included.
fn ranges(planned: &Planned) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> =
        planned.moves.iter().map(|step| (step.begin, step.begin.saturating_add(step.bytes))).collect();
    ranges.sort_unstable();
    let mut gap_bytes = 0_u64;
    loop {
        ranges = joined(&ranges, gap_bytes);
        if ranges.len() <= RANGES_MAX {
            return ranges;
        }
        gap_bytes = gap_bytes.saturating_mul(2).max(2 << 20);
    }
}

/// Ranges by address, joined across gaps of no more than this.
fn joined(ranges: &[(u64, u64)], gap_bytes: u64) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(begin, end) in ranges {
        match joined.last_mut() {
            Some((_, last)) if begin <= last.saturating_add(gap_bytes) => *last = end.max(*last),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_process_has_the_reason_why_calls_are_not_read() {
        let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 1 << 30, has_fault_counts: true, probes: None };
        let (shared, follower) = (Shared::default(), Follower::new(settings, Vec::new()));
        let state = |unread: Option<Unread>| {
            publish_wait_reason(&shared, &follower, unread);
            lock(&shared.latest).state.clone()
        };
        assert_eq!(state(Some(Unread::Ended)), FollowingState::Unavailable("its recording has ended".to_owned()));
        assert_eq!(state(None), FollowingState::Watching);
    }

    #[test]
    fn long_pass_leaves_calls_to_the_next_one() {
        // Each call takes a millisecond.
        let follow = |mut remaining: usize| {
            let mut spent = Duration::ZERO;
            while let count @ 1.. = next_calls(remaining, spent) {
                remaining -= count;
                spent += Duration::from_millis(1) * u32::try_from(count).unwrap();
            }
            remaining
        };
        assert_eq!([follow(150), follow(22)], [22, 0]);
    }

    #[test]
    fn many_ranges_are_joined() {
        let ranges: Vec<(u64, u64)> = (0..4096).map(|at| (at * (10 << 20), at * (10 << 20) + 4096)).collect();
        assert_eq!(joined(&ranges, 0).len(), 4096);
        assert_eq!(joined(&ranges, 10 << 20).len(), 1);
        assert_eq!(joined(&[(0, 10), (5, 7), (10, 20), (30, 40)], 0), [(0, 20), (30, 40)]);
    }
}
