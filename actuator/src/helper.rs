//! Calls by the helper in the process: a command each, in the memory that uvmd shares with it.
//!
//! What the helper reports is about its own process alone; verification rests on the driver's
//! counters.
//!
//! * [`ring`]: the shared memory
//! * [`turn`]: one command at a time
//! * [`cuda_error`]: errors of CUDA

mod cuda_error;
mod ring;
mod turn;

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use call_ring::{
    Command, Commands,
    command::{Action as HelperAction, AgentState, Answer, Busy, NoAnswer, Ticket},
};
use cuda_error::CudaError;
use model::{Action, Advice, CallResult, GpuUuid, Place};
pub(crate) use ring::{Ring, RingError};
use sys::{futex, pidfd::PidFd, uvm::pages::PageRange};
use turn::Turn;

use crate::{
    budget::{Expired, TimeBudget},
    calls::Calls,
    process::answer_to,
};

/// Time for the helper to start its thread, which it does at the next call of the program. One
/// without calls needs nothing prefetched.
const START_MAX: Duration = Duration::from_secs(1);

/// Calls by the helper.
pub(crate) struct HelperCalls<'a, 'b> {
    ring: Ring,
    process: &'a PidFd,
    /// GPU of the order, for actions that name none.
    gpu: GpuUuid,
    budget: &'a mut TimeBudget<'b>,
}

/// Reason why a command has no answer.
#[derive(Debug)]
enum NoResult {
    /// The wait is over.
    Expired(Expired),
    /// Nobody carries it out, for this reason.
    Refused(String),
    /// It may have been carried out.
    Unknown(CallResult),
}

impl From<Expired> for NoResult {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

impl From<RingError> for NoResult {
    fn from(error: RingError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl<'a, 'b> HelperCalls<'a, 'b> {
    /// Calls with a ring of the process.
    pub(crate) const fn new(ring: Ring, process: &'a PidFd, gpu: GpuUuid, budget: &'a mut TimeBudget<'b>) -> Self {
        Self { ring, process, gpu, budget }
    }

    /// Has the helper carry out a command, and adds the time that it took.
    fn carry_out(&mut self, command: &Command, took: &mut Duration) -> Result<Answer, NoResult> {
        let Self { ring, process, budget, .. } = self;
        if budget.is_spent() {
            return Err(NoResult::Unknown(budget.gave_up(Expired::Time)));
        }
        let _turn = turn(process, budget)?;
        let (commands, ticket) = submit(ring, process, budget, command)?;
        let begun = Instant::now();
        let answer = answer(ring, process, budget, ticket).or_else(|error| {
            if commands.revoke(ticket) {
                return Err(match error {
                    NoResult::Expired(_) => NoResult::Refused("its helper did not take the command in time".to_owned()),
                    error => error,
                });
            }
            // There may be one by now.
            commands.answer(ticket).map_err(|_| match error {
                NoResult::Expired(expired) => NoResult::Unknown(left_behind(budget, expired)),
                NoResult::Refused(reason) => NoResult::Unknown(CallResult::Failed(reason)),
                unknown @ NoResult::Unknown(_) => unknown,
            })
        });
        if !matches!(answer, Err(NoResult::Refused(_))) {
            *took = took.saturating_add(begun.elapsed());
        }
        answer
    }
}

impl Calls for HelperCalls<'_, '_> {
    fn make(&mut self, action: Action, pages: PageRange, took: &mut Duration) -> Result<CallResult, CallResult> {
        let (helper_action, gpu) = helper_action(action);
        let (begin, end) = (pages.begin(), pages.begin().saturating_add(pages.bytes()));
        let command = Command { action: helper_action, gpu: gpu.unwrap_or(self.gpu).0, begin, end };
        match self.carry_out(&command, took) {
            Ok(answer) => Ok(result_of(action, answer)),
            Err(NoResult::Refused(reason)) => Err(refused(action, reason)),
            Err(NoResult::Unknown(result)) => Err(result),
            Err(NoResult::Expired(expired)) => Err(self.budget.gave_up(expired)),
        }
    }
}

/// Turn of this worker to submit a command.
fn turn(process: &PidFd, budget: &mut TimeBudget<'_>) -> Result<Turn, NoResult> {
    let turn = budget.wait(Duration::MAX, Instant::now, |at_most| Ok::<_, Expired>(Turn::wait(process.pid(), at_most)));
    turn.map_err(|_| NoResult::Refused("its helper carries out a command of another GPU's worker".to_owned()))
}

/// Submits a command once the last one has an answer, and wakes the helper.
fn submit<'a>(
    ring: &'a Ring,
    process: &PidFd,
    budget: &mut TimeBudget<'_>,
    command: &Command,
) -> Result<(Commands<'a>, Ticket), NoResult> {
    let submitted = budget.wait(Duration::MAX, Instant::now, |at_most| {
        must_live(process)?;
        let commands = ring.commands()?;
        let futex = commands.futex();
        let submitted = commands.submit(command);
        if matches!(submitted, Err(Busy)) {
            wait(futex, at_most);
        }
        Ok(submitted.ok().map(|ticket| (commands, ticket)))
    });
    let (commands, ticket) = submitted.map_err(|error| match error {
        NoResult::Expired(_) => NoResult::Refused("its helper still carries out a former command".to_owned()),
        error => error,
    })?;
    if let Some((word, _)) = commands.futex() {
        futex::wake(word);
    }
    Ok((commands, ticket))
}

/// Waits for the answer to a command.
fn answer(ring: &Ring, process: &PidFd, budget: &mut TimeBudget<'_>, ticket: Ticket) -> Result<Answer, NoResult> {
    let (begun, mut is_taken) = (Instant::now(), false);
    budget.wait(Duration::MAX, Instant::now, |at_most| {
        must_live(process)?;
        let commands = ring.commands()?;
        // Before the look: a change after it ends the wait at once.
        let futex = commands.futex();
        match commands.answer(ticket) {
            Ok(answer) => return Ok(Some(answer)),
            Err(NoAnswer::Taken) => is_taken = true,
            Err(NoAnswer::Pending) if !is_taken => {
                if commands.agent() == AgentState::Absent && begun.elapsed() >= START_MAX {
                    let reason = "its helper has not started its thread: the next call of the program to CUDA does";
                    return Err(NoResult::Refused(reason.to_owned()));
                }
            }
            // A command is taken once.
            Err(NoAnswer::Pending | NoAnswer::Invalid) => {
                let reason = "the process has overwritten the command to its helper, or the answer";
                return Err(NoResult::Unknown(CallResult::Failed(reason.to_owned())));
            }
        }
        wait(futex, at_most);
        Ok(None)
    })
}

/// Waits for another stage of the command, which ends with the process in any case.
fn wait(futex: Option<(&AtomicU64, u32)>, at_most: Duration) {
    if let Some((word, value)) = futex {
        futex::wait(word, value, at_most);
    }
}

fn must_live(process: &PidFd) -> Result<(), NoResult> {
    match process.has_exited() {
        Ok(false) => Ok(()),
        Ok(true) => Err(NoResult::Unknown(CallResult::Exited)),
        Err(error) => Err(NoResult::Unknown(answer_to(&error))),
    }
}

/// Result of a call that the helper carries out when nobody waits for it any more.
fn left_behind(budget: &TimeBudget<'_>, expired: Expired) -> CallResult {
    match budget.gave_up(expired) {
        CallResult::Failed(reason) => CallResult::Failed(format!("{reason}; its helper still carries out the last")),
        other => other,
    }
}

/// Action of the helper, and the GPU that it names.
const fn helper_action(action: Action) -> (HelperAction, Option<GpuUuid>) {
    match action {
        Action::Migrate(Place::Gpu(gpu)) | Action::Touch(gpu) => (HelperAction::PrefetchToGpu, Some(gpu)),
        Action::Migrate(Place::Host) => (HelperAction::PrefetchToHost, None),
        Action::Advise(Advice::PreferredLocation(Place::Gpu(gpu))) => (HelperAction::PreferGpu, Some(gpu)),
        Action::Advise(Advice::PreferredLocation(Place::Host)) => (HelperAction::PreferHost, None),
        Action::Withdraw(Advice::PreferredLocation(_)) => (HelperAction::PreferNowhere, None),
        Action::Advise(Advice::AccessedBy(gpu)) => (HelperAction::AccessByGpu, Some(gpu)),
        Action::Withdraw(Advice::AccessedBy(gpu)) => (HelperAction::NoAccessByGpu, Some(gpu)),
        Action::Advise(Advice::ReadDuplication) => (HelperAction::Duplicate, None),
        Action::Withdraw(Advice::ReadDuplication) => (HelperAction::DoNotDuplicate, None),
    }
}

fn result_of(action: Action, answer: Answer) -> CallResult {
    match (answer, action) {
        (Answer::Done, _) => CallResult::Done,
        (Answer::Failed(error), action) => match (CudaError(error), action) {
            (CudaError::OUT_OF_MEMORY, Action::Migrate(Place::Host)) => CallResult::HostMemory,
            (error, _) => CallResult::Failed(format!("CUDA failed the call: {error}")),
        },
        // Advice may be in force on a part of it. The next inspection reports what is mapped.
        (Answer::NotAllocated, Action::Withdraw(_)) => {
            CallResult::Failed("its helper has not seen all of the memory allocated".to_owned())
        }
        (Answer::NotAllocated, _) => CallResult::NotMapped,
        (Answer::ProgramAdvice, Action::Withdraw(_)) => CallResult::Replaced,
        (Answer::ProgramAdvice, _) => {
            CallResult::Denied("the program has given advice of its own about the memory".to_owned())
        }
        (Answer::NoDevice, action) => refused(action, "the program does not use the GPU".to_owned()),
        (Answer::Unsupported, action) => refused(action, "the CUDA of the program has no such call".to_owned()),
    }
}

/// Result of a call that was not made. Advice that was to be given is not in force then; advice
/// that was to be withdrawn is.
const fn refused(action: Action, reason: String) -> CallResult {
    match action {
        Action::Withdraw(_) => CallResult::Failed(reason),
        Action::Migrate(_) | Action::Touch(_) | Action::Advise(_) => CallResult::Denied(reason),
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
