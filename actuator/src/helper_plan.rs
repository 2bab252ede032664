//! Plan of a process, in the memory that its helper shares.

use std::sync::Arc;

use call_ring::{
    LayoutError, Memory, Plan, PlanMemory,
    plan::{Counters, Reason, State},
};
use model::{PlanCounters, PlanReport};
use sys::{
    Roots, clock, futex,
    shared_memory::{SharedMemory, SharedMemoryError},
};
use thiserror::Error;

use crate::permission::{ActError, FilterCheck};

/// Reason why the helper of a process follows no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The memory has holes.
    #[error(transparent)]
    Memory(#[from] SharedMemoryError),
    /// The memory is no ring or plan of this version.
    #[error("its shared memory is no ring or plan of the helper: {0}")]
    Invalid(#[from] LayoutError),
    /// The helper may not act.
    #[error("its helper follows no plans: {0}")]
    NotPermitted(#[from] ActError),
    /// The plan is invalid.
    #[error("the plan is invalid: {0:?}")]
    Plan(Reason),
}

/// Memory of the plan of a process.
#[derive(Debug)]
pub struct HelperPlan {
    filters: Arc<FilterCheck>,
    ring: Arc<SharedMemory>,
    plan: Arc<SharedMemory>,
    /// Generation of the plan that was published last.
    generation: Option<u64>,
}

impl HelperPlan {
    /// Memory of the plan of a process, found with that of its ring.
    ///
    /// # Errors
    /// If one of them has another version.
    pub fn new(roots: Roots, pid: u32, ring: Arc<SharedMemory>, plan: Arc<SharedMemory>) -> Result<Self, PlanError> {
        let filters = Arc::new(FilterCheck::new(roots, pid, Arc::clone(&ring)));
        let helper_plan = Self { filters, ring, plan, generation: None };
        helper_plan.ring()?;
        helper_plan.plan()?;
        Ok(helper_plan)
    }

    /// Check of the process's filters. Run it before a plan is published, and repeatedly while one is.
    #[must_use]
    pub fn filter_check(&self) -> Arc<FilterCheck> {
        Arc::clone(&self.filters)
    }

    /// Publishes a plan instead of the last one. The helper follows it from the next iteration on, while
    /// [`beat`](Self::beat) is called. Does not wait, however many threads the process has.
    ///
    /// # Errors
    /// If the helper passes calls through, or the last check found a filter that it did not start with; if the
    /// process has overwritten the memory or punched holes in it; or if the helper would refuse the plan.
    pub fn publish(&mut self, plan: &Plan<'_>) -> Result<(), PlanError> {
        let memory = self.plan()?;
        self.filters.act(&self.ring()?)?;
        memory.set_heartbeat(clock::monotonic_ns());
        let generation = memory.publish(plan).map_err(PlanError::Plan)?;
        self.generation = Some(generation);
        // Publication has filled holes that were punched just before. If there are others, this plan was the last.
        if let Err(error) = self.plan() {
            self.generation = None;
            return Err(error);
        }
        self.wake();
        Ok(())
    }

    fn ring(&self) -> Result<Memory<'_>, PlanError> {
        Ok(Memory::open(self.ring.words()?)?)
    }

    fn plan(&self) -> Result<PlanMemory<'_>, PlanError> {
        Ok(PlanMemory::open(self.plan.words()?)?)
    }

    /// Withdraws the plan: nothing is moved from the next launch on.
    pub fn withdraw(&mut self) {
        if self.generation.take().is_none() {
            return;
        }
        // A process that has overwritten the memory has no plan; and the helper ends a plan without beats.
        if let Ok(memory) = self.plan() {
            memory.withdraw();
        }
        self.wake();
    }

    /// Whether a plan was published and not withdrawn.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        self.generation.is_some()
    }

    /// Sends a heartbeat to the helper. Called each second while a plan is published.
    pub fn beat(&self) {
        if let Ok(memory) = self.plan() {
            memory.set_heartbeat(clock::monotonic_ns());
        }
    }

    /// Report of the helper.
    #[must_use]
    pub fn report(&self) -> PlanReport {
        let report = match self.plan() {
            Ok(memory) => memory.report(),
            Err(PlanError::Invalid(_)) => return ended_by("the process has overwritten its plan".to_owned()),
            Err(error) => return ended_by(error.to_string()),
        };
        let Counters { iterations, moves, late, expired, skipped, mismatched: _, bytes_to_gpu, bytes_to_host } =
            report.counters;
        let counters = PlanCounters {
            iterations,
            moves,
            late,
            expired,
            skipped,
            to_gpu_bytes: bytes_to_gpu,
            to_host_bytes: bytes_to_host,
        };
        // The state of an earlier plan does not matter.
        let is_about_this = self.generation == Some(report.generation);
        let ended = report.state.filter(|_| is_about_this).and_then(ended);
        // Before the helper's own reason, which is only that its mode has changed.
        let refusal = self.filters.refusal().filter(|_| self.is_published());
        let refusal = refusal.map(|refusal| PlanError::NotPermitted(refusal).to_string());
        PlanReport { ended: refusal.or(ended), counters }
    }

    fn wake(&self) {
        if let Ok(memory) = self.ring()
            && let Some((word, _)) = memory.commands().futex()
        {
            futex::wake(word);
        }
    }
}

impl Drop for HelperPlan {
    /// Withdraws the plan.
    fn drop(&mut self) {
        self.withdraw();
    }
}

fn ended_by(reason: String) -> PlanReport {
    PlanReport { ended: Some(reason), ..PlanReport::default() }
}

/// Reason why a plan is no longer followed.
fn ended(state: State) -> Option<String> {
    match state {
        State::None | State::Following => None,
        State::Drifted(op) => Some(format!("launch {op} of an iteration differs from the plan")),
        State::Stopped(reason) => Some(format!("the helper has stopped following the plan: {}", description(reason))),
        State::Refused(reason) => Some(format!("the helper has refused the plan: {}", description(reason))),
    }
}

fn description(reason: Reason) -> String {
    match reason {
        Reason::Period
        | Reason::MoveCount
        | Reason::Order
        | Reason::Op
        | Reason::Range
        | Reason::Destination
        | Reason::HandoverWait => "it is invalid".to_owned(),
        Reason::Budget => "its moves exceed its budget".to_owned(),
        Reason::NotAllocated => "memory of a move is not managed memory of the program".to_owned(),
        Reason::ProgramAdvice => "the program has given its own advice on memory of a move".to_owned(),
        Reason::NoDevice => "the program does not use this GPU".to_owned(),
        Reason::Unsupported => "the driver or the GPU cannot prefetch managed memory".to_owned(),
        Reason::Failed(result) => format!("the driver failed with {result}"),
        Reason::Mode => "the mode of the helper has changed".to_owned(),
        Reason::StaleHeartbeat => "the heartbeat of uvmd is late".to_owned(),
        Reason::Freed => "the program has freed memory of a move".to_owned(),
        Reason::ContextEnded => "the program has ended its context".to_owned(),
        Reason::Withdrawn => "it was withdrawn".to_owned(),
        Reason::Exit => "the program exits".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, num::NonZeroUsize};

    use call_ring::{
        Mode, NAME, PLAN_BYTES, PLAN_NAME, TOTAL_BYTES, Token,
        plan::{Destination, Move},
    };

    use sys::{fake::Machine, seccomp};

    use super::*;

    /// Memory of a plan whose program is this test.
    fn memory_of_plan(mode: Mode) -> HelperPlan {
        memory_of(Roots::default(), std::process::id(), mode)
    }

    fn memory_of(roots: Roots, pid: u32, mode: Mode) -> HelperPlan {
        let memory = |name, bytes| SharedMemory::create(name, NonZeroUsize::new(bytes).unwrap()).unwrap();
        let (ring, plan) = (Arc::new(memory(NAME, TOTAL_BYTES)), Arc::new(memory(PLAN_NAME, PLAN_BYTES)));
        let filters = seccomp::own(&Roots::default()).unwrap();
        Memory::create(ring.words().unwrap(), mode).unwrap().set_filters(filters);
        PlanMemory::create(plan.words().unwrap()).unwrap();
        HelperPlan::new(roots, pid, ring, plan).unwrap()
    }

    fn publish(helper_plan: &mut HelperPlan) -> Result<(), PlanError> {
        helper_plan.filter_check().run();
        publish_checked(helper_plan)
    }

    fn publish_checked(helper_plan: &mut HelperPlan) -> Result<(), PlanError> {
        let tokens = [Token::from_word(1 << 32)];
        let moves = [Move {
            begin: 4096,
            bytes: 4096,
            destination: Destination::Host,
            begin_op: 0,
            wait_op: None,
            expiry_op: None,
        }];
        helper_plan.publish(&Plan {
            gpu: [1; 16],
            first_launch: 1,
            budget_bytes: 4096,
            handover_wait_ns: 0,
            tokens: &tokens,
            moves: &moves,
        })
    }

    #[test]
    fn publish_makes_the_helper_act_and_drop_withdraws() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        publish(&mut helper_plan).unwrap();
        assert_eq!(Memory::open(helper_plan.ring.words().unwrap()).unwrap().mode(), Mode::Act);
        let memory = PlanMemory::open(helper_plan.plan.words().unwrap()).unwrap();
        assert!(memory.is_live(clock::monotonic_ns()));
        let generation = memory.generation();
        helper_plan.withdraw();
        assert!(!helper_plan.is_published());
        let memory = PlanMemory::open(helper_plan.plan.words().unwrap()).unwrap();
        assert_ne!(memory.generation(), generation);
        // There is nothing left to withdraw.
        let generation = memory.generation();
        helper_plan.withdraw();
        assert_eq!(PlanMemory::open(helper_plan.plan.words().unwrap()).unwrap().generation(), generation);
    }

    #[test]
    fn plan_is_not_published_in_memory_with_holes() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        let plan = Arc::clone(&helper_plan.plan);
        let words = plan.words().unwrap();
        helper_plan.plan.punch_hole(4096..8192).unwrap();
        assert!(matches!(publish(&mut helper_plan), Err(PlanError::Memory(_))));
        assert_eq!(Memory::open(helper_plan.ring.words().unwrap()).unwrap().mode(), Mode::Record);
        // Not even once they are filled.
        PlanMemory::create(words).unwrap();
        for word in words {
            word.fetch_add(0, std::sync::atomic::Ordering::Relaxed);
        }
        assert!(matches!(publish(&mut helper_plan), Err(PlanError::Memory(_))));
    }

    #[test]
    fn plan_in_memory_with_holes_has_ended_and_its_memory_is_not_written() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        publish(&mut helper_plan).unwrap();
        helper_plan.plan.punch_hole(0..4096).unwrap();
        let why = helper_plan.report().ended;
        assert!(why.as_ref().is_some_and(|why| why.contains("holes")), "{why:?}");
        helper_plan.beat();
        helper_plan.withdraw();
        let mut page = [1; 4096];
        helper_plan.plan.read_at(0, &mut page).unwrap();
        assert_eq!(page, [0; 4096], "nothing was written");
    }

    #[test]
    fn program_that_has_installed_a_filter_since_the_helper_started_follows_no_plan() {
        for mode in [Mode::Record, Mode::Act] {
            let mut helper_plan = memory_of_plan(mode);
            publish(&mut helper_plan).unwrap();
            for filters in [helper_plan.ring().unwrap().filters().map(|filters| filters + 1), None] {
                helper_plan.ring().unwrap().set_filters(filters);
                assert!(matches!(publish(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Filtered))));
                assert_eq!(helper_plan.ring().unwrap().mode(), Mode::Record, "it moves nothing more");
            }
        }
    }

    #[test]
    fn plan_is_published_by_the_last_check_despite_new_threads() {
        let machine =
            Machine::new().with("proc/7/task/7/status", fs::read_to_string("/proc/thread-self/status").unwrap());
        let mut helper_plan = memory_of(machine.roots.clone(), 7, Mode::Record);
        assert!(matches!(publish_checked(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Unchecked))));
        helper_plan.filter_check().run();
        // From here on, a check of the threads fails.
        let status = machine.roots.proc.join("7/task/7/status");
        fs::remove_file(&status).unwrap();
        fs::create_dir(&status).unwrap();
        publish_checked(&mut helper_plan).unwrap();
        helper_plan.filter_check().run();
        assert!(matches!(publish_checked(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Filters(_)))));
    }

    #[test]
    fn plan_ends_with_a_check_that_finds_another_filter_and_with_that_reason() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        publish(&mut helper_plan).unwrap();
        let filters = helper_plan.ring().unwrap().filters().map(|filters| filters + 1);
        helper_plan.ring().unwrap().set_filters(filters);
        assert_eq!(helper_plan.report().ended, None);
        helper_plan.filter_check().run();
        assert_eq!(helper_plan.ring().unwrap().mode(), Mode::Record, "it moves nothing more");
        let why = helper_plan.report().ended;
        assert!(why.as_ref().is_some_and(|why| why.contains("has installed a seccomp filter")), "{why:?}");
    }

    #[test]
    fn helper_that_is_off_stays_off() {
        let mut helper_plan = memory_of_plan(Mode::Off);
        assert!(matches!(publish(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Off))));
        assert_eq!(Memory::open(helper_plan.ring.words().unwrap()).unwrap().mode(), Mode::Off);
    }

    #[test]
    fn only_the_end_of_the_plan_that_was_published_is_reported() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        publish(&mut helper_plan).unwrap();
        let state = |helper_plan: &HelperPlan, generation, state| {
            PlanMemory::open(helper_plan.plan.words().unwrap()).unwrap().set_state(generation, state);
            helper_plan.report().ended
        };
        let generation = PlanMemory::open(helper_plan.plan.words().unwrap()).unwrap().generation();
        assert_eq!(state(&helper_plan, generation, State::Following), None);
        assert_eq!(state(&helper_plan, generation + 2, State::Drifted(3)), None);
        assert!(state(&helper_plan, generation, State::Drifted(3)).is_some_and(|why| why.contains("launch 3")));
        assert!(
            state(&helper_plan, generation, State::Refused(Reason::ProgramAdvice))
                .is_some_and(|why| why.contains("advice"))
        );
    }
}
