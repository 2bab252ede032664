//! Commands, carried out: as calls of the driver in a context that the program has.
//!
//! A command is carried out in parts, each within the [gate](crate::gate), after a look at whether
//! it may be: the program may have freed the memory, given advice of its own, or ended the context
//! between two of them, and uvmd may have withdrawn the mode. No context is made or retained, none
//! stays current to the thread, and memory that a command names beyond the program's own is not
//! touched.

use call_ring::{
    Command, Memory, Mode,
    command::{Action, Answer},
};

use crate::{
    advised::{Advised, Subject},
    blocks::{Block, Blocks},
    cuda::{CuResult, Handle},
    driver,
    gate::{self, Closed, Gate},
    headroom,
    parts::{NotManaged, Parts, Range},
    stream::Stream,
    system,
    watch::Watch,
};

/// Most bytes of a prefetch, behind which the program's calls have their turn: some 2 ms of a fast
/// link.
const PREFETCH_BYTES_MAX: u64 = 32 << 20;
/// Time between looks at whether a prefetch is done. The driver's own wait would use a processor.
const POLL_NS: u64 = 50_000;
/// Looks at the gate before a command is answered that the program's calls leave no time for: a
/// second.
const TURNS_MAX: u32 = 10_000;
const TURN_NS: u64 = 100_000;

/// Host, as a device.
const HOST: i32 = -1;

/// Call of the driver for an action.
#[derive(Clone, Copy, Debug)]
enum Call {
    Prefetch { to: i32 },
    Advise { advice: u32, to: i32 },
}

impl Call {
    /// Call for an action about a device, with the numbers of `CUmem_advise`.
    const fn new(action: Action, device: i32) -> Self {
        let (advice, to) = match action {
            Action::PrefetchToGpu => return Self::Prefetch { to: device },
            Action::PrefetchToHost => return Self::Prefetch { to: HOST },
            Action::Duplicate => (1, device),
            Action::DoNotDuplicate => (2, device),
            Action::PreferGpu => (3, device),
            Action::PreferHost => (3, HOST),
            Action::PreferNowhere => (4, device),
            Action::AccessByGpu => (5, device),
            Action::NoAccessByGpu => (6, device),
        };
        Self::Advise { advice, to }
    }

    /// Advice of the program that forbids it: any about the same memory; of a prefetch, a place
    /// where the program wants the memory.
    const fn forbidding(self) -> Option<Subject> {
        match self {
            Self::Prefetch { .. } => Some(Subject::LOCATION),
            Self::Advise { .. } => None,
        }
    }

    /// Parts of a range. Advice is given at once, as each part would be a range of its own to the
    /// driver.
    const fn parts(self, range: Range) -> Parts {
        Parts::new(
            range,
            match self {
                Self::Prefetch { .. } => PREFETCH_BYTES_MAX,
                Self::Advise { .. } => 1 << 63,
            },
        )
    }
}

impl From<NotManaged> for Answer {
    fn from(_: NotManaged) -> Self {
        Self::NotAllocated
    }
}

/// Answer to a command that the program's calls leave no time for, and to one beside an exit.
const NOT_READY: Answer = Answer::Failed(CuResult::NOT_READY.0.cast_unsigned());
/// Answer to a prefetch for which the program's cgroup, at whose limit the kernel kills, has no
/// room.
const OUT_OF_MEMORY: Answer = Answer::Failed(2);

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
pub(crate) struct Acting {
    pub(crate) memory: Memory<'static>,
    pub(crate) blocks: Blocks,
    /// Advice of the program's own.
    pub(crate) advised: Advised,
    /// Between the program and the helper's thread.
    pub(crate) gate: Gate,
    pub(crate) stream: Stream,
}

impl Acting {
    /// Carries a command out, and answers.
    pub(crate) fn carry_out(&self, command: &Command, watch: &mut Watch) -> Answer {
        self.try_to(command, watch).err().unwrap_or(Answer::Done)
    }

    fn try_to(&self, command: &Command, watch: &mut Watch) -> Result<(), Answer> {
        let &Command { action, gpu, begin, end } = command;
        let range = Range { begin, end };
        let find = |address| self.blocks.managed_from(address);
        // All or nothing, as far as that can be known before.
        let mut parts = Call::new(action, HOST).parts(range);
        while parts.next(find)?.is_some() {}
        let device = driver::device_of(gpu).ok_or(Answer::NoDevice)?;
        let call = Call::new(action, device);
        self.check_advice(call, range)?;
        let mut parts = call.parts(range);
        while let Some(part) = parts.next(find)? {
            self.carry_out_part(call, device, part, watch)?;
        }
        Ok(())
    }

    fn check_advice(&self, call: Call, range: Range) -> Result<(), Answer> {
        if self.advised.has(range, call.forbidding()) { Err(Answer::ProgramAdvice) } else { Ok(()) }
    }

    /// Waits for its turn at the gate.
    fn begin(&self, watch: &mut Watch) -> Result<gate::Part, Answer> {
        for _ in 0..TURNS_MAX {
            match self.gate.begin() {
                Ok(part) => return Ok(part),
                Err(Closed::Calls) if !watch.is_over() => system::sleep(TURN_NS),
                Err(_) => break,
            }
        }
        Err(NOT_READY)
    }

    fn carry_out_part(&self, call: Call, device: i32, part: Range, watch: &mut Watch) -> Result<(), Answer> {
        let _part = self.begin(watch)?;
        if self.memory.mode() != Mode::Act {
            return Err(Answer::Unsupported);
        }
        // As it is now, which it stays until the end of this part.
        let block = self.blocks.managed_from(part.begin);
        let is_within = |block: &Block| block.begin <= part.begin && part.end <= block.end;
        let own = block.filter(is_within).and_then(context_of).ok_or(Answer::NotAllocated)?;
        self.check_advice(call, part)?;
        let context = self.enter_context_of(device, own).ok_or(Answer::NoDevice)?;
        let result = self.make(call, context, device, part, watch);
        driver::leave_context();
        result
    }

    /// Makes a context of a device current that the program allocated memory in: the memory's own,
    /// or another.
    fn enter_context_of(&self, device: i32, own: Handle) -> Option<Handle> {
        let next = |block: &Block| self.blocks.of_next_context(block.context);
        let others = core::iter::successors(self.blocks.of_next_context(0), next).filter_map(context_of);
        let mut contexts = core::iter::once(own).chain(others);
        let found = contexts.find(|context| driver::enter_context(*context) == Some(device));
        if found.is_none() {
            driver::leave_context();
        }
        found
    }

    fn make(&self, call: Call, context: Handle, device: i32, part: Range, watch: &mut Watch) -> Result<(), Answer> {
        let bytes = usize::try_from(part.bytes()).map_err(|_| Answer::Unsupported)?;
        match call {
            Call::Advise { advice, to } => done(driver::advise(part.begin, bytes, advice, to)),
            Call::Prefetch { to } => {
                // Either way: what moves to the GPU may evict other memory to the host.
                if !headroom::has_room(part.bytes(), 0) {
                    return Err(OUT_OF_MEMORY);
                }
                let stream = self.stream.of(context, device).or_else(|result| done(result).map(|()| 0))?;
                done(driver::prefetch(part.begin, bytes, to, stream))?;
                wait_for(stream, watch)
            }
        }
    }

    /// Gives back what is made anew for the next command, unless calls of the program are within
    /// the gate.
    pub(crate) fn rest(&self) {
        if self.stream.is_there()
            && let Ok(_part) = self.gate.begin()
        {
            self.stream.destroy();
        }
    }

    /// Gives it back for good: there are no more commands.
    pub(crate) fn end(&self) {
        for _ in 0..TURNS_MAX {
            self.rest();
            if !self.stream.is_there() || self.gate.is_shut() {
                break;
            }
            system::sleep(TURN_NS);
        }
        self.gate.shut();
    }
}

fn context_of(block: Block) -> Option<Handle> {
    driver::context_of(block.begin, block.context)
}

/// Waits until a stream's work is done.
fn wait_for(stream: Handle, watch: &mut Watch) -> Result<(), Answer> {
    loop {
        match driver::result_of(stream) {
            Some(CuResult::NOT_READY) if !watch.is_over() => system::sleep(POLL_NS),
            result => return done(result),
        }
    }
}
