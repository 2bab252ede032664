//! Execution of commands by driver calls, in a context of the program.
//!
//! A command is executed in parts. Each part, and each driver call, is made within the
//! [gate](crate::gate), so that none coincides with the process's exit. Each part first checks that
//! it is still permitted: since the previous part, the program may have freed the memory, given
//! advice of its own, or destroyed the context, and uvmd may have changed the mode. No context is
//! created, retained, or left current to the thread, and only memory of the program is touched.
//!
//! A prefetch or advice is refused as a whole if a reason is known before its first part. A
//! withdrawal of advice covers each part that permits it, whatever the results of the other parts.

use call_ring::{
    Command, Memory,
    command::{CommandResult, Response},
};

use crate::{
    blocks::{Block, Blocks, TableUnavailable},
    contexts::{context_of, enter_context_of},
    cuda::{CuResult, Handle},
    driver,
    driver_call::{DriverCall, HOST},
    gate::{self, Gate},
    parts::{NotManaged, Parts, Range},
    permission::Permission,
    program_advice::{ProgramAdvice, Subject},
    stream::Stream,
    system,
    watch::Watch,
};

/// Interval of polls for the completion of a prefetch. The driver's own wait would spin.
const POLL_NS: u64 = 50_000;

impl From<NotManaged> for CommandResult {
    fn from(_: NotManaged) -> Self {
        Self::NotAllocated
    }
}

impl From<TableUnavailable> for CommandResult {
    fn from(_: TableUnavailable) -> Self {
        NOT_READY
    }
}

/// Result of a command that did not get through the gate before a timeout or the exit of the
/// process, or whose advice is in force only in part.
const NOT_READY: CommandResult = CommandResult::Failed(CuResult::NOT_READY.0.cast_unsigned());

/// Converts a driver result to that of the command.
fn check_result(result: Option<CuResult>) -> Result<(), CommandResult> {
    match result {
        Some(result) if result.is_ok() => Ok(()),
        Some(CuResult(result)) => Err(CommandResult::Failed(result.cast_unsigned())),
        None => Err(CommandResult::Unsupported),
    }
}

/// Executor of commands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executor {
    pub(crate) memory: Memory<'static>,
    pub(crate) permission: Permission,
    pub(crate) blocks: Blocks,
    /// The program's own advice.
    pub(crate) program_advice: ProgramAdvice,
    /// Gate between the program and the helper's thread.
    pub(crate) gate: Gate,
    pub(crate) stream: Stream,
}

/// Command in progress.
struct Execution<'a> {
    executor: &'a Executor,
    watch: &'a mut Watch,
    /// Count of advice calls made to the driver.
    advice_calls: u64,
}

impl Executor {
    /// Executes a command.
    pub(crate) fn execute(&self, command: &Command, watch: &mut Watch) -> Response {
        let mut execution = Execution { executor: self, watch, advice_calls: 0 };
        let result = match execution.execute(command) {
            Ok(()) => CommandResult::Done,
            Err(CommandResult::Failed(result)) => CommandResult::Failed(result),
            // Advice is in force in part: a failure, not a refusal.
            Err(_) if execution.advice_calls > 0 => NOT_READY,
            Err(result) => result,
        };
        Response { result, advice_calls: execution.advice_calls }
    }

    fn next_managed(&self, address: u64) -> Result<Option<Block>, CommandResult> {
        Ok(self.blocks.next_managed(address)?)
    }

    /// Context of managed memory's allocation; `None` if the memory no longer exists.
    fn context_of(&self, part: Range) -> Result<Option<Handle>, CommandResult> {
        Ok(self.next_managed(part.begin)?.and_then(context_of))
    }

    /// Destroys the stream, which the next command would create again, unless a call of the program
    /// is within the gate.
    pub(crate) fn release_idle(&self) {
        if self.stream.exists()
            && let Ok(_part) = self.gate.begin()
        {
            self.stream.destroy();
        }
    }

    /// Destroys the stream after the last command, with retries for a second, and shuts the gate.
    pub(crate) fn shut_down(&self) {
        self.gate.retry_for_one_second(|| {
            self.release_idle();
            !self.stream.exists()
        });
        self.gate.shut();
    }
}

impl Execution<'_> {
    fn execute(&mut self, &Command { action, gpu, begin, end }: &Command) -> Result<(), CommandResult> {
        let (executor, range) = (self.executor, Range { begin, end });
        // Checks the whole range, so that the command is refused before its first part.
        let mut parts = DriverCall::new(action, HOST).parts(range);
        let mut is_managed = false;
        while parts.next(|address| executor.next_managed(address))?.is_some() {
            is_managed = true;
        }
        if !is_managed {
            return Err(CommandResult::NotAllocated);
        }
        let device = self.device_of(gpu)?;
        let call = DriverCall::new(action, device);
        match call {
            DriverCall::Prefetch { to } => {
                self.check_program_advice(range, Some(Subject::LOCATION))?;
                self.prefetch(call.parts(range), to, device)
            }
            DriverCall::Advise { advice, to } => {
                self.check_program_advice(range, None)?;
                self.advise(call.parts(range), advice, to, device)
            }
            DriverCall::Withdraw { advice, to, preliminary } => {
                self.withdraw(call.parts(range), (advice, preliminary), to, device)
            }
        }
    }

    /// Begins a part, once the gate is free.
    fn begin(&mut self) -> Result<gate::PartGuard, CommandResult> {
        let part = self.watch.begin_part().ok_or(NOT_READY)?;
        if self.executor.permission.is_granted() { Ok(part) } else { Err(CommandResult::NotActing) }
    }

    /// Device of a GPU, found in a part of its own.
    fn device_of(&mut self, gpu: [u8; 16]) -> Result<i32, CommandResult> {
        let _part = self.begin()?;
        // Per thread; only this thread executes commands.
        driver::relax_capture_mode();
        driver::device_by_uuid(gpu).ok_or(CommandResult::NoDevice)
    }

    /// Checks that the program has given no advice on the range: on this subject, or with `None` on
    /// any.
    fn check_program_advice(&self, range: Range, subject: Option<Subject>) -> Result<(), CommandResult> {
        if self.executor.program_advice.overlaps(range, subject) { Err(CommandResult::ProgramAdvice) } else { Ok(()) }
    }

    /// Makes a call in a context of the device, preferably the context of the memory.
    fn within_context<T>(
        &mut self,
        part: Range,
        device: i32,
        call: impl FnOnce(&mut Self, Handle) -> Result<T, CommandResult>,
    ) -> Result<T, CommandResult> {
        let own = self.executor.context_of(part)?.ok_or(CommandResult::NotAllocated)?;
        let context = enter_context_of(&self.executor.blocks, device, own).ok_or(CommandResult::NoDevice)?;
        let result = call(self, context);
        driver::leave_context();
        result
    }

    fn prefetch(&mut self, mut parts: Parts, to: i32, device: i32) -> Result<(), CommandResult> {
        let executor = self.executor;
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            // The block stays allocated during this part, as frees wait at the gate.
            let Some(part) = parts.next(|address| executor.next_managed(address))? else { break };
            self.check_program_advice(part, Some(Subject::LOCATION))?;
            self.within_context(part, device, |execution, context| execution.prefetch_part(part, to, context, device))?;
        }
        Ok(())
    }

    fn prefetch_part(&mut self, part: Range, to: i32, context: Handle, device: i32) -> Result<(), CommandResult> {
        let stream =
            self.executor.stream.get_or_create(context, device).or_else(|result| check_result(result).map(|()| 0))?;
        check_result(driver::prefetch(part.begin, bytes_of(part)?, to, stream))?;
        wait_for_stream(stream, self.watch)
    }

    fn advise(&mut self, mut parts: Parts, advice: u32, to: i32, device: i32) -> Result<(), CommandResult> {
        let executor = self.executor;
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            let Some(part) = parts.next(|address| executor.next_managed(address))? else { break };
            self.check_program_advice(part, None)?;
            self.within_context(part, device, |execution, _| execution.advise_part(part, advice, to))?;
        }
        Ok(())
    }

    fn advise_part(&mut self, part: Range, advice: u32, to: i32) -> Result<(), CommandResult> {
        let result = driver::advise(part.begin, bytes_of(part)?, advice, to);
        self.advice_calls = self.advice_calls.saturating_add(result.is_some().into());
        check_result(result)
    }

    /// Undoes advice in each part in which the program has given none on the same subject.
    /// Continues after a part that fails.
    fn withdraw(
        &mut self,
        mut parts: Parts,
        (advice, preliminary): (u32, Option<u32>),
        to: i32,
        device: i32,
    ) -> Result<(), CommandResult> {
        let executor = self.executor;
        let (subject, _) = Subject::of(advice, to);
        let mut result = Err(CommandResult::NotAllocated);
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            let Some(part) = parts.next(|address| executor.next_managed(address))? else { break };
            if executor.context_of(part)?.is_none() {
                continue;
            }
            let advised = executor.program_advice.first_in(part, subject)?;
            let unadvised = Range { end: advised.map_or(part.end, |advised| advised.begin.min(part.end)), ..part };
            if let Some(advised) = advised {
                parts.skip_to(advised.end);
            }
            let part_result = if unadvised.is_empty() {
                Err(CommandResult::ProgramAdvice)
            } else {
                self.within_context(unadvised, device, |execution, _| {
                    if let Some(preliminary) = preliminary {
                        let _ = execution.advise_part(unadvised, preliminary, to);
                    }
                    execution.advise_part(unadvised, advice, to)
                })
            };
            result = merge_results(result, part_result);
        }
        result
    }
}

/// Merges the results of two parts of a withdrawal. A failure has precedence over success, and
/// success over a reason for which nothing was done.
const fn merge_results(
    before: Result<(), CommandResult>,
    part_result: Result<(), CommandResult>,
) -> Result<(), CommandResult> {
    const fn rank(result: Result<(), CommandResult>) -> u32 {
        match result {
            Err(CommandResult::NotAllocated) => 0,
            Err(CommandResult::ProgramAdvice) => 1,
            Ok(()) => 2,
            Err(_) => 3,
        }
    }
    if rank(part_result) > rank(before) { part_result } else { before }
}

fn bytes_of(part: Range) -> Result<usize, CommandResult> {
    usize::try_from(part.bytes()).map_err(|_| CommandResult::Unsupported)
}

/// Waits until a stream's work is complete, or the thread must end.
fn wait_for_stream(stream: Handle, watch: &mut Watch) -> Result<(), CommandResult> {
    loop {
        match driver::query_stream(stream) {
            Some(CuResult::NOT_READY) if !watch.must_end() => system::sleep(POLL_NS),
            result => return check_result(result),
        }
    }
}

#[cfg(test)]
mod tests;
