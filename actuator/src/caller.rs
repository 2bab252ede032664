//! Actuator by calls of the driver: its ioctls from outside of the process, or the helper in it.

mod pace;
mod part;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    Action, Actuator, ActuatorChoice, ActuatorKind, AdviceCalls, Call, CallResult, Interrupt, Order, Outcome,
    ProcessId, Step,
};
use pace::Pace;
use part::{Part, next_part};
use sys::{
    Roots,
    executable::Program,
    pidfd::PidFd,
    uvm::pages::{CALL_MAX_BYTES, PageRange},
};

use crate::{
    actors::Actors,
    backoff::{Backoff, SLOW},
    budget::{Expired, ORDER_BUDGET, TimeBudget},
    calls::{Calls, Cost},
    headroom,
    helper::{HelperCalls, Program as HelperProgram, wait_until_idle},
    inspection::{Access, Inspection, Inspector},
    inspections::Inspections,
    ioctl::IoctlCalls,
    process::open_process,
    skipped_call,
    slots::Target,
    uniform_outcome,
};

/// Maximum parts of a batch. For the next batch, another actor is started with new duplicates of the
/// process's descriptors, or its ring is mapped again; and its mappings are read again. A part is one
/// call for most processes, and at most two for each VA space.
const PARTS_PER_BATCH: usize = 16;

/// Maximum parts of an order's advice that take no effect, such as holes in a mapping. Each splits the records
/// of advice in force, which are bounded: the journal, the ledger of the decision, the guard's account.
const HOLES_MAX: usize = 64;

/// Settings of the actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum bytes of one migration call, which holds the target's locks. From the driver's block
    /// of 2 MiB up to [`CALL_MAX_BYTES`].
    pub part_bytes: u64,
    /// Host memory that stays free, of the node and of each cgroup above the target.
    pub host_reserve_bytes: u64,
    /// Choice of who makes the calls.
    pub actuator: ActuatorChoice,
}

impl Default for Settings {
    fn default() -> Self {
        Self { part_bytes: part::BLOCK_BYTES, host_reserve_bytes: 1 << 30, actuator: ActuatorChoice::Auto }
    }
}

/// Actuator by calls of the driver: see docs/acting.md.
#[derive(Debug)]
pub struct Caller {
    settings: Settings,
    roots: Roots,
    inspector: Inspector,
    actors: Actors,
    pace: Pace,
    order_budget: Duration,
    backoff: Backoff,
}

/// Target of an order.
struct OrderTarget {
    id: ProcessId,
    process: Arc<PidFd>,
    target: Target,
    /// Possible actuators; the first that has access makes the calls.
    actuators: &'static [ActuatorKind],
    is_withdrawal: bool,
    /// Parts of advice that took no effect.
    holes: usize,
    /// Whether the helper carries out no command that the ioctls of a withdrawal would overtake.
    is_helper_idle: bool,
}

impl Caller {
    /// Actuator with these settings. All actuators of a node share the inspections. Actors are
    /// executions of this program: its main function begins with
    /// [`run_if_spawner`](sys::actor::run_if_spawner).
    #[must_use]
    pub fn new(settings: Settings, roots: Roots, inspections: Inspections) -> Self {
        let part_bytes = settings.part_bytes.clamp(part::BLOCK_BYTES, CALL_MAX_BYTES);
        let actors = Actors::new(Program::this(), roots.clone(), inspections.actor_slots().clone());
        let settings = Settings { part_bytes, ..settings };
        let (inspector, pace, backoff) = (Inspector::new(inspections), Pace::default(), Backoff::default());
        Self { settings, roots, inspector, actors, pace, order_budget: ORDER_BUDGET, backoff }
    }

    /// Makes a batch of calls, from the first remaining step on. An error is the result of all
    /// remaining steps.
    fn execute_batch(
        &mut self,
        order_target: &mut OrderTarget,
        budget: &mut TimeBudget<'_>,
        left: &mut VecDeque<Step>,
        outcome: &mut Outcome,
        check_interrupt: &dyn Fn() -> Result<(), CallResult>,
    ) -> Result<(), CallResult> {
        let Self { settings, roots, inspector, actors, pace, .. } = self;
        if budget.is_spent() {
            return Err(budget.expiry_result(Expired::Time));
        }
        pace.pause_if_due();
        let begun = Instant::now();
        let OrderTarget { id, target, is_withdrawal, .. } = *order_target;
        let process = Arc::clone(&order_target.process);
        let process = &process;
        let Inspection { mapped, access, withdrawal_ring, .. } =
            inspector.inspect(roots, process, target, order_target.actuators, is_withdrawal, budget)?;
        let program = HelperProgram { roots, id, process };
        if let Some(ring) = withdrawal_ring.filter(|_| !order_target.is_helper_idle) {
            let late = wait_until_idle(&ring, program, budget)?;
            add_advice_calls(&mut outcome.advice_calls, ActuatorKind::Helper, late);
            order_target.is_helper_idle = true;
        }
        let mut calls: Option<Box<dyn Calls + '_>> = match access {
            None => None,
            // The actor has duplicates of the descriptors.
            Some(Access::Spaces(spaces)) => {
                order_target.actuators = &[ActuatorKind::Ioctl];
                let gpu = outcome.gpu;
                Some(Box::new(IoctlCalls::start(actors, process, target, is_withdrawal, gpu, &spaces, budget)?))
            }
            Some(Access::Ring(ring)) => {
                order_target.actuators = &[ActuatorKind::Helper];
                Some(Box::new(HelperCalls::new(ring, program, outcome.gpu, budget)))
            }
        };
        outcome.ready_ns = outcome.ready_ns.saturating_add(nanoseconds(begun.elapsed()));
        for _ in 0..PARTS_PER_BATCH {
            let Some(step) = left.front_mut() else { break };
            check_interrupt()?;
            let Part { step: part, pages } = next_part(step, &mapped, settings.part_bytes);
            let (call, is_over) = match (pages, &mut calls, order_target.actuators.first()) {
                (Some(pages), Some(calls), Some(actuator)) => {
                    pace.pause_if_due();
                    outcome.actuator = Some(*actuator);
                    let mut cost = Cost::default();
                    let mut part_call = PartCall { settings, roots, process, calls: &mut **calls };
                    let (result, is_over) = part_call.call(part, pages, &mut cost);
                    add_advice_calls(&mut outcome.advice_calls, *actuator, cost.advice_calls);
                    (Call { step: part, result, duration_ns: nanoseconds(cost.took) }, is_over)
                }
                _ => (skipped_call(part, CallResult::NotMapped), false),
            };
            order_target.holes +=
                usize::from(matches!(part.action, Action::Advise(_)) && call.result != CallResult::Done);
            step.begin = part.end;
            if step.begin >= step.end {
                left.pop_front();
            }
            pace.add(&call);
            let result = call.result.clone();
            outcome.calls.push(call);
            if is_over || result == CallResult::Exited {
                return Err(result);
            }
            if order_target.holes > HOLES_MAX {
                return Err(CallResult::Denied(format!("more than {HOLES_MAX} parts of its memory took no advice")));
            }
        }
        Ok(())
    }
}

fn add_advice_calls(calls: &mut AdviceCalls, actuator: ActuatorKind, count: u64) {
    let total = match actuator {
        ActuatorKind::Ioctl => &mut calls.by_ioctl,
        ActuatorKind::Helper => &mut calls.by_helper,
    };
    *total = total.saturating_add(count);
}

/// Call for a part of a step.
struct PartCall<'a> {
    settings: &'a Settings,
    roots: &'a Roots,
    process: &'a PidFd,
    calls: &'a mut dyn Calls,
}

impl PartCall<'_> {
    /// Makes the call. Returns its result, and whether that is the result of the rest of the order,
    /// too.
    fn call(&mut self, step: Step, pages: PageRange, cost: &mut Cost) -> (CallResult, bool) {
        let result = if self.has_room(&step, &mut cost.took) {
            // Span of the time for which the target's locks were held.
            let _call = tracing::trace_span!("uvm_call").entered();
            self.calls.make(step.action, pages, cost)
        } else if self.process.has_exited().unwrap_or_default() {
            // An exited process needs no further calls.
            Err(CallResult::Exited)
        } else {
            Ok(CallResult::HostMemory)
        };
        let is_over = result.is_err();
        let (Ok(result) | Err(result)) = result;
        (result, is_over)
    }

    /// Whether a migration has enough host memory. It may take as many bytes as it moves, for its
    /// destination or for evictions that it induces at the GPU. They are charged to the process's
    /// cgroup, at whose limit the kernel kills.
    fn has_room(&self, step: &Step, took: &mut Duration) -> bool {
        match step.action {
            Action::Migrate(_) => {
                let begun = Instant::now();
                let needed = step.bytes().saturating_add(self.settings.host_reserve_bytes);
                let has_room = headroom::of(self.roots, self.process.pid()).is_some_and(|headroom| headroom >= needed);
                *took = begun.elapsed();
                has_room
            }
            Action::Touch(_) | Action::Advise(_) | Action::Withdraw(_) => true,
        }
    }
}

impl Caller {
    fn execute_at(&mut self, order: &Order, interrupt: &dyn Interrupt, now: Instant) -> Outcome {
        if !order.is_rollback
            && let Some(result) = self.backoff.denial(order.process, now)
        {
            return uniform_outcome(order, &result);
        }
        let mut budget = TimeBudget::new(self.order_budget, interrupt);
        let actuators = self.settings.actuator.candidates(order.is_rollback);
        let mut outcome = self.attempt(order, actuators, &mut budget, interrupt);
        // If ioctls are the first choice and the helper made the calls, ioctls were impossible.
        if matches!(actuators, [ActuatorKind::Helper, ActuatorKind::Ioctl]) {
            self.withdraw_in_place_of_helper(order, &mut outcome, &mut budget, interrupt);
        }
        if budget.is_spent() || budget.spent() >= SLOW {
            let (pid, spent) = (order.process.pid, budget.spent());
            let pause = self.backoff.begin(order.process, now + spent);
            tracing::warn!("calls about process {pid} took {spent:.1?}: orders for it pause for {pause:?}");
        }
        outcome
    }

    /// Makes the calls of an order, by the first of these actuators that is possible.
    fn attempt(
        &mut self,
        order: &Order,
        actuators: &'static [ActuatorKind],
        budget: &mut TimeBudget<'_>,
        interrupt: &dyn Interrupt,
    ) -> Outcome {
        // Checked before each part: a withdrawal about another process waits for at most one.
        // Withdrawals keep their order.
        let check_interrupt = || match () {
            () if order.is_rollback => Ok(()),
            () if interrupt.is_cancelled() => Err(CallResult::Cancelled),
            () if interrupt.should_yield() => Err(preempted()),
            () => Ok(()),
        };
        let mut outcome = Outcome::new(order, Vec::new());
        let mut left: VecDeque<Step> = order.steps.iter().copied().filter(|step| step.begin < step.end).collect();
        let mut execute = || {
            check_interrupt()?;
            let process = Arc::new(open_process(&self.roots, order.process)?);
            let (id, target) = (order.process, Target::of(&self.roots, process.pid()));
            let is_withdrawal = order.is_rollback;
            let mut order_target =
                OrderTarget { id, process, target, actuators, is_withdrawal, holes: 0, is_helper_idle: false };
            while !left.is_empty() {
                self.execute_batch(&mut order_target, budget, &mut left, &mut outcome, &check_interrupt)?;
            }
            Ok(())
        };
        if let Err(result) = execute() {
            // The steps that were not tried have not failed: they are denied, as a withdrawal waits.
            let has_yielded = matches!(result, CallResult::Failed(_)) && !order.is_rollback && interrupt.should_yield();
            let result = if has_yielded { preempted() } else { result };
            outcome.calls.extend(left.into_iter().map(|step| skipped_call(step, result.clone())));
        }
        outcome
    }

    /// Withdraws by ioctl what the helper has failed to withdraw.
    fn withdraw_in_place_of_helper(
        &mut self,
        order: &Order,
        outcome: &mut Outcome,
        budget: &mut TimeBudget<'_>,
        interrupt: &dyn Interrupt,
    ) {
        let is_failed = |call: &Call| matches!(call.result, CallResult::Failed(_));
        let steps: Vec<Step> = outcome.calls.iter().filter(|call| is_failed(call)).map(|call| call.step).collect();
        if outcome.actuator != Some(ActuatorKind::Helper) || steps.is_empty() {
            return;
        }
        let rest = Order { steps, ..order.clone() };
        let by_ioctl = self.attempt(&rest, &[ActuatorKind::Ioctl], budget, interrupt);
        add_advice_calls(&mut outcome.advice_calls, ActuatorKind::Ioctl, by_ioctl.advice_calls.by_ioctl);
        add_advice_calls(&mut outcome.advice_calls, ActuatorKind::Helper, by_ioctl.advice_calls.by_helper);
        outcome.ready_ns = outcome.ready_ns.saturating_add(by_ioctl.ready_ns);
        if by_ioctl.actuator.is_some() {
            outcome.actuator = by_ioctl.actuator;
            outcome.calls.retain(|call| !is_failed(call));
            outcome.calls.extend(by_ioctl.calls);
        } else if let Some(Call { result: CallResult::Failed(impossible), .. }) = by_ioctl.calls.first() {
            for call in &mut outcome.calls {
                if let CallResult::Failed(reason) = &mut call.result {
                    *reason = format!("{reason}; {impossible}");
                }
            }
        }
    }
}

impl Actuator for Caller {
    fn execute(&mut self, order: &Order, interrupt: &dyn Interrupt) -> Outcome {
        self.execute_at(order, interrupt, Instant::now())
    }
}

fn preempted() -> CallResult {
    CallResult::Denied("a withdrawal for another process takes precedence".to_owned())
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
