//! Plan for a process, by its calls.

use call_ring::{Plan, Token, call::Call, plan::Move};
use recorder::Program;
use trace::{detect, footprints::Coverage};

use crate::{
    coverage::{FaultCounts, Faults},
    methods::{GpuMemory, Method, Outline, Workload},
    pieces::Pieces,
    refusal::Refusal,
    sequence::{Rhythm, Sequence, Work},
    traffic::Traffic,
};

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// UUID of the GPU.
    pub gpu: [u8; 16],
    /// Its memory that the process may use.
    pub gpu_bytes: u64,
    /// Whether [faults are delivered](Follower::deliver): plans wait for those of iterations.
    pub are_faults_counted: bool,
}

/// Plan and what it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Planner or other method that made it.
    pub planner: &'static str,
    /// Number of a launch at which an iteration begins.
    pub first_launch: u64,
    /// Duration of the iteration that it was made of.
    pub duration_ns: u64,
    /// Token of each launch of an iteration.
    pub tokens: Vec<Token>,
    /// Moves, by the launches behind which they begin.
    pub moves: Vec<Move>,
    /// Traffic of an iteration with it, by the model of the driver.
    pub traffic: Traffic,
    /// Traffic of an iteration without it.
    pub driver: Traffic,
    /// Of each launch, the launches since the program last waited for the GPU: by so many it is ahead of
    /// the GPU at most. Empty if the program does not wait in an iteration.
    pub leads: Vec<u64>,
    /// Most bytes on the GPU that it relies on.
    pub peak_bytes: u64,
    /// Bytes that it may have there.
    pub room_bytes: u64,
    /// Memory that arguments name beside what the GPU faulted on, if that was counted.
    pub coverage: Option<Coverage>,
}

impl Planned {
    /// Share of the VA blocks with GPU faults that arguments name, in percent; `None` if there were none,
    /// or nobody counts them.
    #[must_use]
    pub fn coverage_percent(&self) -> Option<u64> {
        self.coverage.map(|coverage| percent(coverage.recall()))
    }

    /// As the helper takes it.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits in plans")]
    pub fn table(&self, gpu: [u8; 16]) -> Plan<'_> {
        let budget_bytes = self.moves.iter().map(|step| step.bytes).fold(0, u64::saturating_add);
        Plan { gpu, first_launch: self.first_launch as u32, budget_bytes, tokens: &self.tokens, moves: &self.moves }
    }
}

/// State of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No iteration is confirmed.
    Watching,
    /// There is a plan.
    Planned(Box<Planned>),
    /// There is none for the iteration that is confirmed.
    Refused(Refusal),
}

/// Change of the state by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is a plan.
    Planned,
    /// There is none for the iteration.
    Refused,
    /// The program does something else: the plan or the refusal does not hold any more.
    Drifted,
}

/// Begin of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Number of the iteration since iterations are known, confirmed or not.
    pub number: u64,
    /// Time of its first launch.
    pub at_ns: u64,
}

/// Follows the calls of a process.
pub struct Follower {
    settings: Settings,
    methods: Vec<Box<dyn Method>>,
    sequence: Sequence,
    faults: Faults,
    capacity_bytes: Option<u64>,
    state: State,
    rhythm: Option<Rhythm>,
    iteration: Option<Begin>,
}

impl Follower {
    /// Follower of a process from its first call on. Of the plans by these methods, it takes the one
    /// with the fewest bytes over the link.
    #[must_use]
    pub fn new(settings: Settings, methods: Vec<Box<dyn Method>>) -> Self {
        Self::after(Program::default(), settings, methods)
    }

    /// Follower of a process that has this much already.
    #[must_use]
    pub fn after(program: Program, settings: Settings, methods: Vec<Box<dyn Method>>) -> Self {
        let (sequence, faults) = (Sequence::after(program), Faults::new(settings.are_faults_counted));
        let (capacity_bytes, state) = (None, State::Watching);
        Self { settings, methods, sequence, faults, capacity_bytes, state, rhythm: None, iteration: None }
    }

    /// State.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The plan, if there is one.
    #[must_use]
    pub const fn planned(&self) -> Option<&Planned> {
        match &self.state {
            State::Planned(planned) => Some(&**planned),
            State::Watching | State::Refused(_) => None,
        }
    }

    /// The last iteration that has begun; `None` while iterations are not known.
    #[must_use]
    pub const fn iteration(&self) -> Option<Begin> {
        self.iteration
    }

    /// What the program has.
    #[must_use]
    pub const fn program(&self) -> &Program {
        self.sequence.program()
    }

    /// Adds the GPU faults of the process until now; `None` if nobody counts them by VA block.
    pub fn deliver(&mut self, faults: Option<FaultCounts>) {
        self.faults.deliver(faults);
    }

    /// Sets the managed bytes of the process that are on the GPU while the driver evicts: their frames are
    /// what a plan may use. `None`, as at first, if that is not known.
    pub const fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity_bytes = bytes;
    }

    /// Adds the next call. Where the state changes, the helper needs to know: of a plan, or that
    /// there is none any more.
    pub fn add(&mut self, call: Call) -> Option<Change> {
        let (is_launch, time_ns) = (call.token().is_some(), call.stamp.time_ns);
        self.sequence.add(call);
        let change = self.advance(is_launch);
        let number = self.number();
        if number != self.iteration.map(|iteration| iteration.number) {
            self.iteration = number.map(|number| Begin { number, at_ns: time_ns });
        }
        change
    }

    /// Number of the last iteration that has begun.
    fn number(&self) -> Option<u64> {
        let Rhythm { first_launch, period } = self.rhythm?;
        Some(self.sequence.last()?.checked_sub(first_launch)? / period)
    }

    fn advance(&mut self, is_launch: bool) -> Option<Change> {
        let Some(lock) = self.sequence.state().lock() else {
            self.rhythm = None;
            self.faults.restart();
            let had = std::mem::replace(&mut self.state, State::Watching);
            return (had != State::Watching).then_some(Change::Drifted);
        };
        if self.state != State::Watching || !is_launch {
            return None;
        }
        let is_confirmed = matches!(self.sequence.state(), detect::State::Locked(_));
        if self.rhythm.is_none() {
            match self.sequence.rhythm(&lock) {
                Ok(rhythm) => {
                    self.rhythm = rhythm;
                    self.faults.restart();
                }
                Err(refusal) if is_confirmed => return Some(self.refuse(refusal)),
                Err(_) => {}
            }
        }
        let rhythm = self.rhythm.filter(|_| is_confirmed)?;
        if !self.faults.are_known() {
            return None;
        }
        // At the begin of an iteration.
        if !self.sequence.last()?.checked_sub(rhythm.first_launch)?.is_multiple_of(rhythm.period) {
            return None;
        }
        if lock.shapes_vary {
            return Some(self.refuse(Refusal::ShapesVary));
        }
        match self.sequence.work(rhythm).and_then(|work| work.map(|work| self.plan(work)).transpose()) {
            Ok(planned) => {
                self.state = State::Planned(Box::new(planned?));
                Some(Change::Planned)
            }
            Err(refusal) => Some(self.refuse(refusal)),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Change {
        self.state = State::Refused(refusal);
        Change::Refused
    }

    fn plan(&self, work: Work) -> Result<Planned, Refusal> {
        let Work { first_launch, tokens, durations_ns, queue_starts, pieces } = work;
        let coverage = self.faults.coverage(&pieces);
        if let Some(coverage) = coverage.filter(|coverage| !coverage.suffices()) {
            return Err(Refusal::CoverageTooLow { percent: percent(coverage.recall()) });
        }
        let leads = leads(&queue_starts);
        let duration_ns = durations_ns.iter().copied().fold(0, u64::saturating_add);
        let (pieces, memory) = if let Some(bytes) = self.capacity_bytes {
            let taken_bytes = self.sequence.unmanaged_bytes(&Pieces::default());
            let bytes = bytes.min(self.settings.gpu_bytes.saturating_sub(taken_bytes));
            (pieces.managed(), GpuMemory::measured(bytes))
        } else {
            let taken_bytes = self.sequence.unmanaged_bytes(&pieces);
            (pieces, GpuMemory::estimated(self.settings.gpu_bytes.saturating_sub(taken_bytes)))
        };
        let workload = Workload::new(pieces, durations_ns, queue_starts, memory);
        let (mut best, mut refusal): (Option<(&'static str, Outline)>, _) = (None, None);
        let total = |outline: &Outline| outline.traffic.bytes.total();
        for method in &self.methods {
            match method.outline(&workload) {
                Ok(outline) if best.as_ref().is_none_or(|(_, best)| total(&outline) < total(best)) => {
                    best = Some((method.name(), outline));
                }
                Ok(_) => {}
                Err(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        let Some((planner, Outline { moves, traffic, peak_bytes })) = best else {
            return Err(refusal.unwrap_or(Refusal::NoRoom));
        };
        let (driver, room_bytes) = (workload.driver(), workload.room_bytes());
        Ok(Planned {
            planner,
            first_launch,
            duration_ns,
            tokens,
            moves,
            traffic,
            driver,
            leads,
            peak_bytes,
            room_bytes,
            coverage,
        })
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { settings, methods, sequence: _, faults: _, capacity_bytes, state, rhythm, iteration } = self;
        let methods: Vec<&str> = methods.iter().map(|method| method.name()).collect();
        let mut debug = formatter.debug_struct("Follower");
        debug.field("settings", settings).field("methods", &methods).field("capacity_bytes", capacity_bytes);
        debug.field("state", state).field("rhythm", rhythm).field("iteration", iteration).finish_non_exhaustive()
    }
}

/// Launches that each launch is ahead, of the first ones behind the last sync.
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
    fn queue_goes_back_to_the_last_wait_also_in_the_iteration_before() {
        assert_eq!(leads(&[Some(0), Some(0), Some(2)]), [0, 1, 0]);
        // The program waits between the second and the third launch.
        assert_eq!(leads(&[None, None, Some(2), Some(2)]), [2, 3, 0, 1]);
        assert_eq!(leads(&[None, None]), [0_u64; 0]);
    }
}
