//! Commands, carried out: as calls of the driver in a context that the program has.
//!
//! A command is carried out in parts, each within the [gate](crate::gate), as is every call of the
//! driver: an exit of the process meets none. Each part begins with a look at whether it may be: the
//! program may have freed the memory, given advice of its own, or ended the context between two of
//! them, and uvmd may have withdrawn the mode. No context is made or retained, none stays current to
//! the thread, and memory that a command names beyond the program's own is not touched.
//!
//! Prefetches and advice are refused before the first part, if that can be known. What undoes advice
//! is never refused for a part of the range: it is done wherever there is something to undo.

use call_ring::{
    Command, Memory,
    command::{Answer, Response},
};

use crate::{
    advised::{Advised, Subject},
    blocks::{Block, Blocks, Unknown},
    calls::{Calls, HOST},
    contexts::{context_of, enter_context_of},
    cuda::{CuResult, Handle},
    driver,
    gate::{self, Gate},
    parts::{NotManaged, Parts, Range},
    permission::Permission,
    stream::Stream,
    system,
    watch::Watch,
};

/// Time between looks at whether a prefetch is done. The driver's own wait would use a processor.
const POLL_NS: u64 = 50_000;

impl From<NotManaged> for Answer {
    fn from(_: NotManaged) -> Self {
        Self::NotAllocated
    }
}

impl From<Unknown> for Answer {
    fn from(_: Unknown) -> Self {
        NOT_READY
    }
}

/// Answer to a command that the program's calls leave no time for, to one beside an exit, and to
/// advice that is in force in part.
const NOT_READY: Answer = Answer::Failed(CuResult::NOT_READY.0.cast_unsigned());

/// Success of the driver, or the answer otherwise.
fn done(result: Option<CuResult>) -> Result<(), Answer> {
    match result {
        Some(result) if result.is_ok() => Ok(()),
        Some(CuResult(result)) => Err(Answer::Failed(result.cast_unsigned())),
        None => Err(Answer::Unsupported),
    }
}

/// What carrying out a command takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executor {
    pub(crate) memory: Memory<'static>,
    pub(crate) permission: Permission,
    pub(crate) blocks: Blocks,
    /// Advice of the program's own.
    pub(crate) advised: Advised,
    /// Between the program and the helper's thread.
    pub(crate) gate: Gate,
    pub(crate) stream: Stream,
}

/// A command at work.
struct Work<'a> {
    executor: &'a Executor,
    watch: &'a mut Watch,
    /// Advice calls of the driver that were made.
    advice_calls: u64,
}

impl Executor {
    /// Carries a command out.
    pub(crate) fn execute(&self, command: &Command, watch: &mut Watch) -> Response {
        let mut work = Work { executor: self, watch, advice_calls: 0 };
        let answer = match work.execute(command) {
            Ok(()) => Answer::Done,
            Err(Answer::Failed(result)) => Answer::Failed(result),
            // Something was done: that is no refusal.
            Err(_) if work.advice_calls > 0 => NOT_READY,
            Err(answer) => answer,
        };
        Response { answer, advice_calls: work.advice_calls }
    }

    fn managed_from(&self, address: u64) -> Result<Option<Block>, Answer> {
        Ok(self.blocks.managed_from(address)?)
    }

    /// Context that managed memory was allocated in; `None` if it is there no more.
    fn context_of(&self, part: Range) -> Result<Option<Handle>, Answer> {
        Ok(self.managed_from(part.begin)?.and_then(context_of))
    }

    /// Gives back what is made anew for the next command, unless calls of the program are within
    /// the gate.
    pub(crate) fn release_idle(&self) {
        if self.stream.exists()
            && let Ok(_part) = self.gate.begin()
        {
            self.stream.destroy();
        }
    }

    /// Gives it back for good: there are no more commands.
    pub(crate) fn shut_down(&self) {
        self.gate.try_for_a_second(|| {
            self.release_idle();
            !self.stream.exists()
        });
        self.gate.shut();
    }
}

impl Work<'_> {
    fn execute(&mut self, &Command { action, gpu, begin, end }: &Command) -> Result<(), Answer> {
        let (executor, range) = (self.executor, Range { begin, end });
        // All or nothing, as far as that can be known before.
        let mut parts = Calls::new(action, HOST).parts(range);
        let mut is_managed = false;
        while parts.next(|address| executor.managed_from(address))?.is_some() {
            is_managed = true;
        }
        if !is_managed {
            return Err(Answer::NotAllocated);
        }
        let device = self.device_of(gpu)?;
        let calls = Calls::new(action, device);
        match calls {
            Calls::Prefetch { to } => {
                self.check_advice(range, Some(Subject::LOCATION))?;
                self.prefetch(calls.parts(range), to, device)
            }
            Calls::Advise { advice, to } => {
                self.check_advice(range, None)?;
                self.advise(calls.parts(range), advice, to, device)
            }
            Calls::Withdraw { advice, to, before } => self.withdraw(calls.parts(range), (advice, before), to, device),
        }
    }

    /// Begins a part, once it is its turn at the gate.
    fn begin(&mut self) -> Result<gate::Part, Answer> {
        let part = self.watch.begin_part().ok_or(NOT_READY)?;
        if self.executor.permission.is_given() { Ok(part) } else { Err(Answer::NotActing) }
    }

    /// Device of a GPU, in a part of its own.
    fn device_of(&mut self, gpu: [u8; 16]) -> Result<i32, Answer> {
        let _part = self.begin()?;
        // For this thread, which is the only one that carries out commands.
        driver::relax_capture_mode();
        driver::device_of(gpu).ok_or(Answer::NoDevice)
    }

    /// Whether the program's advice permits a call: on a subject, as on the place where the program
    /// wants the memory, or any.
    fn check_advice(&self, range: Range, subject: Option<Subject>) -> Result<(), Answer> {
        if self.executor.advised.has(range, subject) { Err(Answer::ProgramAdvice) } else { Ok(()) }
    }

    /// Makes a call in a context of the device.
    fn within_context<T>(
        &mut self,
        part: Range,
        device: i32,
        call: impl FnOnce(&mut Self, Handle) -> Result<T, Answer>,
    ) -> Result<T, Answer> {
        let own = self.executor.context_of(part)?.ok_or(Answer::NotAllocated)?;
        let context = enter_context_of(&self.executor.blocks, device, own).ok_or(Answer::NoDevice)?;
        let result = call(self, context);
        driver::leave_context();
        result
    }

    fn prefetch(&mut self, mut parts: Parts, to: i32, device: i32) -> Result<(), Answer> {
        let executor = self.executor;
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            // As it is now, which it stays until the end of this part.
            let Some(part) = parts.next(|address| executor.managed_from(address))? else { break };
            self.check_advice(part, Some(Subject::LOCATION))?;
            self.within_context(part, device, |work, context| work.prefetch_part(part, to, context, device))?;
        }
        Ok(())
    }

    fn prefetch_part(&mut self, part: Range, to: i32, context: Handle, device: i32) -> Result<(), Answer> {
        let stream = self.executor.stream.get_or_create(context, device).or_else(|result| done(result).map(|()| 0))?;
        done(driver::prefetch(part.begin, bytes_of(part)?, to, stream))?;
        wait_for(stream, self.watch)
    }

    fn advise(&mut self, mut parts: Parts, advice: u32, to: i32, device: i32) -> Result<(), Answer> {
        let executor = self.executor;
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            let Some(part) = parts.next(|address| executor.managed_from(address))? else { break };
            self.check_advice(part, None)?;
            self.within_context(part, device, |work, _| work.advise_part(part, advice, to))?;
        }
        Ok(())
    }

    fn advise_part(&mut self, part: Range, advice: u32, to: i32) -> Result<(), Answer> {
        let result = driver::advise(part.begin, bytes_of(part)?, advice, to);
        self.advice_calls = self.advice_calls.saturating_add(result.is_some().into());
        done(result)
    }

    /// Undoes advice wherever the program has given none on the same subject, whatever comes of a
    /// part.
    fn withdraw(
        &mut self,
        mut parts: Parts,
        (advice, before): (u32, Option<u32>),
        to: i32,
        device: i32,
    ) -> Result<(), Answer> {
        let executor = self.executor;
        let (subject, _) = Subject::of(advice, to);
        let mut result = Err(Answer::NotAllocated);
        while !parts.is_exhausted() {
            let _part = self.begin()?;
            let Some(part) = parts.next(|address| executor.managed_from(address))? else { break };
            if executor.context_of(part)?.is_none() {
                continue;
            }
            let own = executor.advised.first(part, subject)?;
            let bare = Range { end: own.map_or(part.end, |own| own.begin.min(part.end)), ..part };
            if let Some(own) = own {
                parts.skip_to(own.end);
            }
            let of_part = if bare.is_empty() {
                Err(Answer::ProgramAdvice)
            } else {
                self.within_context(bare, device, |work, _| {
                    if let Some(before) = before {
                        let _ = work.advise_part(bare, before, to);
                    }
                    work.advise_part(bare, advice, to)
                })
            };
            result = worst_of(result, of_part);
        }
        result
    }
}

/// What came of a withdrawal, of that of what is before a part, and of that of the part: a failure,
/// or else what was done, or else why nothing was.
const fn worst_of(before: Result<(), Answer>, of_part: Result<(), Answer>) -> Result<(), Answer> {
    const fn rank(result: Result<(), Answer>) -> u32 {
        match result {
            Err(Answer::NotAllocated) => 0,
            Err(Answer::ProgramAdvice) => 1,
            Ok(()) => 2,
            Err(_) => 3,
        }
    }
    if rank(of_part) > rank(before) { of_part } else { before }
}

fn bytes_of(part: Range) -> Result<usize, Answer> {
    usize::try_from(part.bytes()).map_err(|_| Answer::Unsupported)
}

/// Waits until a stream's work is done.
fn wait_for(stream: Handle, watch: &mut Watch) -> Result<(), Answer> {
    loop {
        match driver::result_of(stream) {
            Some(CuResult::NOT_READY) if !watch.must_end() => system::sleep(POLL_NS),
            result => return done(result),
        }
    }
}

#[cfg(test)]
mod tests;
