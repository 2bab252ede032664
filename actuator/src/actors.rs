//! Actors for the batches of one worker: their placement, timeouts, and errors.
//!
//! An actor is placed in its target's cgroup, so that its calls are charged like the target's own.
//! If that is impossible, it stays in this process's cgroup, and acts only on VA spaces that belong
//! to the memory of their process. For these, the driver charges the target, whoever calls, or
//! nobody once the target has made it release that memory (`uvm_va_space_mm_or_current_retain`, and
//! `block_context->mm` in `uvm_va_block.c`: 515 to 595).

use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use model::CallResult;
use sys::{
    Roots,
    actor::{Actor, ActorError, Reply, Spawner},
    executable::Program,
    parameters,
    pidfd::PidFd,
    sysfs,
    uvm::{
        Status, UvmError,
        call::{Call, SpaceFlags},
    },
};

use crate::{
    budget::{Expired, TimeBudget},
    placement::{Placement, PlacementError},
    process::{call_error_result, open_error_result},
    slots::{Slot, Slots, Target},
};

/// Minimum pause between the end of a spawner and the start of the next.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Starter of actors.
#[derive(Debug)]
pub(crate) struct Actors {
    program: Program,
    roots: Roots,
    spawner: Option<Spawner>,
    /// Earliest time of the next start, after an end.
    restart: Option<Instant>,
    slots: Slots,
}

/// Actor for a batch of calls about one process.
#[derive(Debug)]
pub(crate) struct Batch<'a, 'b> {
    actors: &'a mut Actors,
    /// Time that its order may still wait for the target.
    budget: &'a mut TimeBudget<'b>,
    /// Actor with its slot; `None` once the batch is complete.
    actor: Option<(Actor, Slot)>,
    spaces: usize,
    /// Placement in the target's cgroup, if possible.
    placement: Option<Placement>,
}

/// Error of starting an actor.
enum StartError {
    /// An actor may be possible elsewhere.
    Placement(PlacementError),
    /// None is possible elsewhere.
    Fatal(CallResult),
}

/// Error of a call without a reply.
enum ReplyError {
    Actor(ActorError),
    Placement(PlacementError),
    Expired(Expired),
}

impl From<Expired> for ReplyError {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

impl From<ActorError> for ReplyError {
    fn from(error: ActorError) -> Self {
        Self::Actor(error)
    }
}

// === impl Actors ===

impl Actors {
    /// Uses spawners that are executions of this program.
    pub(crate) const fn new(program: Program, roots: Roots, slots: Slots) -> Self {
        Self { program, roots, spawner: None, restart: None, slots }
    }

    /// Starts an actor for these VA spaces of a process.
    pub(crate) fn start<'a, 'b>(
        &'a mut self,
        process: &PidFd,
        target: Target,
        is_withdrawal: bool,
        spaces: &[impl AsFd],
        budget: &'a mut TimeBudget<'b>,
    ) -> Result<Batch<'a, 'b>, CallResult> {
        let slots = self.slots.clone();
        let slot = |budget: &mut TimeBudget<'_>| {
            let taken = slots.take(target, is_withdrawal, Duration::MAX, budget);
            taken.map_err(|error| error.result("call"))
        };
        let (actor, placement, reason) = match self.start_placed(process, slot(budget)?, spaces, budget) {
            Ok((actor, placement)) => (actor, Some(placement), None),
            Err(StartError::Fatal(result)) => return Err(result),
            Err(StartError::Placement(reason)) => match self.spawn(slot(budget)?, spaces, None) {
                Ok(actor) => (actor, None, Some(reason)),
                Err(StartError::Fatal(result)) => return Err(result),
                Err(StartError::Placement(error)) => return Err(CallResult::Failed(error.to_string())),
            },
        };
        let mut batch = Batch { spaces: spaces.len(), actors: self, budget, actor: Some(actor), placement };
        match reason {
            Some(reason) if !batch.is_charged_to_target(process)? => Err(CallResult::Failed(format!(
                "the driver charges host memory of its VA space to the caller, and no actor can be placed in its cgroup: {reason}"
            ))),
            _ => Ok(batch),
        }
    }

    fn start_placed(
        &mut self,
        process: &PidFd,
        slot: Slot,
        spaces: &[impl AsFd],
        budget: &mut TimeBudget<'_>,
    ) -> Result<((Actor, Slot), Placement), StartError> {
        let placement = Placement::of(&self.roots, process.pid()).map_err(StartError::Placement)?;
        let (mut actor, slot) = self.spawn(slot, spaces, Some(&placement))?;
        let error = if [actor.pid(), process.pid()].into_iter().all(|pid| placement.contains(&self.roots, pid)) {
            // The actor makes no call before it is the first OOM victim of the cgroup.
            let confined = wait(&self.roots, budget, Some(&placement), |at_most| {
                actor.is_confined(process, at_most).map(|is_confined| is_confined.then_some(()))
            });
            match confined {
                Ok(()) => return Ok(((actor, slot), placement)),
                Err(ReplyError::Actor(error @ ActorError::NotConfined { .. })) => {
                    StartError::Placement(PlacementError::NotConfined(error.to_string()))
                }
                Err(ReplyError::Placement(reason)) => StartError::Placement(reason),
                Err(error) => return Err(StartError::Fatal(self.abandon(process, Some((actor, slot)), error, budget))),
            }
        } else {
            StartError::Placement(PlacementError::Moved)
        };
        self.end(actor, slot);
        Err(error)
    }

    fn spawn(
        &mut self,
        slot: Slot,
        spaces: &[impl AsFd],
        placement: Option<&Placement>,
    ) -> Result<(Actor, Slot), StartError> {
        let refused = |error: ActorError| StartError::Fatal(CallResult::Failed(error.to_string()));
        let spawner = self.spawner().map_err(StartError::Fatal)?;
        match spawner.start_actor(spaces, placement.map(AsFd::as_fd)) {
            Err(error @ ActorError::NotStarted(_)) => {
                Err(StartError::Placement(PlacementError::Kernel(error.to_string())))
            }
            Err(error @ ActorError::SpawnerGone(_)) => {
                self.record_spawner_exit(&error);
                Err(refused(error))
            }
            started => Ok((started.map_err(refused)?, slot)),
        }
    }

    /// Current spawner; a new one if the last has exited.
    fn spawner(&mut self) -> Result<&mut Spawner, CallResult> {
        if self.spawner.is_none() {
            if self.restart.is_some_and(|restart| Instant::now() < restart) {
                let why = "the actor spawner ended, or cannot be started; the next attempt is within a second";
                return Err(CallResult::Failed(why.to_owned()));
            }
            let started = Spawner::start(&self.program).map_err(|error| {
                self.record_spawner_exit(&error);
                CallResult::Failed(error.to_string())
            })?;
            if self.restart.take().is_some() {
                tracing::info!("another actor spawner was started, process {}", started.pid());
            }
            self.spawner = Some(started);
        }
        self.spawner.as_mut().ok_or_else(|| CallResult::Failed("there is no actor spawner".to_owned()))
    }

    fn record_spawner_exit(&mut self, error: &ActorError) {
        tracing::warn!("{error}; orders for this GPU fail until another is started");
        self.spawner = None;
        self.restart = Some(Instant::now() + RESTART_DELAY);
    }

    /// Ends an actor that did not reply, and returns the result of its call.
    fn abandon(
        &mut self,
        process: &PidFd,
        actor: Option<(Actor, Slot)>,
        error: ReplyError,
        budget: &TimeBudget<'_>,
    ) -> CallResult {
        let ended = actor.and_then(|(actor, slot)| self.end(actor, slot));
        if process.has_exited().unwrap_or_default() {
            return CallResult::Exited;
        }
        let why = match error {
            ReplyError::Actor(ActorError::Target(error)) => return open_error_result(&error),
            ReplyError::Actor(ActorError::Ended(_)) => {
                format!("the actor {}", ended.as_deref().unwrap_or("ended"))
            }
            ReplyError::Actor(error) => error.to_string(),
            ReplyError::Placement(reason) => reason.to_string(),
            ReplyError::Expired(expired) => return budget.expiry_result(expired),
        };
        CallResult::Failed(why)
    }

    /// Ends an actor, and returns its exit.
    fn end(&mut self, actor: Actor, slot: Slot) -> Option<String> {
        let ended = match self.spawner.as_mut() {
            Some(spawner) => spawner.end(actor),
            // The kernel completes its exit; its status is unavailable.
            None => return None,
        };
        match ended {
            Ok(ending) => Some(ending.to_string()),
            Err(hangs) => {
                slot.keep_until_exit(hangs);
                None
            }
        }
    }
}

// === impl Batch ===

impl Batch<'_, '_> {
    /// Number of VA spaces for calls.
    pub(crate) const fn spaces(&self) -> usize {
        self.spaces
    }

    /// Makes a call on one of them, and waits for it. An error ends the batch.
    pub(crate) fn call(&mut self, process: &PidFd, space: usize, call: Call) -> Result<Reply, CallResult> {
        self.reply(process, space, call).map_err(|error| {
            let actor = self.actor.take();
            self.actors.abandon(process, actor, error, self.budget)
        })
    }

    fn reply(&mut self, process: &PidFd, space: usize, call: Call) -> Result<Reply, ReplyError> {
        let (actor, _) =
            self.actor.as_mut().ok_or_else(|| ActorError::SpawnerGone(io::ErrorKind::NotConnected.into()))?;
        if self.budget.is_spent() {
            return Err(Expired::Time.into());
        }
        actor.ask(process, space, call)?;
        wait(&self.actors.roots, self.budget, self.placement.as_ref(), |at_most| actor.reply(process, at_most))
    }

    /// Whether the driver charges host memory of these VA spaces to the cgroup of the target, for
    /// any caller.
    fn is_charged_to_target(&mut self, process: &PidFd) -> Result<bool, CallResult> {
        // Without this parameter, no VA space belongs to the memory of its process.
        let value = sysfs::read(&self.actors.roots, |roots| parameters::value(roots, "uvm_enable_va_space_mm"));
        if value.ok().flatten().is_none_or(|value| value == "0") {
            return Ok(false);
        }
        for space in 0..self.spaces {
            let mut is_of_process = false;
            for flags in SpaceFlags::OF_ONE_PROCESS {
                match self.call(process, space, Call::CompareFlags(flags))?.result {
                    Ok(()) => is_of_process = true,
                    Err(UvmError::Refused { status: Status::INVALID_ARGUMENT, .. }) => {}
                    Err(error) => return Err(call_error_result(process, &error)),
                }
            }
            if !is_of_process {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        if let Some((actor, slot)) = self.actor.take() {
            // An actor needs a processor to exit, too, which may be scarce in its target's cgroup.
            let begun = Instant::now();
            self.actors.end(actor, slot);
            self.budget.spend(begun.elapsed());
        }
    }
}

/// Readiness of an actor's channel, by `poll`, while its cgroup is not frozen and the budget lasts.
fn wait<T>(
    roots: &Roots,
    budget: &mut TimeBudget<'_>,
    placement: Option<&Placement>,
    mut poll: impl FnMut(Duration) -> Result<Option<T>, ActorError>,
) -> Result<T, ReplyError> {
    budget.wait(Duration::MAX, Instant::now, |at_most| match poll(at_most)? {
        None => placement
            .and_then(|placement| placement.frozen(roots))
            .map_or(Ok(None), |frozen| Err(ReplyError::Placement(frozen))),
        reply => Ok(reply),
    })
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;
    use crate::budget::ORDER_BUDGET;

    const NEVER: fn() -> bool = || false;

    fn start(actors: &mut Actors, process: &PidFd) -> String {
        let (target, mut budget) =
            (Target::of(&Roots::default(), process.pid()), TimeBudget::new(ORDER_BUDGET, &NEVER));
        match actors.start(process, target, false, &[] as &[std::fs::File], &mut budget) {
            Err(CallResult::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn missing_spawner_is_reported_and_restarted_later() {
        let process = PidFd::open(std::process::id()).unwrap();
        let mut actors = Actors::new(Program::at("/bin/true"), Roots::default(), Slots::default());
        let ended = "the actor spawner cannot be started: unexpected end of file";
        assert_eq!(start(&mut actors, &process), ended);
        let waits = "the actor spawner ended, or cannot be started; the next attempt is within a second";
        assert_eq!(start(&mut actors, &process), waits);
        actors.restart = Some(Instant::now());
        assert_eq!(start(&mut actors, &process), ended);
    }

    #[test]
    fn actor_that_hangs_for_a_worker_counts_for_all_others_until_it_has_exited() {
        let (own, mut child) = (std::process::id(), std::process::Command::new("sleep").arg("600").spawn().unwrap());
        let process = PidFd::open(own).unwrap();
        let (machine, slots) = (Machine::new(), Slots::default());
        let target = Target::of(&Roots::default(), own);
        let slot = slots.take(target, false, Duration::ZERO, &mut TimeBudget::new(ORDER_BUDGET, &NEVER)).unwrap();
        slot.keep_until_exit(PidFd::open(child.id()).unwrap());
        let start =
            || start(&mut Actors::new(Program::at("/bin/true"), machine.roots.clone(), slots.clone()), &process);
        assert!(start().starts_with("an earlier call hangs"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(start(), "the actor spawner cannot be started: unexpected end of file");
    }
}
