//! Acts on the driver, from outside of the process.

mod part;

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use model::{Action, Actuator, Advice, Answer, Call, GpuUuid, Order, Outcome, Place, Step};
use part::{Part, next_part};
use sys::{
    Roots,
    pidfd::PidFd,
    uvm::{
        Status, Uuid, UvmError, mapped,
        target::{CALL_MAX_BYTES, PageRange, VaSpace},
    },
};

use crate::{
    headroom, outcome_of,
    process::{answer_of, hold},
    untried,
};

/// After calls have taken so long together there is a pause of the same length, so that they hold the target's locks for half of the time at most.
/// The locks are not fair to whoever waits for them: one who is woken has to come first, and until then a reader that asks again, as the next call
/// would, gets them before it (`rwsem_down_read_slowpath` in the kernel).
const TURN: Duration = Duration::from_micros(100);
/// A call that takes longer has waited for others.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// After one that renews a block the pause is so long, or a quarter of what it took: it moves nothing where the block is there, that is long enough for
/// whoever was woken, and what is not renewed in time is lost.
const PAUSE_RENEWAL: Duration = Duration::from_millis(1);
/// Descriptors of a process are taken anew after so many calls, and what it has mapped is read again.
const CALLS_PER_DESCRIPTOR: usize = 16;

/// How it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most that one call moves: the target's locks are held for so long. From the driver's block of 2 MiB up to [`CALL_MAX_BYTES`].
    pub part_bytes: u64,
    /// So much host memory is left alone, at the node and in each cgroup above the target.
    pub host_reserve_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { part_bytes: part::BLOCK_BYTES, host_reserve_bytes: 1 << 30 }
    }
}

/// See the module's documentation, and docs/acting.md.
#[derive(Debug)]
pub struct Ioctl {
    settings: Settings,
    roots: Roots,
    /// How long the calls since the last pause have taken, each no longer than the pause that it wants.
    turn: Duration,
}

impl Ioctl {
    /// One that acts like this.
    #[must_use]
    pub fn new(settings: Settings, roots: Roots) -> Self {
        let part_bytes = settings.part_bytes.clamp(part::BLOCK_BYTES, CALL_MAX_BYTES);
        Self { settings: Settings { part_bytes, ..settings }, roots, turn: Duration::ZERO }
    }

    /// A few calls on descriptors that are taken for them, from the first step that is left on. An error is the answer to all that is left.
    fn some_calls(
        &mut self,
        process: &PidFd,
        left: &mut VecDeque<Step>,
        outcome: &mut Outcome,
        is_off: &dyn Fn() -> bool,
    ) -> Result<(), Answer> {
        self.let_others_in();
        let begun = Instant::now();
        let spaces = VaSpace::of(process, &self.roots).map_err(|error| answer_of(process, &error))?;
        let mapped = mapped::of(&self.roots, process.pid())
            .map_err(|source| answer_of(process, &UvmError::Unreadable { pid: process.pid(), source }))?;
        outcome.ready_ns = outcome.ready_ns.saturating_add(nanoseconds(begun.elapsed()));
        for _ in 0..CALLS_PER_DESCRIPTOR {
            let Some(step) = left.front_mut() else { break };
            if is_off() {
                return Err(Answer::CalledOff);
            }
            let Part { step: part, pages } = next_part(step, &mapped, self.settings.part_bytes);
            step.begin = part.end;
            if step.begin >= step.end {
                left.pop_front();
            }
            let call = match pages {
                None => untried(part, Answer::NotMapped),
                Some(pages) => {
                    self.let_others_in();
                    self.call(process, outcome.gpu, &spaces, part, pages)
                }
            };
            self.turn = self.turn.saturating_add(pause_wanted(&call));
            let has_ended = call.answer == Answer::Ended;
            outcome.calls.push(call);
            if has_ended {
                return Err(Answer::Ended);
            }
        }
        Ok(())
    }

    fn let_others_in(&mut self) {
        if self.turn >= TURN {
            thread::sleep(self.turn);
            self.turn = Duration::ZERO;
        }
    }

    fn call(&self, process: &PidFd, gpu: GpuUuid, spaces: &[VaSpace<'_>], step: Step, pages: PageRange) -> Call {
        let begun = Instant::now();
        let answer = if self.has_room(process, &step) {
            let asked = ask_each(spaces, |space| {
                // Its beginning and its end, for whoever wants to know when the target's locks were held.
                let _call = tracing::trace_span!("uvm_call").entered();
                ask(space, step.action, gpu, pages)
            });
            asked.map_or_else(
                |error| match (&error, step.action) {
                    (UvmError::Refused { status: Status::NO_MEMORY, .. }, Action::Migrate(Place::Host)) => {
                        Answer::HostMemory
                    }
                    _ => answer_of(process, &error),
                },
                |()| Answer::Done,
            )
        } else {
            Answer::HostMemory
        };
        Call { step, answer, took_ns: nanoseconds(begun.elapsed()) }
    }

    /// What moves may take as much of the host's memory: there, or for what the driver evicts to make room at the GPU. The driver charges it to the
    /// process, and where that is at its limit the kernel kills the process.
    fn has_room(&self, process: &PidFd, step: &Step) -> bool {
        match step.action {
            Action::Migrate(_) => {
                let needed = step.bytes().saturating_add(self.settings.host_reserve_bytes);
                headroom::of(&self.roots, process.pid()).is_some_and(|headroom| headroom >= needed)
            }
            Action::Renew(_) | Action::Advise(_) | Action::Withdraw(_) => true,
        }
    }
}

impl Actuator for Ioctl {
    fn carry_out(&mut self, order: &Order, off: &dyn Fn() -> bool) -> Outcome {
        let is_off = || !order.is_undoing && off();
        let mut outcome = outcome_of(order);
        let mut left: VecDeque<Step> = order.steps.iter().copied().filter(|step| step.begin < step.end).collect();
        let mut carry_out = || {
            if is_off() {
                return Err(Answer::CalledOff);
            }
            let process = hold(&self.roots, order.process)?;
            while !left.is_empty() {
                self.some_calls(&process, &mut left, &mut outcome, &is_off)?;
            }
            Ok(())
        };
        if let Err(answer) = carry_out() {
            outcome.calls.extend(left.into_iter().map(|step| untried(step, answer.clone())));
        }
        outcome
    }
}

/// How long others are let in for a call.
fn pause_wanted(call: &Call) -> Duration {
    let took = Duration::from_nanos(call.took_ns);
    let wanted = match call.step.action {
        Action::Renew(_) => took.min((took / 4).max(PAUSE_RENEWAL)),
        Action::Migrate(_) | Action::Advise(_) | Action::Withdraw(_) => took,
    };
    wanted.min(PAUSE_MAX)
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// The VA space that has the pages is the one that does it. Most processes have one. Only where one says that the pages are not its is the next one asked:
/// another may be that of the process it was forked from, with other memory at the same addresses.
fn ask_each<S>(spaces: &[S], ask: impl Fn(&S) -> Result<(), UvmError>) -> Result<(), UvmError> {
    let mut nowhere = None;
    for space in spaces {
        match ask(space) {
            Err(error @ UvmError::Refused { status: Status::INVALID_ADDRESS, .. }) => nowhere = Some(error),
            answer => return answer,
        }
    }
    nowhere.map_or(Ok(()), Err)
}

fn ask(space: &VaSpace<'_>, action: Action, at: GpuUuid, pages: PageRange) -> Result<(), UvmError> {
    match action {
        Action::Migrate(place) => space.migrate(pages, uuid(place)),
        Action::Renew(gpu) => space.migrate(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::PreferredLocation(place)) => space.set_preferred_location(pages, uuid(place)),
        Action::Withdraw(Advice::PreferredLocation(Place::Host)) => {
            // What the GPU maps of the host's memory stays mapped when the advice goes, and no fault would ever bring it over. A new place loses what it
            // has mapped of elsewhere (`preferred_location_unmap_remote_pages` in `uvm_policy.c`), and copies nothing. Where the driver does not
            // want that, the advice goes all the same.
            let _ = space.set_preferred_location(pages, uuid(Place::Gpu(at)));
            space.unset_preferred_location(pages)
        }
        Action::Withdraw(Advice::PreferredLocation(Place::Gpu(_))) => space.unset_preferred_location(pages),
        Action::Advise(Advice::AccessedBy(gpu)) => space.set_accessed_by(pages, uuid(Place::Gpu(gpu))),
        Action::Withdraw(Advice::AccessedBy(gpu)) => space.unset_accessed_by(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::ReadDuplication) => space.enable_read_duplication(pages),
        Action::Withdraw(Advice::ReadDuplication) => space.disable_read_duplication(pages),
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
