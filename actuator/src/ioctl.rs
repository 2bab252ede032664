//! Actuator by the driver's calls, from outside of the process.

mod pace;
mod part;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{Action, Actuator, Advice, Call, CallResult, GpuUuid, Interrupt, Order, Outcome, Place, Step};
use pace::Pace;
use part::{Part, next_part};
use sys::{
    Roots,
    actor::Program,
    pidfd::PidFd,
    uvm::{
        Status, Uuid, UvmError,
        call::Call as DriverCall,
        pages::{CALL_MAX_BYTES, PageRange},
    },
};

use crate::{
    actors::{Actors, Batch},
    all_answered,
    backoff::{Backoff, SLOW},
    budget::{Expired, ORDER_BUDGET, TimeBudget},
    headroom,
    hung::Target,
    inspection::{Inspection, Inspector},
    outcome_of,
    process::{answer_of, hold},
    untried,
};

/// Parts per batch, after which another actor is started, descriptors of the process are duplicated
/// anew, and its mappings are read again. A part is one call for most processes, and at most two
/// for each VA space.
const PARTS_PER_BATCH: usize = 16;

/// Settings of the actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum bytes of one migration call, which holds the target's locks. From the driver's block
    /// of 2 MiB up to [`CALL_MAX_BYTES`].
    pub part_bytes: u64,
    /// Host memory that stays free, of the node and of each cgroup above the target.
    pub host_reserve_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { part_bytes: part::BLOCK_BYTES, host_reserve_bytes: 1 << 30 }
    }
}

/// Actuator by calls of the driver: see docs/acting.md.
#[derive(Debug)]
pub struct Ioctl {
    settings: Settings,
    roots: Roots,
    inspector: Inspector,
    actors: Actors,
    pace: Pace,
    order_budget: Duration,
    backoff: Backoff,
}

/// Target of an order.
struct Held {
    process: Arc<PidFd>,
    target: Target,
}

impl Ioctl {
    /// Actuator with these settings. Its calls are made by processes that are executions of this
    /// program: its main function begins with [`run_if_spawner`](sys::actor::run_if_spawner).
    #[must_use]
    pub fn new(settings: Settings, roots: Roots) -> Self {
        let part_bytes = settings.part_bytes.clamp(part::BLOCK_BYTES, CALL_MAX_BYTES);
        let actors = Actors::new(Program::this(), roots.clone());
        let settings = Settings { part_bytes, ..settings };
        let (inspector, pace, backoff) = (Inspector::new(), Pace::default(), Backoff::default());
        Self { settings, roots, inspector, actors, pace, order_budget: ORDER_BUDGET, backoff }
    }

    /// Makes a batch of calls by a new actor, from the first remaining step on. An error is the
    /// result of all remaining steps.
    fn some_calls(
        &mut self,
        Held { process, target }: &Held,
        budget: &mut TimeBudget<'_>,
        left: &mut VecDeque<Step>,
        outcome: &mut Outcome,
        ends: &dyn Fn() -> Result<(), CallResult>,
    ) -> Result<(), CallResult> {
        let Self { settings, roots, inspector, actors, pace, .. } = self;
        if budget.is_spent() {
            return Err(budget.gave_up(Expired::Time));
        }
        pace.let_others_in();
        let begun = Instant::now();
        let Inspection { mapped, spaces } = inspector.inspect(roots, process, *target, budget)?;
        let mut batch = if mapped.is_empty() { None } else { Some(actors.start(process, *target, &spaces, budget)?) };
        // The actor has duplicates.
        drop(spaces);
        outcome.ready_ns = outcome.ready_ns.saturating_add(nanoseconds(begun.elapsed()));
        for _ in 0..PARTS_PER_BATCH {
            let Some(step) = left.front_mut() else { break };
            ends()?;
            let Part { step: part, pages } = next_part(step, &mapped, settings.part_bytes);
            step.begin = part.end;
            if step.begin >= step.end {
                left.pop_front();
            }
            let (call, is_over) = match (pages, &mut batch) {
                (Some(pages), Some(batch)) => {
                    pace.let_others_in();
                    let mut calls = Calls { settings, roots, process, gpu: outcome.gpu, batch };
                    calls.call(part, pages)
                }
                _ => (untried(part, CallResult::NotMapped), false),
            };
            pace.count(&call);
            let answer = call.result.clone();
            outcome.calls.push(call);
            if is_over || answer == CallResult::Exited {
                return Err(answer);
            }
        }
        Ok(())
    }
}

/// Inputs of a call.
struct Calls<'a, 'b, 'c> {
    settings: &'a Settings,
    roots: &'a Roots,
    process: &'a PidFd,
    gpu: GpuUuid,
    batch: &'a mut Batch<'b, 'c>,
}

impl Calls<'_, '_, '_> {
    /// Makes the call for a part of a step, and returns whether the batch is complete.
    fn call(&mut self, step: Step, pages: PageRange) -> (Call, bool) {
        let begun = Instant::now();
        let has_room = self.has_room(&step);
        let mut took = begun.elapsed();
        if !has_room {
            // An exited process does not need the rest either.
            let has_ended = self.process.has_exited().unwrap_or_default();
            let answer = if has_ended { CallResult::Exited } else { CallResult::HostMemory };
            return (Call { step, result: answer, duration_ns: nanoseconds(took) }, false);
        }
        let spaces: Vec<usize> = (0..self.batch.spaces()).collect();
        let reply = call_each(&spaces, |space| {
            // Begin and end of the call, during which the target's locks were held.
            let _call = tracing::trace_span!("uvm_call").entered();
            self.ask(*space, step.action, pages, &mut took)
        });
        let (answer, is_over) = match reply {
            Ok(()) => (CallResult::Done, false),
            Err(Failed::Over(answer)) => (answer, true),
            Err(Failed::Uvm(error)) => (self.answer_of(&error, step.action), false),
        };
        (Call { step, result: answer, duration_ns: nanoseconds(took) }, is_over)
    }

    fn answer_of(&self, error: &UvmError, action: Action) -> CallResult {
        match (error, action) {
            (UvmError::Refused { status: Status::NO_MEMORY, .. }, Action::Migrate(Place::Host)) => {
                CallResult::HostMemory
            }
            _ => answer_of(self.process, error),
        }
    }

    fn ask(&mut self, space: usize, action: Action, pages: PageRange, took: &mut Duration) -> Result<(), Failed> {
        if let Action::Withdraw(Advice::PreferredLocation(Place::Host)) = action {
            // The GPU's mappings of host memory stay when the advice is withdrawn, and no fault
            // would migrate it. A new preferred location removes remote mappings
            // (`preferred_location_unmap_remote_pages` in `uvm_policy.c`), and copies nothing. If
            // the driver fails that, the advice is withdrawn all the same.
            let here = DriverCall::SetPreferredLocation(pages, uuid(Place::Gpu(self.gpu)));
            match self.make(space, here, took) {
                Ok(()) | Err(Failed::Uvm(_)) => {}
                over @ Err(Failed::Over(_)) => return over,
            }
        }
        self.make(space, driver_call(action, pages), took)
    }

    fn make(&mut self, space: usize, call: DriverCall, took: &mut Duration) -> Result<(), Failed> {
        let reply = self.batch.call(self.process, space, call).map_err(Failed::Over)?;
        *took = took.saturating_add(reply.took);
        reply.result.map_err(Failed::Uvm)
    }

    /// A migration may take as much host memory: for its destination, or for evictions that it
    /// induces at the GPU. That is charged to the process's cgroup, at whose limit the kernel
    /// kills.
    fn has_room(&self, step: &Step) -> bool {
        match step.action {
            Action::Migrate(_) => {
                let needed = step.bytes().saturating_add(self.settings.host_reserve_bytes);
                headroom::of(self.roots, self.process.pid()).is_some_and(|headroom| headroom >= needed)
            }
            Action::Touch(_) | Action::Advise(_) | Action::Withdraw(_) => true,
        }
    }
}

/// Reason of a failed or omitted call.
#[derive(Debug)]
enum Failed {
    Uvm(UvmError),
    /// The call was not made, or had no reply; the order gets no more calls.
    Over(CallResult),
}

impl Ioctl {
    fn carry_out_at(&mut self, order: &Order, interrupt: &dyn Interrupt, now: Instant) -> Outcome {
        if !order.is_rollback
            && let Some(answer) = self.backoff.answer(order.process, now)
        {
            return all_answered(order, &answer);
        }
        // Checked before each part: a withdrawal about another process waits for at most one.
        // Withdrawals keep their order.
        let ends = || match () {
            () if order.is_rollback => Ok(()),
            () if interrupt.is_cancelled() => Err(CallResult::Cancelled),
            () if interrupt.is_awaited() => Err(denied()),
            () => Ok(()),
        };
        let mut budget = TimeBudget::new(self.order_budget, interrupt);
        let mut outcome = outcome_of(order);
        let mut left: VecDeque<Step> = order.steps.iter().copied().filter(|step| step.begin < step.end).collect();
        let mut carry_out = || {
            ends()?;
            let process = Arc::new(hold(&self.roots, order.process)?);
            let held = Held { target: Target::of(&self.roots, process.pid()), process };
            while !left.is_empty() {
                self.some_calls(&held, &mut budget, &mut left, &mut outcome, &ends)?;
            }
            Ok(())
        };
        if let Err(answer) = carry_out() {
            // A step that was not tried is not denied.
            let is_given_way = matches!(answer, CallResult::Failed(_)) && !order.is_rollback && interrupt.is_awaited();
            let answer = if is_given_way { denied() } else { answer };
            outcome.calls.extend(left.into_iter().map(|step| untried(step, answer.clone())));
        }
        if budget.is_spent() || budget.spent() >= SLOW {
            let (pid, spent) = (order.process.pid, budget.spent());
            let pause = self.backoff.begin(order.process, now + spent);
            tracing::warn!("calls about process {pid} took {spent:.1?}: orders for it pause for {pause:?}");
        }
        outcome
    }
}

impl Actuator for Ioctl {
    fn carry_out(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        self.carry_out_at(order, interrupt, Instant::now())
    }
}

fn denied() -> CallResult {
    CallResult::Denied("a withdrawal about another process comes first".to_owned())
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// The VA space that has the pages executes the call. Most processes have one. Only if one replies
/// that it lacks the pages is the next one called: another may be that of the process it was forked
/// from, with other memory at the same addresses.
fn call_each<S>(spaces: &[S], mut ask: impl FnMut(&S) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut nowhere = None;
    for space in spaces {
        match ask(space) {
            Err(error @ Failed::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. })) => {
                nowhere = Some(error);
            }
            answer => return answer,
        }
    }
    nowhere.map_or(Ok(()), Err)
}

const fn driver_call(action: Action, pages: PageRange) -> DriverCall {
    match action {
        Action::Migrate(place) => DriverCall::Migrate(pages, uuid(place)),
        Action::Touch(gpu) => DriverCall::Migrate(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::PreferredLocation(place)) => DriverCall::SetPreferredLocation(pages, uuid(place)),
        Action::Withdraw(Advice::PreferredLocation(_)) => DriverCall::UnsetPreferredLocation(pages),
        Action::Advise(Advice::AccessedBy(gpu)) => DriverCall::SetAccessedBy(pages, uuid(Place::Gpu(gpu))),
        Action::Withdraw(Advice::AccessedBy(gpu)) => DriverCall::UnsetAccessedBy(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::ReadDuplication) => DriverCall::EnableReadDuplication(pages),
        Action::Withdraw(Advice::ReadDuplication) => DriverCall::DisableReadDuplication(pages),
    }
}

const fn uuid(place: Place) -> Uuid {
    match place {
        Place::Host => Uuid::CPU,
        Place::Gpu(gpu) => Uuid::from_bytes(gpu.0),
    }
}

#[cfg(test)]
mod tests;
