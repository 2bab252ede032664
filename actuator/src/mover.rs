//! Moves of the plan of one process, made from outside of it on a thread of their own.
//!
//! A move begins once its launch was seen, and is made when its turn comes. If the launch was seen
//! before that needs it made, or its memory back, it is late: it would be in the program's way. Of a
//! move that a launch overtakes, the rest is not made. No other thread waits for this one.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use model::{
    Action, Actuator, CallResult, DecisionId, GpuUuid, Interrupt, Order, Outcome, Place, PlanCounters, PlanReport,
    ProcessId, Step,
};

/// Most moves that wait. Further ones are skipped.
const WAITING_MAX: usize = 256;
/// Most moves and bytes of an order, for whose calls one actor is started.
const ORDER_MOVES_MAX: usize = 16;
const ORDER_BYTES_MAX: u64 = 32 << 20;

type Make = dyn Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync;
type Off = dyn Fn() -> bool + Send + Sync;

/// Makers of moves, one for each process.
#[derive(Clone)]
pub struct MoverFactory {
    make: Arc<Make>,
    off: Arc<Off>,
}

/// Maker of the moves of a process. Its thread ends after this value, and makes no further call.
#[derive(Debug)]
pub struct Mover(Arc<Shared>);

/// Move whose launch was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanMove {
    /// Its place in the plan: it is made once at a time.
    pub at: usize,
    /// First byte.
    pub begin: u64,
    /// First byte behind it.
    pub end: u64,
    /// Where to.
    pub place: Place,
    /// Number of the launch from which on it is late, if there is one.
    pub deadline_launch: Option<u64>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    off: Arc<Off>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the plan whose moves are made.
    generation: u64,
    /// Launches that were seen.
    launches: u64,
    waiting: VecDeque<Waiting>,
    at_work: Vec<Waiting>,
    counters: PlanCounters,
    /// Reason why no move of the plan is made any more.
    ended: Option<String>,
    has_owner: bool,
}

/// Move that is not made yet, or not whole.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    one: PlanMove,
    /// Whether a part was made.
    has_begun: bool,
}

// === impl MoverFactory ===

impl MoverFactory {
    /// Makers that call an actuator for each process, which is made in its thread at its first move, and
    /// again after a panic. While `off` returns true, no move is made.
    pub fn new(
        make: impl Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync + 'static,
        off: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { make: Arc::new(make), off: Arc::new(off) }
    }

    /// Starts the one of a process at a GPU.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn start(&self, process: ProcessId, gpu: GpuUuid) -> io::Result<Mover> {
        let state = Mutex::new(State { has_owner: true, ..State::default() });
        let shared = Arc::new(Shared { state, changed: Condvar::new(), off: Arc::clone(&self.off) });
        let (of_thread, make) = (Arc::clone(&shared), Arc::clone(&self.make));
        thread::Builder::new().name("mover".to_owned()).spawn(move || work(&of_thread, &*make, process, gpu))?;
        Ok(Mover(shared))
    }
}

// === impl Mover ===

impl Mover {
    /// Ends the moves of the last plan, and counts launches anew. A call that is being made ends by
    /// itself.
    pub fn reset(&self) {
        let mut state = self.0.lock();
        state.generation += 1;
        state.launches = 0;
        state.leave_out_waiting();
        state.ended = None;
    }

    /// Takes the number of launches of the plan that were seen, and the moves that have begun.
    pub fn begin(&self, launches: u64, moves: impl IntoIterator<Item = PlanMove>) {
        let mut state = self.0.lock();
        state.launches = launches;
        for one in moves.into_iter().filter(|one| one.begin < one.end) {
            state.add(one);
        }
        if !state.waiting.is_empty() {
            self.0.changed.notify_one();
        }
    }

    /// What came of all moves, and why those of the plan have ended. Iterations are counted elsewhere.
    #[must_use]
    pub fn report(&self) -> PlanReport {
        let state = self.0.lock();
        PlanReport { ended: state.ended.clone(), counters: state.counters }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.reset();
        self.0.lock().has_owner = false;
        self.0.changed.notify_one();
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves of the next order, with the generation of their plan; waits for them. `None` at the end.
    fn next(&self) -> Option<(u64, Vec<Waiting>)> {
        let mut state = self.lock();
        loop {
            if !state.has_owner {
                return None;
            }
            state.take();
            if !state.at_work.is_empty() {
                return Some((state.generation, state.at_work.clone()));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    fn is_late(&self, one: &PlanMove) -> bool {
        // Launches are numbered from 0 on.
        one.deadline_launch.is_some_and(|deadline_launch| self.launches > deadline_launch)
    }

    fn add(&mut self, one: PlanMove) {
        // That of the iteration before is not done yet.
        let is_there = self.waiting.iter().chain(&self.at_work).any(|waiting| waiting.one.at == one.at);
        if self.is_late(&one) {
            self.counters.late += 1;
            self.counters.expired += 1;
        } else if self.ended.is_some() || is_there || self.waiting.len() >= WAITING_MAX {
            self.counters.skipped += 1;
        } else {
            self.waiting.push_back(Waiting { one, has_begun: false });
        }
    }

    /// Takes the moves of the next order; those that are late are not made.
    fn take(&mut self) {
        let mut bytes = 0_u64;
        while let Some(Waiting { one, has_begun }) = self.waiting.front().copied() {
            if self.is_late(&one) {
                self.waiting.pop_front();
                self.counters.late += 1;
                self.counters.moves += u64::from(has_begun);
                self.counters.expired += u64::from(!has_begun);
                continue;
            }
            bytes = bytes.saturating_add(one.end - one.begin);
            let is_full = self.at_work.len() >= ORDER_MOVES_MAX || bytes > ORDER_BYTES_MAX;
            if is_full && !self.at_work.is_empty() {
                return;
            }
            self.at_work.extend(self.waiting.pop_front());
        }
    }

    /// Takes what came of the moves at work. What is left of those that gave way to others waits again.
    fn settle(&mut self, outcome: &Outcome, generation: u64, is_off: bool) {
        let mut calls = outcome.calls.iter();
        let mut left = Vec::new();
        for Waiting { mut one, mut has_begun } in std::mem::take(&mut self.at_work) {
            let mut rest = None;
            while one.begin < one.end
                && let Some(call) = calls.next()
            {
                one.begin = one.begin.saturating_add(call.step.bytes()).max(one.begin + 1);
                match &call.result {
                    CallResult::Done => {
                        has_begun = true;
                        self.count(one.place, call.step.bytes());
                    }
                    CallResult::Cancelled => rest = rest.or(Some(call.step.begin)),
                    result => self.end(generation, result),
                }
            }
            let is_over = self.ended.is_some() || is_off || self.generation != generation;
            match rest {
                Some(begin) if !is_over => left.push(Waiting { one: PlanMove { begin, ..one }, has_begun }),
                _ if has_begun => self.counters.moves += 1,
                _ => self.counters.skipped += 1,
            }
        }
        for waiting in left.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }

    /// Leaves out what waits, and counts it: as moved, what was in part.
    fn leave_out_waiting(&mut self) {
        for Waiting { has_begun, .. } in std::mem::take(&mut self.waiting) {
            let counted = if has_begun { &mut self.counters.moves } else { &mut self.counters.skipped };
            *counted += 1;
        }
    }

    fn count(&mut self, place: Place, bytes: u64) {
        let counted = match place {
            Place::Gpu(_) => &mut self.counters.to_gpu_bytes,
            Place::Host => &mut self.counters.to_host_bytes,
        };
        *counted = counted.saturating_add(bytes);
    }

    /// Ends the plan after a call with this result, unless others may succeed.
    fn end(&mut self, generation: u64, result: &CallResult) {
        let reason = match result {
            CallResult::Failed(reason) => format!("a move failed: {reason}"),
            CallResult::Exited => "the process has exited".to_owned(),
            CallResult::Denied(reason) => format!("a move is denied: {reason}"),
            CallResult::NotMapped => "memory of a move is not mapped any more".to_owned(),
            _ => return,
        };
        if self.generation == generation {
            self.ended.get_or_insert(reason);
            self.leave_out_waiting();
        }
    }
}

/// Reasons to end an order: the plan is another one, or a launch has overtaken a move.
struct Turn<'a> {
    shared: &'a Shared,
    generation: u64,
}

impl Interrupt for Turn<'_> {
    fn is_cancelled(&self) -> bool {
        if (self.shared.off)() {
            return true;
        }
        let state = self.shared.lock();
        state.generation != self.generation || state.at_work.iter().any(|waiting| state.is_late(&waiting.one))
    }
}

/// Makes moves until the owner is gone.
fn work(shared: &Shared, make: &Make, process: ProcessId, gpu: GpuUuid) {
    let mut actuator: Option<Box<dyn Actuator>> = None;
    while let Some((generation, moves)) = shared.next() {
        let step = |&Waiting { one: PlanMove { begin, end, place, .. }, .. }: &Waiting| Step {
            begin,
            end,
            action: Action::Migrate(place),
        };
        let steps = moves.iter().map(step).collect();
        // Of no decision: results are counted here.
        let order = Order { decision: DecisionId(0), process, gpu, steps, is_rollback: false };
        let turn = Turn { shared, generation };
        let carried_out =
            catch_unwind(AssertUnwindSafe(|| actuator.get_or_insert_with(|| make(gpu)).carry_out(&order, &turn)));
        let outcome = carried_out.unwrap_or_else(|_| {
            actuator = None;
            tracing::error!("a move for process {} at {gpu} failed in the middle", process.pid);
            crate::all_answered(&order, &CallResult::Failed("it failed in the middle".to_owned()))
        });
        let is_off = (shared.off)();
        shared.lock().settle(&outcome, generation, is_off);
    }
}

#[cfg(test)]
mod tests;
