//! Follower of a process: detects iterations in its calls, and plans for them.

use std::time::Duration;

use call_ring::{Token, call::Call, plan::Move};
use recorder::Program;
use trace::{detect, footprints::Coverage};

use crate::{
    claims::ClaimLimits,
    coverage::{FaultCounts, Faults},
    methods::{GpuMemory, Outline, Workload},
    pieces::Pieces,
    planning::{self, Answer, BestOutline, Outliner},
    probe::{Evidence, Observation, Probe, ProbeCounts},
    refusal::Refusal,
    sequence::{Periodicity, Sequence, Work},
    table::Table,
    traffic::Traffic,
    turns::TURNS,
};

/// Number of iterations whose calls are retained after confirmation: two complete ones before the
/// current one, and one for launches without known numbers.
const RETAINED_ITERATIONS: u64 = 3;

/// Settings of a follower.
#[derive(Clone, Debug)]
pub struct Settings {
    /// User of the process. Users take turns at analysing iterations, which takes memory.
    pub user: u32,
    /// UUID of the GPU.
    pub gpu: [u8; 16],
    /// GPU memory that the process may use.
    pub gpu_bytes: u64,
    /// Whether [fault counts are added](Follower::add_fault_counts). A plan then waits until its
    /// coverage is known.
    pub has_fault_counts: bool,
    /// Quota of [probes](crate::probe); `None` disables them.
    pub probes: Option<ProbeQuota>,
}

/// Quota of [probes](crate::probe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeQuota {
    /// Maximum bytes moved in an iteration, both directions together.
    pub iteration_bytes: u64,
    /// Maximum number of starts of probing: it restarts when the iteration changes.
    pub starts: u32,
}

/// Plan with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Name of the planner or other method.
    pub planner: &'static str,
    /// Number of a launch that begins an iteration.
    pub first_launch: u64,
    /// Duration of the iteration that the plan was computed from.
    pub duration_ns: u64,
    /// Token of each launch of an iteration.
    pub tokens: Vec<Token>,
    /// Moves, ordered by the launches after which they begin.
    pub moves: Vec<Move>,
    /// Traffic of an iteration with the plan, by the model of the driver.
    pub traffic: Traffic,
    /// Traffic of an iteration without the plan, by the same model.
    pub traffic_without_plan: Traffic,
    /// Maximum lead of each launch over the GPU: number of launches since the program last waited
    /// for the GPU. Empty if an iteration has no wait.
    pub leads: Vec<u64>,
    /// Peak bytes on the GPU that the plan relies on.
    pub peak_bytes: u64,
    /// GPU bytes that the plan may use.
    pub room_bytes: u64,
    /// Coverage of the memory with GPU faults by the memory that arguments name, if faults are
    /// counted.
    pub coverage: Option<Coverage>,
    /// Counts of the probes, if any were made.
    pub probe_counts: Option<ProbeCounts>,
}

impl Planned {
    /// Percentage of VA blocks with GPU faults that arguments name; `None` if there were no faults,
    /// or they are not counted.
    #[must_use]
    pub fn coverage_percent(&self) -> Option<u64> {
        self.coverage.map(|coverage| percent(coverage.recall()))
    }

    fn heap_bytes(&self) -> usize {
        let Self { tokens, moves, leads, .. } = self;
        let launches = tokens.capacity() * size_of::<Token>() + leads.capacity() * size_of::<u64>();
        launches + moves.capacity() * size_of::<Move>()
    }

    /// Table of the plan, as a helper follows it.
    #[must_use]
    pub fn table(&self) -> Table {
        let Self { first_launch, tokens, moves, .. } = self;
        Table { first_launch: *first_launch, tokens: tokens.clone(), moves: moves.clone() }
    }
}

/// Probes in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Table to follow now, if any.
    pub table: Option<Table>,
    /// Duration of the probed iteration.
    pub duration_ns: u64,
    /// Counts so far.
    pub counts: ProbeCounts,
}

/// State of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No iteration is confirmed.
    Watching,
    /// Probes determine what launches access, before a plan is computed.
    Probing(Box<Probing>),
    /// Planners are computing.
    Planning,
    /// A plan is available.
    Planned(Box<Planned>),
    /// No plan for the confirmed iteration.
    Refused(Refusal),
}

/// Change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The probe's table to follow has changed, or is withdrawn.
    Probing,
    /// Planners have begun to compute.
    Planning,
    /// A plan is available.
    Planned,
    /// No plan for the iteration.
    Refused,
    /// The program has drifted: the plan or the refusal no longer applies.
    Drifted,
}

/// Start of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationStart {
    /// Number of the iteration since iterations became known, confirmed or not.
    pub number: u64,
    /// Time of its first launch.
    pub at_ns: u64,
}

/// Plan without moves: planners are computing them.
struct PendingPlan {
    first_launch: u64,
    duration_ns: u64,
    tokens: Vec<Token>,
    leads: Vec<u64>,
    room_bytes: u64,
    unmapped_bytes: u64,
    coverage: Option<Coverage>,
    probe_counts: Option<ProbeCounts>,
    /// Heap bytes of the workload, which planners hold until they answer.
    workload_bytes: usize,
}

/// Follows the calls of a process.
pub struct Follower {
    settings: Settings,
    outliner: Box<dyn Outliner>,
    /// Plan whose moves planners are computing.
    pending_plan: Option<Box<PendingPlan>>,
    /// Whether the state is a refusal by planners, which may be retried.
    is_planner_refusal: bool,
    sequence: Sequence,
    faults: Faults,
    claim_limits: ClaimLimits,
    capacity_bytes: Option<u64>,
    state: State,
    periodicity: Option<Periodicity>,
    iteration: Option<IterationStart>,
    /// Whether probes are permitted now.
    may_probe: bool,
    probe: Option<Box<Probe>>,
    /// Results of probes for the known iterations; empty if there was nothing to probe.
    evidence: Option<Evidence>,
}

impl Follower {
    /// Follower of a process from its first call on. `outliner` runs the planners.
    #[must_use]
    pub fn new(settings: Settings, outliner: impl Outliner + 'static) -> Self {
        Self::with_program(Program::default(), settings, Box::new(outliner))
    }

    /// Follower of a process from a later call on. `program`: state that earlier calls have left.
    #[must_use]
    pub fn with_program(program: Program, settings: Settings, outliner: Box<dyn Outliner>) -> Self {
        let (sequence, faults) = (Sequence::with_program(program), Faults::new(settings.has_fault_counts));
        Self {
            settings,
            outliner,
            pending_plan: None,
            is_planner_refusal: false,
            sequence,
            faults,
            claim_limits: ClaimLimits::default(),
            capacity_bytes: None,
            state: State::Watching,
            periodicity: None,
            iteration: None,
            may_probe: false,
            probe: None,
            evidence: None,
        }
    }

    /// Current state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Heap bytes held between calls, estimated from counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let state = match &self.state {
            State::Watching | State::Planning | State::Refused(_) => 0,
            State::Probing(probing) => probing.table.as_ref().map_or(0, Table::heap_bytes),
            State::Planned(planned) => planned.heap_bytes(),
        };
        let pending_plan = self.pending_plan.as_ref().map_or(0, |pending_plan| pending_plan.heap_bytes());
        let probe = self.probe.as_ref().map_or(0, |probe| probe.heap_bytes());
        let evidence = self.evidence.as_ref().map_or(0, Evidence::heap_bytes);
        let counts = self.faults.heap_bytes() + self.claim_limits.heap_bytes();
        self.sequence.heap_bytes() + counts + state + pending_plan + probe + evidence
    }

    /// The plan, if available.
    #[must_use]
    pub const fn planned(&self) -> Option<&Planned> {
        match &self.state {
            State::Planned(planned) => Some(&**planned),
            State::Watching | State::Probing(_) | State::Planning | State::Refused(_) => None,
        }
    }

    /// Results of probes for the known iterations.
    #[must_use]
    pub fn evidence(&self) -> Option<Evidence> {
        self.evidence.clone().or_else(|| self.probe.as_ref().map(|probe| probe.evidence()))
    }

    /// Remaining quota of probes.
    #[must_use]
    pub const fn probe_quota(&self) -> Option<ProbeQuota> {
        self.settings.probes
    }

    /// Last iteration that has begun; `None` while iterations are not known.
    #[must_use]
    pub const fn iteration(&self) -> Option<IterationStart> {
        self.iteration
    }

    /// Adds the cumulative GPU faults of the process; `None` if they are not counted by VA block.
    pub fn add_fault_counts(&mut self, faults: Option<FaultCounts>) {
        self.faults.add_sample(faults);
    }

    /// Sets the limits on the memory that the program claims.
    pub fn set_claim_limits(&mut self, limits: ClaimLimits) {
        self.claim_limits = limits;
    }

    /// Sets the capacity: managed bytes of the process on the GPU while the driver evicts. A plan
    /// may use their frames. `None`, the initial value, if unknown.
    pub const fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity_bytes = bytes;
    }

    /// Adds the current counts of the process and of the probe's table; `None` if probes are not
    /// permitted, which ends probes in progress.
    pub fn observe(&mut self, observed: Option<&Observation>) -> Option<Change> {
        self.may_probe = observed.is_some();
        let iteration = self.iteration_number().unwrap_or(0);
        let probe = self.probe.as_mut()?;
        let has_changed = match observed {
            Some(observed) => probe.add_sample(observed, iteration),
            None => probe.end(),
        };
        if let State::Probing(probing) = &mut self.state
            && has_changed
        {
            (probing.table, probing.counts) = (probe.table().cloned(), probe.counts());
        }
        has_changed.then_some(Change::Probing)
    }

    /// Adds the next call. The caller forwards a change of the state to the helper, for example a
    /// new or withdrawn plan.
    pub fn add(&mut self, call: Call) -> Option<Change> {
        let (is_launch, time_ns) = (call.token().is_some(), call.stamp.time_ns);
        if let Some(probe) = &mut self.probe
            && call.action.is_placement()
        {
            probe.invalidate();
        }
        self.sequence.add(call);
        let change = self.advance(is_launch);
        let number = self.iteration_number();
        if number != self.iteration.map(|iteration| iteration.number) {
            self.iteration = number.map(|number| IterationStart { number, at_ns: time_ns });
            if let Some(periodicity) = self.periodicity.filter(|_| self.state != State::Watching) {
                self.sequence.shorten(periodicity, RETAINED_ITERATIONS);
            }
        }
        change
    }

    /// Number of the current iteration; `None` until iterations are known.
    fn iteration_number(&self) -> Option<u64> {
        let Periodicity { first_launch, period } = self.periodicity?;
        Some(self.sequence.last()?.checked_sub(first_launch)? / period)
    }

    fn advance(&mut self, is_launch: bool) -> Option<Change> {
        let Some(lock) = self.sequence.state().lock() else {
            self.periodicity = None;
            self.faults.restart();
            (self.probe, self.evidence) = (None, None);
            if self.pending_plan.take().is_some() {
                self.outliner.cancel();
            }
            let previous = std::mem::replace(&mut self.state, State::Watching);
            return (previous != State::Watching).then_some(Change::Drifted);
        };
        match &self.state {
            _ if !is_launch => return None,
            State::Watching => {}
            State::Probing(_) if self.probe.as_ref().is_none_or(|probe| probe.is_finished()) => {}
            State::Refused(_) if self.is_planner_refusal && self.outliner.is_retry_due() => {}
            State::Probing(_) | State::Planning | State::Planned(_) | State::Refused(_) => return None,
        }
        let is_confirmed = matches!(self.sequence.state(), detect::State::Locked(_));
        if self.periodicity.is_none() {
            match self.sequence.periodicity(&lock) {
                Ok(periodicity) => {
                    self.periodicity = periodicity;
                    self.faults.restart();
                }
                Err(refusal) if is_confirmed => return Some(self.refuse(refusal)),
                Err(_) => {}
            }
        }
        let periodicity = self.periodicity.filter(|_| is_confirmed)?;
        if !self.faults.is_complete() {
            return None;
        }
        // Only at the start of an iteration.
        if !self.sequence.last()?.checked_sub(periodicity.first_launch)?.is_multiple_of(periodicity.period) {
            return None;
        }
        if lock.shapes_vary {
            return Some(self.refuse(Refusal::ShapesVary));
        }
        if let Some(probe) = self.probe.take() {
            self.evidence = Some(probe.evidence());
        }
        let turn = TURNS.acquire(self.settings.user);
        let known = self.faults.check();
        let work = match known.and_then(|()| self.sequence.work(periodicity, &self.claim_limits)) {
            Ok(work) => work?,
            Err(refusal) => return Some(self.refuse(refusal)),
        };
        // Before any other computation on the workload.
        if let Err(refusal) = planning::check_size(&work.pieces) {
            return Some(self.refuse(refusal));
        }
        if let Some(probe) = self.new_probe(&work) {
            let duration_ns = work.durations_ns.iter().copied().fold(0, u64::saturating_add);
            let counts = probe.counts();
            if let Some(quota) = &mut self.settings.probes {
                quota.starts = quota.starts.saturating_sub(1);
            }
            self.probe = Some(Box::new(probe));
            self.state = State::Probing(Box::new(Probing { table: None, duration_ns, counts }));
            return Some(Change::Probing);
        }
        let unmapped_bytes = work.unmapped_bytes;
        let (workload, pending_plan) = match self.prepare(work) {
            Ok(prepared) => prepared,
            Err(refusal) => return Some(self.refuse(refusal.with_unmapped(unmapped_bytes))),
        };
        drop(turn);
        self.is_planner_refusal = false;
        self.state = State::Planning;
        if let Some(answer) = self.outliner.start(workload) {
            return Some(self.finish_planning(pending_plan, answer));
        }
        self.pending_plan = Some(Box::new(pending_plan));
        Some(Change::Planning)
    }

    /// Status of planners while they plan.
    #[must_use]
    pub fn planning_status(&self) -> &'static str {
        self.outliner.status()
    }

    /// Delay after a refusal. The iteration is planned again at the first start of an iteration
    /// after it. `None` if the refusal is final.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        self.outliner.retry_delay().filter(|_| self.is_planner_refusal)
    }

    /// Leaves the planners' queue until the next call or [`Self::poll`].
    pub fn pause(&mut self) {
        self.outliner.pause();
    }

    /// Takes the answer of planners, if ready.
    pub fn poll(&mut self) -> Option<Change> {
        self.pending_plan.as_ref()?;
        let answer = self.outliner.poll()?;
        let pending_plan = self.pending_plan.take()?;
        Some(self.finish_planning(*pending_plan, answer))
    }

    /// Probes of an iteration; `None` if they were made, are not permitted, or cannot change the
    /// plan.
    fn new_probe(&self, work: &Work) -> Option<Probe> {
        let quota = self.settings.probes.filter(|quota| quota.starts > 0)?;
        if !self.may_probe || self.evidence.is_some() {
            return None;
        }
        let is_covered = self.faults.coverage(&work.pieces).is_none_or(|coverage| coverage.suffices());
        if !is_covered || self.workload(work.pieces.clone(), Vec::new(), Vec::new()).fits() {
            return None;
        }
        Probe::new(work, quota.iteration_bytes)
    }

    fn refuse(&mut self, refusal: Refusal) -> Change {
        (self.pending_plan, self.is_planner_refusal) = (None, false);
        self.state = State::Refused(refusal);
        Change::Refused
    }

    /// Workload for planners, and the plan that their answer completes.
    fn prepare(&self, work: Work) -> Result<(Workload, PendingPlan), Refusal> {
        let coverage = self.faults.coverage(&work.pieces);
        if let Some(coverage) = coverage.filter(|coverage| !coverage.suffices()) {
            return Err(Refusal::CoverageTooLow { percent: percent(coverage.recall()) });
        }
        let evidence = self.evidence.as_ref().filter(|evidence| evidence.matches(&work.tokens));
        let probe_counts = evidence.map(Evidence::counts).filter(|counts| counts.probed > 0);
        let Work { first_launch, tokens, durations_ns, queue_starts, pieces, unmapped_bytes, .. } = work;
        let pieces = match evidence {
            Some(evidence) => evidence.reduced(pieces, &self.faults.faulted()),
            None => pieces,
        };
        let leads = leads(&queue_starts);
        let duration_ns = durations_ns.iter().copied().fold(0, u64::saturating_add);
        let workload = self.workload(pieces, durations_ns, queue_starts);
        let room_bytes = workload.room_bytes();
        let pending_plan = PendingPlan {
            first_launch,
            duration_ns,
            tokens,
            leads,
            room_bytes,
            unmapped_bytes,
            coverage,
            probe_counts,
            workload_bytes: workload.heap_bytes(),
        };
        Ok((workload, pending_plan))
    }

    fn finish_planning(&mut self, pending_plan: PendingPlan, answer: Answer) -> Change {
        let unmapped_bytes = pending_plan.unmapped_bytes;
        let varies = self.sequence.state().lock().is_none_or(|lock| lock.shapes_vary);
        let planned = match answer {
            Ok(_) if varies => Err(Refusal::ShapesVary),
            answer => answer.map(|outlined| pending_plan.planned(outlined)),
        };
        match planned {
            Ok(planned) => {
                self.state = State::Planned(Box::new(planned));
                Change::Planned
            }
            Err(refusal) => {
                let change = self.refuse(refusal.with_unmapped(unmapped_bytes));
                self.is_planner_refusal = true;
                change
            }
        }
    }

    /// Workload of an iteration that uses these pieces, with the GPU memory available to it.
    fn workload(&self, pieces: Pieces, durations_ns: Vec<u64>, queue_starts: Vec<Option<usize>>) -> Workload {
        let (pieces, memory) = if let Some(bytes) = self.capacity_bytes {
            let taken_bytes = self.sequence.unmanaged_bytes(&Pieces::default());
            let bytes = bytes.min(self.settings.gpu_bytes.saturating_sub(taken_bytes));
            (pieces.managed(), GpuMemory::measured(bytes))
        } else {
            let taken_bytes = self.sequence.unmanaged_bytes(&pieces);
            (pieces, GpuMemory::estimated(self.settings.gpu_bytes.saturating_sub(taken_bytes)))
        };
        Workload { pieces, durations_ns, queue_starts, memory }
    }
}

impl PendingPlan {
    fn heap_bytes(&self) -> usize {
        let tokens = self.tokens.capacity() * size_of::<Token>();
        tokens + self.leads.capacity() * size_of::<u64>() + self.workload_bytes
    }

    fn planned(self, BestOutline { method, outline, traffic_without_plan }: BestOutline) -> Planned {
        let Outline { moves, traffic, peak_bytes } = outline;
        let Self { first_launch, duration_ns, tokens, leads, room_bytes, coverage, probe_counts, .. } = self;
        Planned {
            planner: method,
            first_launch,
            duration_ns,
            tokens,
            moves,
            traffic,
            traffic_without_plan,
            leads,
            peak_bytes,
            room_bytes,
            coverage,
            probe_counts,
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            settings,
            sequence: _,
            faults: _,
            claim_limits: _,
            capacity_bytes,
            state,
            periodicity,
            iteration,
            ..
        } = self;
        let mut debug = formatter.debug_struct("Follower");
        debug.field("settings", settings).field("capacity_bytes", capacity_bytes);
        debug
            .field("state", state)
            .field("periodicity", periodicity)
            .field("iteration", iteration)
            .finish_non_exhaustive()
    }
}

/// Lead of each launch: number of launches since the first one after the last sync.
fn leads(queue_starts: &[Option<usize>]) -> Vec<u64> {
    let Some(last_start) = queue_starts.iter().rev().find_map(|start| *start) else { return Vec::new() };
    let ops = queue_starts.len();
    let lead = |(op, start): (usize, &Option<usize>)| start.map_or(op + ops - last_start, |start| op - start) as u64;
    queue_starts.iter().enumerate().map(lead).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, which is from 0 to 1")]
fn percent(share: f64) -> u64 {
    (share * 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_counts_from_the_last_sync_even_in_the_previous_iteration() {
        assert_eq!(leads(&[Some(0), Some(0), Some(2)]), [0, 1, 0]);
        // The program waits between the second and the third launch.
        assert_eq!(leads(&[None, None, Some(2), Some(2)]), [2, 3, 0, 1]);
        assert_eq!(leads(&[None, None]), [0_u64; 0]);
    }
}
