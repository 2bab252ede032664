//! Plan of a process, in the memory that its helper shares.

use std::{
    iter,
    sync::{Arc, Mutex, PoisonError},
};

use call_ring::{
    LayoutError, Memory, Plan, PlanMemory,
    command::FUTEX_WORD,
    memory::HEADER_WORDS,
    plan::{self, Counters, HEADER_BYTES, Reason, State},
};
use model::{PlanCounters, PlanReport};
use sys::{
    Roots, clock,
    shared_memory::{SharedMemory, SharedMemoryError},
};
use thiserror::Error;

use crate::permission::{ActError, FilterCheck};

/// Reason why the helper of a process follows no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The memory has holes, or is not accessible.
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

/// Words of the header of a plan.
const PLAN_HEADER_WORDS: usize = HEADER_BYTES / size_of::<u64>();

/// Memory of the plan of a process.
#[derive(Debug)]
pub struct HelperPlan {
    filters: Arc<FilterCheck>,
    ring: Arc<SharedMemory>,
    plan: Arc<SharedMemory>,
    /// Generation of the plan that was published last.
    generation: Option<u64>,
    /// Report that was read last.
    last: Mutex<PlanReport>,
}

impl HelperPlan {
    /// Memory of the plan of a process, found with that of its ring.
    ///
    /// # Errors
    /// If one of them has another version.
    pub fn new(roots: Roots, pid: u32, ring: Arc<SharedMemory>, plan: Arc<SharedMemory>) -> Result<Self, PlanError> {
        let filters = Arc::new(FilterCheck::new(roots, pid, Arc::clone(&ring)));
        Memory::open(&ring.with_retries(|ring| ring.copy_words(HEADER_WORDS))?)?;
        PlanMemory::open(&plan.with_retries(|plan| plan.copy_words(PLAN_HEADER_WORDS))?)?;
        Ok(Self { filters, ring, plan, generation: None, last: Mutex::default() })
    }

    /// Check of the process's filters. Run it before a plan is published, and repeatedly while one is.
    #[must_use]
    pub fn filter_check(&self) -> Arc<FilterCheck> {
        Arc::clone(&self.filters)
    }

    /// Publishes a plan instead of the last one. The helper follows it from the next iteration on, while
    /// [`send_heartbeat`](Self::send_heartbeat) is called. Does not wait, however many threads the process has.
    ///
    /// # Errors
    /// If the helper passes calls through, or the last check found a filter that it did not start with; if the
    /// process has overwritten the memory or punched holes in it, or it is not accessible; or if the helper would
    /// refuse the plan.
    pub fn publish(&mut self, plan: &Plan<'_>) -> Result<(), PlanError> {
        let words = self.header()?;
        let memory = PlanMemory::open(&words)?;
        self.filters.act()?;
        let (generation, operations) = memory.publish(plan).map_err(PlanError::Plan)?;
        let heartbeat = plan::heartbeat(clock::monotonic_ns());
        let written = self.plan.write(iter::once(heartbeat).chain(operations), None).map_err(PlanError::from);
        // Publication has filled holes that were punched just before. If there are others, this plan was the last.
        let written = written.and_then(|_| self.header());
        self.generation = Some(generation);
        if let Err(error) = written {
            // Part of it may have been written, or will be: it is withdrawn, or ends without heartbeats.
            self.withdraw();
            return Err(error);
        }
        self.wake();
        Ok(())
    }

    /// Copy of the header of the plan.
    fn header(&self) -> Result<Vec<u64>, PlanError> {
        Ok(self.plan.copy_words(PLAN_HEADER_WORDS)?)
    }

    /// Withdraws the plan: nothing is moved from the next launch on. If its memory is not accessible, the helper
    /// ends it once it has got no heartbeat for [5 s](plan::HEARTBEAT_AGE_MAX_NS).
    pub fn withdraw(&mut self) {
        if self.generation.take().is_none() {
            return;
        }
        // A process that has overwritten the memory has no plan; and the helper ends a plan without heartbeats.
        if let Ok(words) = self.header()
            && let Ok(memory) = PlanMemory::open(&words)
        {
            let _ = self.plan.write(memory.withdraw(), None);
        }
        self.wake();
    }

    /// Whether a plan was published and not withdrawn.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        self.generation.is_some()
    }

    /// Sends a heartbeat to the helper. Called each second while a plan is published.
    pub fn send_heartbeat(&self) {
        // The next one follows soon after one that is pending.
        let _ = self.plan.post(vec![plan::heartbeat(clock::monotonic_ns())], None);
    }

    /// Report of the helper: the last one while the memory is not accessible.
    #[must_use]
    pub fn report(&self) -> PlanReport {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = self.read_report() {
            *last = report;
        }
        last.clone()
    }

    /// Report of the helper; `None` if the memory is not accessible now.
    fn read_report(&self) -> Option<PlanReport> {
        let copies = self.header().and_then(|words| Ok((words, self.header()?)));
        let report = copies.and_then(|(first, later)| Ok(PlanMemory::open(&first)?.report(&PlanMemory::open(&later)?)));
        let report = match report {
            Ok(report) => report,
            Err(PlanError::Memory(SharedMemoryError::Pending)) => return None,
            Err(PlanError::Invalid(_)) => return Some(ended_by("the process has overwritten its plan".to_owned())),
            Err(error) => return Some(ended_by(error.to_string())),
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
        Some(PlanReport { ended: refusal.or(ended), counters })
    }

    fn wake(&self) {
        // Without a wake-up, the helper looks each second.
        let _ = self.ring.post(Vec::new(), Some(FUTEX_WORD));
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
        Memory::create(ring.words(), mode).unwrap().set_filters(filters);
        PlanMemory::create(plan.words()).unwrap();
        HelperPlan::new(roots, pid, ring, plan).unwrap()
    }

    /// Ring as the helper sees it.
    fn ring_of(helper_plan: &HelperPlan) -> Memory<'_> {
        Memory::open(helper_plan.ring.words()).unwrap()
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
        assert_eq!(Memory::open(helper_plan.ring.words()).unwrap().mode(), Mode::Act);
        let memory = PlanMemory::open(helper_plan.plan.words()).unwrap();
        assert!(memory.is_live(clock::monotonic_ns()));
        let generation = memory.generation();
        helper_plan.withdraw();
        assert!(!helper_plan.is_published());
        let memory = PlanMemory::open(helper_plan.plan.words()).unwrap();
        assert_ne!(memory.generation(), generation);
        // There is nothing left to withdraw.
        let generation = memory.generation();
        helper_plan.withdraw();
        assert_eq!(PlanMemory::open(helper_plan.plan.words()).unwrap().generation(), generation);
    }

    #[test]
    fn plan_is_not_published_in_memory_with_holes() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        let plan = Arc::clone(&helper_plan.plan);
        let words = plan.words();
        helper_plan.plan.punch_hole(4096..8192).unwrap();
        assert!(matches!(publish(&mut helper_plan), Err(PlanError::Memory(_))));
        assert_eq!(Memory::open(helper_plan.ring.words()).unwrap().mode(), Mode::Record);
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
        helper_plan.send_heartbeat();
        helper_plan.withdraw();
        let page = &helper_plan.plan.words()[..512];
        assert!(page.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0), "nothing was written");
    }

    #[test]
    fn program_that_has_installed_a_filter_since_the_helper_started_follows_no_plan() {
        for mode in [Mode::Record, Mode::Act] {
            let mut helper_plan = memory_of_plan(mode);
            publish(&mut helper_plan).unwrap();
            for filters in [ring_of(&helper_plan).filters().map(|filters| filters + 1), None] {
                ring_of(&helper_plan).set_filters(filters);
                assert!(matches!(publish(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Filtered))));
                assert_eq!(ring_of(&helper_plan).mode(), Mode::Record, "it moves nothing more");
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
        let filters = ring_of(&helper_plan).filters().map(|filters| filters + 1);
        ring_of(&helper_plan).set_filters(filters);
        assert_eq!(helper_plan.report().ended, None);
        helper_plan.filter_check().run();
        assert_eq!(ring_of(&helper_plan).mode(), Mode::Record, "it moves nothing more");
        let why = helper_plan.report().ended;
        assert!(why.as_ref().is_some_and(|why| why.contains("has installed a seccomp filter")), "{why:?}");
    }

    #[test]
    fn helper_that_is_off_stays_off() {
        let mut helper_plan = memory_of_plan(Mode::Off);
        assert!(matches!(publish(&mut helper_plan), Err(PlanError::NotPermitted(ActError::Off))));
        assert_eq!(Memory::open(helper_plan.ring.words()).unwrap().mode(), Mode::Off);
    }

    #[test]
    fn only_the_end_of_the_plan_that_was_published_is_reported() {
        let mut helper_plan = memory_of_plan(Mode::Record);
        publish(&mut helper_plan).unwrap();
        let state = |helper_plan: &HelperPlan, generation, state| {
            PlanMemory::open(helper_plan.plan.words()).unwrap().set_state(generation, state);
            helper_plan.report().ended
        };
        let generation = PlanMemory::open(helper_plan.plan.words()).unwrap().generation();
        assert_eq!(state(&helper_plan, generation, State::Following), None);
        assert_eq!(state(&helper_plan, generation + 2, State::Drifted(3)), None);
        assert!(state(&helper_plan, generation, State::Drifted(3)).is_some_and(|why| why.contains("launch 3")));
        assert!(
            state(&helper_plan, generation, State::Refused(Reason::ProgramAdvice))
                .is_some_and(|why| why.contains("advice"))
        );
    }
}
