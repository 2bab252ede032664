//! Plan: a schedule of moves of managed memory at the launches of a repeated iteration. uvmd writes it,
//! and the helper follows it. Its shared memory is separate from the ring, whose layout stays the same.
//!
//! | words | content |
//! | --- | --- |
//! | 0 | [`MAGIC`] |
//! | 1 | major version, minor version, each 32 bits |
//! | 2 | size of the memory in bytes |
//! | 8 | heartbeat: time of uvmd's monotonic clock, written once a second; a cache line of its own |
//! | 16 | generation of the plan, odd while it is written; a cache line of its own |
//! | 24 | generation that the helper has adopted or refused, and its [`State`]; a cache line of its own |
//! | 32–39 | [`Counters`], written by the helper |
//! | 64, 65 | UUID of the GPU |
//! | 66 | number (32 bits) of a launch at which an iteration begins |
//! | 67 | period: launches of an iteration |
//! | 68 | count of moves |
//! | 69 | budget: most bytes of all moves of an iteration |
//! | 70 | longest wait of a launch for a hand-over, in nanoseconds |
//! | 72... | a [`Token`] for each launch of an iteration, [`PERIOD_MAX`] at most |
//! | ... | 4 words for each move, [`MOVES_MAX`] at most: begin; bytes; [`Destination`] (32 bits) with the expiry op + 1; begin op (32 bits) with the wait op + 1 |
//!
//! An op is the index of a launch in the iteration: of a kernel, captured or not, or of a graph. The
//! helper numbers the launches of the process from 1, modulo 2^32, and records each
//! [number](crate::call::Call::number). A launch that the driver refuses takes a number, but has no
//! record. The helper extends a launch number in a plan to the nearest match to its current number.
//!
//! uvmd [publishes](PlanMemory::publish) a plan once, wakes the helper as for a command, and writes a [`heartbeat`]
//! each second. Without a wake-up, the helper notices a plan up to a second later.
//! [`report`](PlanMemory::report) returns the state of the plan. A plan that has ended is not resumed:
//! uvmd publishes it again.
//!
//! Neither side trusts the other. The helper copies a plan once per generation into private memory and
//! checks the copy. uvmd's reads are copies, too; unknown states are rejected.

use core::ffi::CStr;

use crate::{
    memory::LayoutError,
    operation::Operation,
    sync::{AtomicU64, Ordering, fence},
    token::Token,
    word::{Word, copyable, load},
};

/// Name of the memory.
pub const PLAN_NAME: &CStr = c"uvmd-plan";
/// First word: `UVMDPLAN`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"UVMDPLAN");
/// Major version of the layout. Memory of another major version is rejected.
pub const MAJOR: u32 = 2;
const MINOR: u32 = 2;
/// Maximum number of launches of an iteration.
pub const PERIOD_MAX: usize = if IS_MODEL { 1 } else { 16384 };
/// Maximum number of moves of an iteration.
pub const MOVES_MAX: usize = if IS_MODEL { 1 } else { 4096 };
/// Size of the header, before the table.
pub const HEADER_BYTES: usize = TABLE * WORD_BYTES;
/// Size of the whole memory.
pub const PLAN_BYTES: usize = (TABLE + TABLE_WORDS) * WORD_BYTES;
/// Maximum age of the heartbeat at which plans are followed.
pub const HEARTBEAT_AGE_MAX_NS: u64 = 5_000_000_000;
/// Longest wait of a launch for a hand-over that a plan may set.
pub const HANDOVER_WAIT_MAX_NS: u64 = 10_000_000;
/// Granularity of ranges.
pub const PAGE_BYTES: u64 = 4096;

/// Whether this is a build for model checking, whose time grows with each word.
const IS_MODEL: bool = cfg!(all(test, loom));
const WORD_BYTES: usize = 8;

// Word offsets in the memory.
const HEARTBEAT: usize = 8;
const GENERATION: usize = 16;
const STATE_GENERATION: usize = 24;
const STATE: usize = 25;
const COUNTERS: usize = 32;
const TABLE: usize = 64;

/// Words of a table: the plan without its generation.
pub const TABLE_WORDS: usize = HEADER_WORDS + PERIOD_MAX + MOVES_MAX * MOVE_WORDS;
const HEADER_WORDS: usize = 8;
const MOVE_WORDS: usize = 4;

// Word offsets in the header of a table.
const GPU: usize = 0;
const FIRST_LAUNCH: usize = 2;
const PERIOD: usize = 3;
const MOVES: usize = 4;
const BUDGET: usize = 5;
const HANDOVER_WAIT: usize = 6;

const _: () = assert!(PLAN_BYTES <= 512 << 10, "the memory counts against the limits of the program");

/// Destination of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// GPU of the plan.
    Gpu = 1,
    /// Host.
    Host = 2,
}

/// Move of memory in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte of the range, page-aligned.
    pub begin: u64,
    /// Size, a multiple of the page size.
    pub bytes: u64,
    /// Destination.
    pub destination: Destination,
    /// Op after whose launch the move begins.
    pub begin_op: u32,
    /// Op whose next launch after the move begins waits for it; `None` without a wait.
    pub wait_op: Option<u32>,
    /// Op whose next launch after the move begins is its deadline: a move whose hand-over to the driver
    /// has not begun by then is skipped. `None` without expiry.
    pub expiry_op: Option<u32>,
}

/// Optional op, encoded as the upper half of a word.
const fn upper_half(op: Option<u32>) -> u64 {
    match op {
        Some(op) => (op as u64 + 1) << 32,
        None => 0,
    }
}

impl Move {
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    const fn from_words([begin, bytes, destination, ops]: [u64; MOVE_WORDS]) -> Option<Self> {
        let (expiry_op, wait_op) = ((destination >> 32) as u32, (ops >> 32) as u32);
        let destination = match destination as u32 {
            1 => Destination::Gpu,
            2 => Destination::Host,
            _ => return None,
        };
        let (wait_op, expiry_op) = (wait_op.checked_sub(1), expiry_op.checked_sub(1));
        Some(Self { begin, bytes, destination, begin_op: ops as u32, wait_op, expiry_op })
    }

    const fn to_words(self) -> [u64; MOVE_WORDS] {
        let destination = self.destination as u64 | upper_half(self.expiry_op);
        [self.begin, self.bytes, destination, self.begin_op as u64 | upper_half(self.wait_op)]
    }

    const fn end(self) -> Option<u64> {
        self.begin.checked_add(self.bytes)
    }
}

/// Header of a plan: all but its tokens and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// UUID of the GPU: the program may number its devices differently.
    pub gpu: [u8; 16],
    /// Number of a launch at which an iteration begins, in the past or future.
    pub first_launch: u32,
    /// Launches per iteration.
    pub period: usize,
    /// Moves per iteration.
    pub moves: usize,
    /// Most bytes of all moves of an iteration.
    pub budget_bytes: u64,
    /// Longest wait of a launch for the hand-over of its moves.
    pub handover_wait_ns: u64,
}

/// Plan as uvmd publishes it.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// UUID of the GPU: the program may number its devices differently.
    pub gpu: [u8; 16],
    /// Number of a launch at which an iteration begins, in the past or future.
    pub first_launch: u32,
    /// Most bytes of all moves of an iteration.
    pub budget_bytes: u64,
    /// Longest wait of a launch until its moves are handed over to the driver, up to
    /// [`HANDOVER_WAIT_MAX_NS`]. With 0, a move that is not handed over is late at once. After a timeout,
    /// launches of the plan do not wait during the next second.
    pub handover_wait_ns: u64,
    /// Token of each launch of an iteration.
    pub tokens: &'a [Token],
    /// Moves, in the order of their begin ops.
    pub moves: &'a [Move],
}

impl<'a> Plan<'a> {
    /// Writes of the plan's table.
    #[expect(clippy::cast_possible_truncation, reason = "halves of the UUID")]
    fn operations(self) -> impl Iterator<Item = Operation> + use<'a> {
        let gpu = u128::from_le_bytes(self.gpu);
        let header = [
            (GPU, gpu as u64),
            (GPU + 1, (gpu >> 64) as u64),
            (FIRST_LAUNCH, self.first_launch.into()),
            (PERIOD, self.tokens.len() as u64),
            (MOVES, self.moves.len() as u64),
            (BUDGET, self.budget_bytes),
            (HANDOVER_WAIT, self.handover_wait_ns),
        ];
        let tokens = self.tokens.iter().map(|token| token.to_word());
        let moves = self.moves.iter().flat_map(|planned| planned.to_words());
        let all = header.into_iter().chain((HEADER_WORDS..).zip(tokens));
        let all = all.chain((HEADER_WORDS + PERIOD_MAX..).zip(moves));
        all.map(|(at, value)| Operation::Store { at: TABLE + at, value })
    }
}

impl Plan<'_> {
    /// Validates the plan, as far as that is possible outside of the process.
    ///
    /// # Errors
    /// If the helper would refuse it.
    pub fn check(&self) -> Result<(), Reason> {
        check(&self.header(), self.moves.iter().copied().map(Some))
    }

    const fn header(&self) -> Header {
        Header {
            gpu: self.gpu,
            first_launch: self.first_launch,
            period: self.tokens.len(),
            moves: self.moves.len(),
            budget_bytes: self.budget_bytes,
            handover_wait_ns: self.handover_wait_ns,
        }
    }
}

/// Reason why a plan is refused or has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No launches in an iteration, or more than [`PERIOD_MAX`].
    Period,
    /// More moves than [`MOVES_MAX`].
    MoveCount,
    /// Moves are not in the order of their begin ops.
    Order,
    /// A move names an op that the iteration does not have.
    Op,
    /// A range is empty, or not of whole pages.
    Range,
    /// A move has an unknown destination.
    Destination,
    /// The moves exceed the budget.
    Budget,
    /// The wait for hand-overs exceeds [`HANDOVER_WAIT_MAX_NS`].
    HandoverWait,
    /// Part of a range is not in managed memory that the helper has seen allocated, or is in memory of a
    /// pool, whose frees do not wait for moves.
    NotAllocated,
    /// The program has set advice of its own on part of a range.
    ProgramAdvice,
    /// The program has no such GPU, or has allocated nothing on it.
    NoDevice,
    /// The driver lacks a function, or the GPU lacks concurrent access to managed memory, which
    /// prefetches require.
    Unsupported,
    /// The driver failed with this `CUresult`. The helper itself reports `CUDA_ERROR_NOT_READY` (600) if
    /// calls of the program left no time for the plan.
    Failed(u32),
    /// The mode is no longer [`Mode::Act`](crate::Mode::Act), or permission to act has ended.
    Mode,
    /// uvmd's heartbeat has stopped.
    StaleHeartbeat,
    /// The program has freed memory of a range.
    Freed,
    /// The program has ended the context.
    ContextEnded,
    /// uvmd has withdrawn the plan.
    Withdrawn,
    /// The process exits, or the helper's thread has ended.
    Exit,
}

impl Reason {
    const ALL: [Self; 19] = [
        Self::Period,
        Self::MoveCount,
        Self::Order,
        Self::Op,
        Self::Range,
        Self::Destination,
        Self::Budget,
        Self::NotAllocated,
        Self::ProgramAdvice,
        Self::NoDevice,
        Self::Unsupported,
        Self::Failed(0),
        Self::Mode,
        Self::StaleHeartbeat,
        Self::Freed,
        Self::ContextEnded,
        Self::Withdrawn,
        Self::Exit,
        Self::HandoverWait,
    ];

    /// Number of the reason, and a `CUresult`.
    const fn to_parts(self) -> (u64, u32) {
        match self {
            Self::Period => (1, 0),
            Self::MoveCount => (2, 0),
            Self::Order => (3, 0),
            Self::Op => (4, 0),
            Self::Range => (5, 0),
            Self::Destination => (6, 0),
            Self::Budget => (7, 0),
            Self::NotAllocated => (8, 0),
            Self::ProgramAdvice => (9, 0),
            Self::NoDevice => (10, 0),
            Self::Unsupported => (11, 0),
            Self::Failed(result) => (12, result),
            Self::Mode => (13, 0),
            Self::StaleHeartbeat => (14, 0),
            Self::Freed => (15, 0),
            Self::ContextEnded => (16, 0),
            Self::Withdrawn => (17, 0),
            Self::Exit => (18, 0),
            Self::HandoverWait => (19, 0),
        }
    }

    fn from_parts(number: u64, result: u32) -> Option<Self> {
        let reason = Self::ALL.into_iter().find(|reason| reason.to_parts().0 == number)?;
        Some(if matches!(reason, Self::Failed(_)) { Self::Failed(result) } else { reason })
    }
}

/// State of a plan in the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No plan.
    None,
    /// Followed, at the latest from the next iteration.
    Following,
    /// Ended, as the launch at this op did not match.
    Drifted(u32),
    /// Ended for another reason, or withdrawn.
    Stopped(Reason),
    /// Refused: it was never followed.
    Refused(Reason),
}

impl State {
    /// Word with the state in the highest byte, the reason in the next one, and an op or `CUresult` in
    /// the lower half.
    const fn to_word(self) -> u64 {
        let (kind, (reason, number)) = match self {
            Self::None => (0, (0, 0)),
            Self::Following => (1, (0, 0)),
            Self::Drifted(op) => (2, (0, op)),
            Self::Stopped(reason) => (3, reason.to_parts()),
            Self::Refused(reason) => (4, reason.to_parts()),
        };
        kind << 56 | reason << 48 | number as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn from_word(word: u64) -> Option<Self> {
        let (reason, number) = (word >> 48 & 0xff, word as u32);
        Some(match word >> 56 {
            0 => Self::None,
            1 => Self::Following,
            2 => Self::Drifted(number),
            3 => Self::Stopped(Reason::from_parts(reason, number)?),
            4 => Self::Refused(Reason::from_parts(reason, number)?),
            _ => return None,
        })
    }
}

/// Counter of the helper, over all plans of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Complete iterations.
    Iterations,
    /// Moves handed over to the driver.
    Moves,
    /// Late moves: the launch of the wait op did not wait for them, as they were not handed over yet.
    Late,
    /// Skipped moves and waits: the move of the previous iteration was still pending, memory or advice
    /// had changed, the driver failed (which stops the plan), the stream was being captured, or the
    /// launch was in another context or stream than the first op with moves.
    Skipped,
    /// Launches that did not match the plan.
    Mismatched,
    /// Bytes of moves to the GPU.
    BytesToGpu,
    /// Bytes of moves to the host.
    BytesToHost,
    /// Moves that expired before their hand-over. Since minor version 2.
    Expired,
}

/// Values of all counters since the process's start. The process can write any number into them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the variants of Counter")]
pub struct Counters {
    pub iterations: u64,
    pub moves: u64,
    pub late: u64,
    pub skipped: u64,
    pub mismatched: u64,
    pub bytes_to_gpu: u64,
    pub bytes_to_host: u64,
    pub expired: u64,
}

/// Report of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Generation of the plan that the state belongs to.
    pub generation: u64,
    /// State of the plan; `None` if the process has written an invalid one.
    pub state: Option<State>,
    /// Counters.
    pub counters: Counters,
}

fn store(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::Release);
    }
}

/// Validates a plan. `None` among the moves is a move with an unknown destination.
fn check(header: &Header, moves: impl Iterator<Item = Option<Move>>) -> Result<(), Reason> {
    if header.period == 0 || header.period > PERIOD_MAX {
        return Err(Reason::Period);
    }
    if header.moves > MOVES_MAX {
        return Err(Reason::MoveCount);
    }
    if header.handover_wait_ns > HANDOVER_WAIT_MAX_NS {
        return Err(Reason::HandoverWait);
    }
    let (mut last_op, mut bytes) = (0, 0_u64);
    for planned in moves.take(header.moves) {
        let planned = planned.ok_or(Reason::Destination)?;
        if [Some(planned.begin_op), planned.wait_op, planned.expiry_op]
            .into_iter()
            .flatten()
            .any(|op| op as usize >= header.period)
        {
            return Err(Reason::Op);
        }
        if planned.begin_op < last_op {
            return Err(Reason::Order);
        }
        last_op = planned.begin_op;
        let is_of_pages = planned.begin.is_multiple_of(PAGE_BYTES) && planned.bytes.is_multiple_of(PAGE_BYTES);
        if planned.bytes == 0 || !is_of_pages || planned.end().is_none() {
            return Err(Reason::Range);
        }
        bytes = bytes.saturating_add(planned.bytes);
    }
    if bytes > header.budget_bytes { Err(Reason::Budget) } else { Ok(()) }
}

/// Words of a plan, in the shared memory or in a private copy.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Table<'a> {
    /// Table in [`TABLE_WORDS`] words.
    #[must_use]
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Header, before validation.
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits")]
    fn header(&self) -> Header {
        let mut gpu = [0; 16];
        for (at, half) in gpu.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *half = load(self.words, GPU + at).to_le_bytes();
        }
        let count = |at| usize::try_from(load(self.words, at)).unwrap_or(usize::MAX);
        Header {
            gpu,
            first_launch: load(self.words, FIRST_LAUNCH) as u32,
            period: count(PERIOD),
            moves: count(MOVES),
            budget_bytes: load(self.words, BUDGET),
            handover_wait_ns: load(self.words, HANDOVER_WAIT),
        }
    }

    /// Copies the words that the plan uses.
    fn copy_to(&self, to: Table<'_>) {
        let Header { period, moves, .. } = self.header();
        let tokens = HEADER_WORDS..HEADER_WORDS + period.min(PERIOD_MAX);
        let first_move = HEADER_WORDS + PERIOD_MAX;
        let moves = first_move..first_move + moves.min(MOVES_MAX) * MOVE_WORDS;
        for at in (0..HEADER_WORDS).chain(tokens).chain(moves) {
            store(to.words, at, load(self.words, at));
        }
    }

    /// Validates a private copy, which does not change during the checks.
    ///
    /// # Errors
    /// If the plan is invalid; [`Reason::Withdrawn`] without a plan.
    pub fn check(&self) -> Result<Header, Reason> {
        let header = self.header();
        if header.period == 0 {
            return Err(Reason::Withdrawn);
        }
        check(&header, (0..MOVES_MAX).map(|at| self.move_at(at)))?;
        Ok(header)
    }

    /// Token of an op.
    #[must_use]
    pub fn token(&self, op: usize) -> Token {
        Token::from_word(load(self.words, HEADER_WORDS + op.min(PERIOD_MAX - 1)))
    }

    /// Move at an index; `None` if it is out of range or has an unknown destination.
    #[must_use]
    pub fn move_at(&self, at: usize) -> Option<Move> {
        let first = HEADER_WORDS + PERIOD_MAX + at.min(MOVES_MAX) * MOVE_WORDS;
        let words = self.words.get(first..first + MOVE_WORDS)?.first_chunk::<MOVE_WORDS>()?;
        Move::from_words(words.each_ref().map(|word| word.load(Ordering::Acquire)))
    }
}

/// Shared memory of a plan, or a copy of its first [`HEADER_BYTES`].
#[derive(Debug)]
pub struct PlanMemory<'a, W = AtomicU64> {
    words: &'a [W],
}

copyable!(PlanMemory);

impl<'a, W: Word> PlanMemory<'a, W> {
    /// Opens another process's plan memory, of which the header or all is there.
    ///
    /// # Errors
    /// If it is not a plan memory of this version.
    pub fn open(words: &'a [W]) -> Result<Self, LayoutError> {
        let memory = if words.len() == TABLE { Self { words } } else { Self::of(words)? };
        let major = (load(words, 1) >> 32) as u32;
        match (load(words, 0), load(words, 2)) {
            (MAGIC, _) if major != MAJOR => Err(LayoutError::Version { major }),
            (MAGIC, bytes) if bytes == PLAN_BYTES as u64 => Ok(memory),
            _ => Err(LayoutError::Header),
        }
    }

    fn of(words: &'a [W]) -> Result<Self, LayoutError> {
        let bytes = words.len().saturating_mul(WORD_BYTES);
        if bytes == PLAN_BYTES { Ok(Self { words }) } else { Err(LayoutError::Size { bytes, expected: PLAN_BYTES }) }
    }

    /// Generation of the published plan; 0 without a plan, odd while one is written.
    #[must_use]
    pub fn generation(&self) -> u64 {
        load(self.words, GENERATION)
    }

    /// Whether uvmd's last heartbeat is at most [`HEARTBEAT_AGE_MAX_NS`] old, at this time of the monotonic
    /// clock. A heartbeat in the future is invalid: it is from another clock.
    #[must_use]
    pub fn is_live(&self, now_ns: u64) -> bool {
        // Tolerance for a caller that read its clock before the heartbeat was written.
        const CLOCK_SKEW_MAX_NS: u64 = 1_000_000_000;
        let heartbeat = load(self.words, HEARTBEAT);
        heartbeat != 0
            && now_ns.saturating_sub(heartbeat) <= HEARTBEAT_AGE_MAX_NS
            && heartbeat.saturating_sub(now_ns) <= CLOCK_SKEW_MAX_NS
    }
}

// === uvmd's side ===

/// uvmd's heartbeat, at a time of the monotonic clock. Due each second while a plan is to be followed.
#[must_use]
pub const fn heartbeat(now_ns: u64) -> Operation {
    Operation::Store { at: HEARTBEAT, value: now_ns }
}

impl<W: Word> PlanMemory<'_, W> {
    /// Publishes a plan in place of the previous one: its generation, and the writes in their order. The caller
    /// must be the only publisher.
    ///
    /// # Errors
    /// If the helper would refuse the plan, as far as that can be known outside of the process.
    pub fn publish<'p>(&self, plan: &Plan<'p>) -> Result<(u64, impl Iterator<Item = Operation> + use<'p, W>), Reason> {
        plan.check()?;
        Ok(self.update(plan.operations()))
    }

    /// Withdraws the plan: no move begins from the next launch on.
    pub fn withdraw(&self) -> impl Iterator<Item = Operation> + use<W> {
        self.update(core::iter::once(Operation::Store { at: TABLE + PERIOD, value: 0 })).1
    }

    fn update<I: Iterator<Item = Operation>>(&self, changes: I) -> (u64, impl Iterator<Item = Operation> + use<I, W>) {
        // Odd while a plan is written; already odd if uvmd exited during a write.
        let written = self.generation() | 1;
        let generation = match written.wrapping_add(1) {
            // 0 means no plan.
            0 => 2,
            generation => generation,
        };
        // Operations are applied in order, each after those before it.
        let set = |value| core::iter::once(Operation::Store { at: GENERATION, value });
        (generation, set(written).chain(changes).chain(set(generation)))
    }

    /// Report of the helper. Its state and counters are those of a `later` copy, as the words of one are read in
    /// any order.
    #[must_use]
    pub fn report(&self, later: &Self) -> Report {
        let counter = |counter| load(later.words, COUNTERS + counter as usize);
        Report {
            generation: load(self.words, STATE_GENERATION),
            state: State::from_word(load(later.words, STATE)),
            counters: Counters {
                iterations: counter(Counter::Iterations),
                moves: counter(Counter::Moves),
                late: counter(Counter::Late),
                skipped: counter(Counter::Skipped),
                mismatched: counter(Counter::Mismatched),
                bytes_to_gpu: counter(Counter::BytesToGpu),
                bytes_to_host: counter(Counter::BytesToHost),
                expired: counter(Counter::Expired),
            },
        }
    }
}

// === The helper's side ===

impl<'a> PlanMemory<'a> {
    /// Creates a plan memory, without a plan, in zeroed words.
    ///
    /// # Errors
    /// If the memory has the wrong size.
    pub fn create(words: &'a [AtomicU64]) -> Result<Self, LayoutError> {
        let memory = Self::of(words)?;
        store(words, 1, u64::from(MAJOR) << 32 | u64::from(MINOR));
        store(words, 2, PLAN_BYTES as u64);
        // Last, so that a reader that sees the magic number sees the rest.
        store(words, 0, MAGIC);
        Ok(memory)
    }

    fn table(&self) -> Table<'a> {
        Table::new(self.words.get(TABLE..TABLE + TABLE_WORDS).unwrap_or_default())
    }

    /// Copies the plan of a generation. Returns false if the plan was replaced during the copy.
    #[must_use]
    pub fn copy_to(&self, generation: u64, to: Table<'_>) -> bool {
        self.table().copy_to(to);
        fence(Ordering::SeqCst);
        generation & 1 == 0 && self.generation() == generation
    }

    /// Sets the state of a generation's plan.
    pub fn set_state(&self, generation: u64, state: State) {
        store(self.words, STATE, state.to_word());
        store(self.words, STATE_GENERATION, generation);
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, amount: u64) {
        if let Some(word) = self.words.get(COUNTERS + counter as usize) {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }
}
