//! Calls by the helper in the process: each is a command in the memory that it shares with uvmd.
//!
//! What the helper reports is about its own process alone; verification rests on the driver's
//! counters.
//!
//! * [`ring`]: the shared memory
//! * [`command_lock`]: one command at a time
//! * [`stuck`]: commands in progress whose caller has given up
//! * [`cuda_error`]: errors of CUDA

mod command_lock;
mod cuda_error;
mod ring;
mod stuck;

use std::{
    thread,
    time::{Duration, Instant},
};

use call_ring::{
    Command,
    command::{Action as HelperAction, AgentState, CommandResult, NoResponse, Response, Ticket},
};
use command_lock::CommandLock;
use cuda_error::CudaError;
use model::{Action, Advice, CallResult, GpuUuid, Place, ProcessId};
pub(crate) use ring::{Ring, RingError};
use stuck::CommandState;
use sys::{Roots, pidfd::PidFd, uvm::pages::PageRange};

use crate::{
    budget::{Expired, TimeBudget},
    calls::{Calls, Cost},
    process::open_error_result,
};

/// Time limit for the helper to take a command, for which its thread waits.
const TAKE_MAX: Duration = Duration::from_secs(5);
/// First and longest pause between two reads of the command's stage. Each pause is twice the one before.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// Reasons why a command is refused.
const NOT_STARTED: &str = "its helper has not started its thread: the next CUDA call of the program starts it";
const NOT_TAKEN: &str = "its helper did not take the command in time";
const BUSY: &str = "its helper still executes an earlier command";

/// Process with a helper.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) id: ProcessId,
    pub(crate) process: &'a PidFd,
}

/// Calls by the helper.
pub(crate) struct HelperCalls<'a, 'b> {
    ring: Ring,
    program: Program<'a>,
    /// GPU of the order, for actions that name none.
    gpu: GpuUuid,
    budget: &'a mut TimeBudget<'b>,
}

/// Reason why a command has no result.
#[derive(Debug)]
enum CommandError {
    /// The wait is over.
    Expired(Expired),
    /// It is not carried out, for this reason.
    Refused(String),
    /// It may have been carried out.
    Unknown(CallResult),
}

impl From<Expired> for CommandError {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

impl From<RingError> for CommandError {
    fn from(error: RingError) -> Self {
        match error {
            RingError::Unconfirmed(_) => Self::Unknown(CallResult::Failed(error.to_string())),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl<'a, 'b> HelperCalls<'a, 'b> {
    /// Calls with a ring of the process.
    pub(crate) const fn new(ring: Ring, program: Program<'a>, gpu: GpuUuid, budget: &'a mut TimeBudget<'b>) -> Self {
        Self { ring, program, gpu, budget }
    }

    /// Makes the helper carry out a command, and adds its cost.
    fn execute(
        &mut self,
        command: &Command,
        is_withdrawal: bool,
        cost: &mut Cost,
    ) -> Result<CommandResult, CommandError> {
        let Self { ring, program, budget, .. } = self;
        let process = program.process;
        if budget.is_spent() {
            return Err(CommandError::Unknown(budget.expiry_result(Expired::Time)));
        }
        let _lock = lock_commands(process, budget)?;
        let spent_before = budget.spent();
        // Only waits of withdrawals are added: their sum is limited.
        let record_stuck = |ticket, budget: &TimeBudget<'_>| {
            let waited = if is_withdrawal { budget.spent().saturating_sub(spent_before) } else { Duration::ZERO };
            stuck::record(program.roots, program.id, ticket, waited);
        };
        match stuck::revoke_pending(program.id, ring)? {
            CommandState::Idle { late_advice_calls } => cost.add_advice_calls(late_advice_calls),
            // The command in progress has cost its GPU's worker enough.
            CommandState::InProgress(Some(_)) => return Err(CommandError::Refused(BUSY.to_owned())),
            // Command of a former uvmd.
            CommandState::InProgress(None) => {}
        }
        // The mode is set, so the next call of the program to CUDA starts the thread, and the next
        // order finds it. A program without calls needs no actions.
        if ring.agent_state()? == AgentState::NotStarted {
            return Err(CommandError::Refused(NOT_STARTED.to_owned()));
        }
        let ticket = submit(ring, process, budget, command).inspect_err(|error| {
            if matches!(error, CommandError::Expired(_) | CommandError::Unknown(CallResult::Failed(_))) {
                record_stuck(None, budget);
            }
        })?;
        let begun = Instant::now();
        let response = response(ring, process, budget, ticket).or_else(|error| {
            // Of a ring that is not accessible, nothing is known.
            if ring.revoke(ticket).unwrap_or(false) {
                return Err(match error {
                    CommandError::Expired(_) => CommandError::Refused(NOT_TAKEN.to_owned()),
                    error => error,
                });
            }
            // The response may have come just now.
            let may_be_in_progress = match ring.response(ticket) {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(no_answer)) => no_answer == NoResponse::Taken,
                Err(error) => error.is_of_access(),
            };
            if may_be_in_progress {
                record_stuck(Some(ticket), budget);
            }
            Err(match error {
                CommandError::Expired(expired) => CommandError::Unknown(abandoned(budget, expired)),
                CommandError::Refused(reason) => CommandError::Unknown(CallResult::Failed(reason)),
                unknown @ CommandError::Unknown(_) => unknown,
            })
        });
        if !matches!(response, Err(CommandError::Refused(_))) {
            cost.took = cost.took.saturating_add(begun.elapsed());
        }
        // Failed calls count, too.
        response.map(|Response { result, advice_calls }| {
            cost.add_advice_calls(advice_calls);
            result
        })
    }
}

impl Calls for HelperCalls<'_, '_> {
    fn make(&mut self, action: Action, pages: PageRange, cost: &mut Cost) -> Result<CallResult, CallResult> {
        let (helper_action, gpu) = helper_action(action);
        let (begin, end) = (pages.begin(), pages.begin().saturating_add(pages.bytes()));
        let command = Command { action: helper_action, gpu: gpu.unwrap_or(self.gpu).0, begin, end };
        match self.execute(&command, matches!(action, Action::Withdraw(_)), cost) {
            Ok(result) => Ok(result_of(action, result)),
            Err(CommandError::Refused(reason)) => Err(refused(action, reason)),
            Err(CommandError::Unknown(result)) => Err(result),
            Err(CommandError::Expired(_)) => Err(refused(action, BUSY.to_owned())),
        }
    }
}

/// Waits before a withdrawal by ioctls until the helper carries out no command, which might give its
/// advice again. A command that the helper has not taken is revoked. Returns the number of advice
/// calls of an earlier command whose caller gave up.
///
/// The process may never end its command. Withdrawals therefore wait for it no longer than the time
/// of one order, all together.
///
/// # Errors
/// Result of the withdrawal, if a command is still in progress, or the process has exited.
pub(crate) fn wait_until_idle(
    ring: &Result<Ring, RingError>,
    program: Program<'_>,
    budget: &mut TimeBudget<'_>,
) -> Result<u64, CallResult> {
    let (total, spent_before) = (budget.total(), budget.spent());
    let idle = lock_commands(program.process, budget).and_then(|_lock| {
        // Nothing is known of the command while the ring is not accessible.
        let inaccessible = || Err(stuck::waited(program.id));
        let waited = || {
            let Ok(ring) = ring else { return inaccessible() };
            match stuck::revoke_pending(program.id, ring) {
                Ok(CommandState::InProgress(stuck)) => Err(stuck.unwrap_or_default().waited),
                Ok(CommandState::Idle { late_advice_calls }) => Ok(late_advice_calls),
                Err(error) if error.is_of_access() => inaccessible(),
                // The helper of a process that overwrites its ring carries out no command.
                Err(_) => Ok(0),
            }
        };
        let at_most = match waited() {
            Ok(late_advice_calls) => return Ok(Some(late_advice_calls)),
            Err(waited) => total.saturating_sub(waited),
        };
        if at_most.is_zero() {
            return Ok(None);
        }
        let mut pauses = Pauses::default();
        let ended = budget.wait(at_most, Instant::now, |at_most| {
            check_alive(program.process)?;
            if let Ok(late_advice_calls) = waited() {
                return Ok(Some(late_advice_calls));
            }
            pauses.wait(at_most);
            Ok(None)
        });
        match ended {
            Err(CommandError::Expired(Expired::Time)) if !budget.is_spent() => Ok(None),
            ended => ended.map(Some),
        }
    });
    let record_stuck = |budget: &TimeBudget<'_>| {
        stuck::record(program.roots, program.id, None, budget.spent().saturating_sub(spent_before));
    };
    match idle {
        Ok(Some(late_advice_calls)) => Ok(late_advice_calls),
        Ok(None) => {
            record_stuck(budget);
            let pid = program.id.pid;
            let why = ring.as_ref().map_or_else(RingError::to_string, |_| "it does not complete a command".to_owned());
            tracing::warn!(
                "helper of process {pid}: {why}: its advice is withdrawn by ioctl, and a command may give it again"
            );
            Ok(0)
        }
        Err(CommandError::Unknown(result)) => Err(result),
        Err(CommandError::Expired(_) | CommandError::Refused(_)) => {
            record_stuck(budget);
            let why = ring.as_ref().map_or_else(RingError::to_string, |_| BUSY.to_owned());
            Err(CallResult::Failed(why))
        }
    }
}

/// Turn of this worker to submit a command.
fn lock_commands(process: &PidFd, budget: &mut TimeBudget<'_>) -> Result<CommandLock, CommandError> {
    let lock = budget
        .wait(Duration::MAX, Instant::now, |at_most| Ok::<_, Expired>(CommandLock::acquire(process.pid(), at_most)));
    lock.map_err(|_| CommandError::Refused("its helper executes a command for another GPU".to_owned()))
}

/// Submits a command once the last one has a result, and wakes the helper.
fn submit(
    ring: &Ring,
    process: &PidFd,
    budget: &mut TimeBudget<'_>,
    command: &Command,
) -> Result<Ticket, CommandError> {
    let mut pauses = Pauses::default();
    budget.wait(Duration::MAX, Instant::now, |at_most| {
        check_alive(process)?;
        let submitted = ring.submit(command)?.ok();
        if submitted.is_none() {
            pauses.wait(at_most);
        }
        Ok::<_, CommandError>(submitted)
    })
}

/// Waits for the response to a command.
fn response(
    ring: &Ring,
    process: &PidFd,
    budget: &mut TimeBudget<'_>,
    ticket: Ticket,
) -> Result<Response, CommandError> {
    let (begun, mut is_taken, mut pauses) = (Instant::now(), false, Pauses::default());
    budget.wait(Duration::MAX, Instant::now, |at_most| {
        check_alive(process)?;
        match ring.response(ticket)? {
            Ok(response) => return Ok(Some(response)),
            Err(NoResponse::Taken) => is_taken = true,
            Err(NoResponse::Pending) if !is_taken => {
                if begun.elapsed() >= TAKE_MAX {
                    return Err(CommandError::Refused(NOT_TAKEN.to_owned()));
                }
            }
            // A command that was taken stays taken.
            Err(NoResponse::Pending | NoResponse::Invalid) => {
                let reason = "the process has overwritten the command to its helper, or the result";
                return Err(CommandError::Unknown(CallResult::Failed(reason.to_owned())));
            }
        }
        pauses.wait(at_most);
        Ok(None)
    })
}

/// Pauses between reads of the stage of a command, each longer than the last.
struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE_MIN }
    }
}

impl Pauses {
    /// Waits for the next stage of the command.
    fn wait(&mut self, at_most: Duration) {
        thread::sleep(self.next.min(at_most));
        self.next = (2 * self.next).min(PAUSE_MAX);
    }
}

fn check_alive(process: &PidFd) -> Result<(), CommandError> {
    match process.has_exited() {
        Ok(false) => Ok(()),
        Ok(true) => Err(CommandError::Unknown(CallResult::Exited)),
        Err(error) => Err(CommandError::Unknown(open_error_result(&error))),
    }
}

/// Result of a call that the helper still carries out, and that uvmd no longer waits for.
fn abandoned(budget: &TimeBudget<'_>, expired: Expired) -> CallResult {
    match budget.expiry_result(expired) {
        CallResult::Failed(reason) => CallResult::Failed(format!("{reason}; its helper still executes the last call")),
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
        Action::Withdraw(Advice::PreferredLocation(Place::Gpu(_))) => (HelperAction::UnsetPreferredLocation, None),
        // The command names the order's GPU.
        Action::Withdraw(Advice::PreferredLocation(Place::Host)) => (HelperAction::UnsetPreferredHost, None),
        Action::Advise(Advice::AccessedBy(gpu)) => (HelperAction::SetAccessedBy, Some(gpu)),
        Action::Withdraw(Advice::AccessedBy(gpu)) => (HelperAction::UnsetAccessedBy, Some(gpu)),
        Action::Advise(Advice::ReadDuplication) => (HelperAction::EnableReadDuplication, None),
        Action::Withdraw(Advice::ReadDuplication) => (HelperAction::DisableReadDuplication, None),
    }
}

fn result_of(action: Action, result: CommandResult) -> CallResult {
    match (result, action) {
        (CommandResult::Done, _) => CallResult::Done,
        (CommandResult::Failed(error), action) => match (CudaError(error), action) {
            (CudaError::OUT_OF_MEMORY, Action::Migrate(Place::Host)) => CallResult::HostMemory,
            (error, _) => CallResult::Failed(format!("CUDA failed the call: {error}")),
        },
        // For a withdrawal: no managed memory is left there.
        (CommandResult::NotAllocated, _) => CallResult::NotMapped,
        (CommandResult::ProgramAdvice, Action::Withdraw(_)) => CallResult::Replaced,
        (CommandResult::ProgramAdvice, _) => {
            CallResult::Denied("the program has given its own advice on the memory".to_owned())
        }
        (CommandResult::NoDevice, action) => refused(action, "the program does not use the GPU".to_owned()),
        (CommandResult::Unsupported, action) => {
            refused(action, "the CUDA version of the program lacks this call".to_owned())
        }
        (CommandResult::NotActing, action) => {
            refused(action, "its helper no longer acts: its mode has changed".to_owned())
        }
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
