//! Commands: prefetches and advice on the program's managed memory that uvmd requests from the helper.
//!
//! There is one command at a time. uvmd writes it and wakes the helper's thread, which takes it, makes
//! the calls, and writes the result; uvmd polls for it. A command that the thread has not taken yet can be revoked, so that
//! it is never carried out late.
//!
//! | words | content |
//! | --- | --- |
//! | `COMMANDS` | [`AgentState`], written by the helper; a cache line of its own |
//! | + 8 | number of the command, with its stage in the 2 lowest bits; a cache line of its own |
//! | + 9 | [`Action`] |
//! | + 10, 11 | UUID of the GPU |
//! | + 12, 13 | begin and end of the range |
//! | + 16 | [`CommandResult`]; a cache line of its own |
//! | + 17 | advice calls made to the driver, including failed ones |
//!
//! The helper validates each command, and uvmd each result: the program can write anything into this
//! memory.

use crate::{
    operation::Operation,
    sync::{AtomicU64, Ordering},
    word::{self, Word, copyable},
};

/// First word of the commands in the header, after the lanes' words.
pub(crate) const COMMANDS: usize = 512;
/// Word of the header that the helper's thread waits for.
pub const FUTEX_WORD: usize = COMMANDS + STAGE;
/// Words of the commands.
pub(crate) const COMMAND_WORDS: usize = 24;

const AGENT: usize = 0;
const STAGE: usize = 8;
const ACTION: usize = 9;
const GPU: usize = 10;
const BEGIN: usize = 12;
const END: usize = 13;
const RESULT: usize = 16;
const ADVICE_CALLS: usize = 17;

/// Operations of a submission.
const SUBMIT_OPERATIONS: usize = 8;
const STAGE_BITS: u32 = 2;
const STAGE_MASK: u64 = (1 << STAGE_BITS) - 1;

/// Stage of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No command, or a revoked one.
    Free = 0,
    /// Submitted, and not taken.
    Pending = 1,
    /// In progress in the helper.
    Taken = 2,
    /// Answered.
    Answered = 3,
}

/// State of the helper's thread that carries out commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Not started: a call of the program starts it once the mode is
    /// [`Mode::Act`](crate::Mode::Act).
    NotStarted = 0,
    /// Waits for commands, or carries one out.
    Running = 1,
    /// Could not be started, or has ended: it carries out no further command.
    Ended = 2,
}

/// Operation of a command on its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Prefetch to the GPU.
    PrefetchToGpu = 1,
    /// Prefetch to the host.
    PrefetchToHost = 2,
    /// Preferred location at the GPU.
    PreferGpu = 3,
    /// Preferred location at the host.
    PreferHost = 4,
    /// No preferred location.
    UnsetPreferredLocation = 5,
    /// Access by the GPU.
    SetAccessedBy = 6,
    /// No access by the GPU.
    UnsetAccessedBy = 7,
    /// Read duplication.
    EnableReadDuplication = 8,
    /// No read duplication.
    DisableReadDuplication = 9,
    /// No preferred location, in place of the host. First sets the GPU as the preferred location: that
    /// removes the GPU's mappings of host memory, as uvmd's ioctls do.
    UnsetPreferredHost = 10,
}

impl Action {
    const ALL: [Self; 10] = [
        Self::PrefetchToGpu,
        Self::PrefetchToHost,
        Self::PreferGpu,
        Self::PreferHost,
        Self::UnsetPreferredLocation,
        Self::SetAccessedBy,
        Self::UnsetAccessedBy,
        Self::EnableReadDuplication,
        Self::DisableReadDuplication,
        Self::UnsetPreferredHost,
    ];

    fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|action| *action as u64 == word)
    }
}

/// Command of uvmd to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Operation.
    pub action: Action,
    /// UUID of the GPU: the program may number its devices differently.
    pub gpu: [u8; 16],
    /// First byte of the range.
    pub begin: u64,
    /// End of the range, exclusive.
    pub end: u64,
}

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// Success.
    Done,
    /// The driver failed with this `CUresult`. The helper itself reports `CUDA_ERROR_NOT_READY` (600) if
    /// calls of the program left no time for the command, or if only part of the advice is in force.
    Failed(u32),
    /// Nothing was done: part of the range, or all of it for commands that unset advice, is in no managed
    /// allocation that the helper has seen.
    NotAllocated,
    /// Nothing was done: the program has set advice of its own on part of the range. For commands that
    /// unset advice: on all of the range, on the same subject.
    ProgramAdvice,
    /// The program has no such GPU, or has allocated nothing on it.
    NoDevice,
    /// The command is invalid, or the driver lacks the function.
    Unsupported,
    /// The mode is not [`Mode::Act`](crate::Mode::Act), or permission to act has ended.
    NotActing,
}

/// Result of a command, with the calls made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Result of the command.
    pub result: CommandResult,
    /// Advice calls made to the driver, including failed ones: one or two for each block.
    pub advice_calls: u64,
}

impl CommandResult {
    /// Word with the kind in the upper half and a `CUresult` in the lower one.
    const fn to_word(self) -> u64 {
        let (kind, result) = match self {
            Self::Done => (1, 0),
            Self::Failed(result) => (2, result),
            Self::NotAllocated => (3, 0),
            Self::ProgramAdvice => (4, 0),
            Self::NoDevice => (5, 0),
            Self::Unsupported => (6, 0),
            Self::NotActing => (7, 0),
        };
        (kind << 32) | result as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    const fn from_word(word: u64) -> Option<Self> {
        match word >> 32 {
            1 => Some(Self::Done),
            2 => Some(Self::Failed(word as u32)),
            3 => Some(Self::NotAllocated),
            4 => Some(Self::ProgramAdvice),
            5 => Some(Self::NoDevice),
            6 => Some(Self::Unsupported),
            7 => Some(Self::NotActing),
            _ => None,
        }
    }
}

/// Number of a submitted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// Reason why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoResponse {
    /// The helper has not taken the command.
    Pending,
    /// The helper carries it out.
    Taken,
    /// The process has overwritten the command, or its result is malformed.
    Invalid,
}

/// A command cannot be submitted: the helper still carries out the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Command slot in the shared memory, or in a copy of it.
#[derive(Debug)]
pub struct Commands<'a, W = AtomicU64> {
    words: &'a [W],
    /// First word in the memory.
    begin: usize,
}

copyable!(Commands);

impl<'a, W: Word> Commands<'a, W> {
    pub(crate) const fn new(words: &'a [W], begin: usize) -> Self {
        Self { words, begin }
    }

    fn load(&self, at: usize) -> u64 {
        word::load(self.words, at)
    }

    /// State of the helper's thread. Unknown values count as ended.
    #[must_use]
    pub fn agent_state(&self) -> AgentState {
        match self.load(AGENT) {
            0 => AgentState::NotStarted,
            1 => AgentState::Running,
            _ => AgentState::Ended,
        }
    }
}

// === uvmd's side ===

/// Writes that submit a command.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// Number of the command, if all operations succeed.
    pub ticket: Ticket,
    /// Operations.
    pub operations: [Operation; SUBMIT_OPERATIONS],
}

impl Commands<'_, u64> {
    const fn store(&self, at: usize, value: u64) -> Operation {
        Operation::Store { at: self.begin + at, value }
    }

    const fn advance(&self, from: u64, to: u64) -> Operation {
        Operation::CompareExchange { at: self.begin + STAGE, from, to }
    }

    /// Submits a command. The caller must be the only submitter, and wakes the helper afterwards. A
    /// pending command of a former uvmd is revoked first.
    ///
    /// # Errors
    /// [`Busy`] while the helper carries out the previous command. The helper may also have taken a pending one
    /// since the copy was made: an operation then fails.
    pub fn submit(&self, command: &Command) -> Result<Submission, Busy> {
        let found = self.load(STAGE);
        if self.is_taken() {
            return Err(Busy);
        }
        let last = Ticket(found >> STAGE_BITS);
        let is_pending = found & STAGE_MASK == Stage::Pending as u64;
        let free = if is_pending { last.stage_word(Stage::Free) } else { found };
        let ticket = Ticket(last.0.wrapping_add(1) & (u64::MAX >> STAGE_BITS));
        let Command { action, gpu, begin, end } = *command;
        let [first, second] = [0, 8].map(|at| gpu.get(at..).and_then(|half| half.first_chunk()).copied());
        let half = |half: Option<[u8; 8]>| u64::from_le_bytes(half.unwrap_or_default());
        let operations = [
            self.advance(found, free),
            self.store(RESULT, 0),
            self.store(ACTION, action as u64),
            self.store(GPU, half(first)),
            self.store(GPU + 1, half(second)),
            self.store(BEGIN, begin),
            self.store(END, end),
            self.advance(free, ticket.stage_word(Stage::Pending)),
        ];
        Ok(Submission { ticket, operations })
    }

    /// Whether the helper carries out a command.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.load(STAGE) & STAGE_MASK == Stage::Taken as u64
    }

    /// Revokes any pending command. The operation fails if the helper has taken it.
    #[must_use]
    pub fn revoke_pending(&self) -> Option<Operation> {
        let last = self.load(STAGE);
        (last & STAGE_MASK == Stage::Pending as u64).then(|| self.revoke(Ticket(last >> STAGE_BITS)))
    }

    /// Revokes a pending command. The operation fails if the helper has taken it.
    #[must_use]
    pub const fn revoke(&self, ticket: Ticket) -> Operation {
        self.advance(ticket.stage_word(Stage::Pending), ticket.stage_word(Stage::Free))
    }

    /// Whether a command was submitted, and nothing has come after it.
    #[must_use]
    pub fn has(&self, ticket: Ticket) -> bool {
        let stage = self.load(STAGE);
        stage >> STAGE_BITS == ticket.0 && stage & STAGE_MASK != Stage::Free as u64
    }

    /// Response to a command. The result is that of a `later` copy, as the words of one are read in any order.
    ///
    /// # Errors
    /// If there is no result, with the reason.
    pub fn response(&self, ticket: Ticket, later: &Self) -> Result<Response, NoResponse> {
        let stage = self.load(STAGE);
        if stage == ticket.stage_word(Stage::Answered) {
            let result = CommandResult::from_word(later.load(RESULT)).ok_or(NoResponse::Invalid)?;
            Ok(Response { result, advice_calls: later.load(ADVICE_CALLS) })
        } else if stage == ticket.stage_word(Stage::Pending) {
            Err(NoResponse::Pending)
        } else if stage == ticket.stage_word(Stage::Taken) {
            Err(NoResponse::Taken)
        } else {
            Err(NoResponse::Invalid)
        }
    }
}

// === The helper's side ===

impl<'a> Commands<'a> {
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    /// Moves the command from one stage to another; false if it is in another stage.
    fn advance(&self, from: u64, to: u64) -> bool {
        let word = self.words.get(STAGE);
        word.is_some_and(|word| word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }

    /// Futex of the helper, and its current value: the lower half of the stage word, which changes
    /// with each stage of each command.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub fn futex(&self) -> Option<(&'a AtomicU64, u32)> {
        self.words.get(STAGE).map(|word| (word, word.load(Ordering::Acquire) as u32))
    }

    /// Sets the state of the helper's thread.
    pub fn set_agent_state(&self, state: AgentState) {
        self.store(AGENT, state as u64);
    }

    /// Takes the pending command, if any. The inner `None` is an invalid command, which must be
    /// answered, too.
    #[must_use]
    pub fn take(&self) -> Option<(Ticket, Option<Command>)> {
        let stage = self.load(STAGE);
        let ticket = Ticket(stage >> STAGE_BITS);
        if stage != ticket.stage_word(Stage::Pending) || !self.advance(stage, ticket.stage_word(Stage::Taken)) {
            return None;
        }
        let mut gpu = [0; 16];
        for (at, half) in gpu.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = self.load(GPU + at).to_le_bytes();
        }
        let (begin, end) = (self.load(BEGIN), self.load(END));
        let action = Action::from_word(self.load(ACTION)).filter(|_| begin < end);
        Some((ticket, action.map(|action| Command { action, gpu, begin, end })))
    }

    /// Answers a command that was taken.
    pub fn respond(&self, ticket: Ticket, Response { result, advice_calls }: Response) {
        self.store(RESULT, result.to_word());
        self.store(ADVICE_CALLS, advice_calls);
        let _ = self.advance(ticket.stage_word(Stage::Taken), ticket.stage_word(Stage::Answered));
    }
}

impl Ticket {
    /// Stage word of this command.
    const fn stage_word(self, stage: Stage) -> u64 {
        self.0 << STAGE_BITS | stage as u64
    }
}
