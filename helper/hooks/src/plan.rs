//! Plan that uvmd has published: which launch of an iteration begins which move of memory, and which
//! one waits for it.
//!
//! Launches compare themselves with the plan ([`launch`]); the helper's thread adopts plans and hands
//! moves over to the driver ([`moves`]). A launch takes no lock, allocates nothing, and waits for
//! nobody: what it adds to the program's stream is an event that is recorded, and the wait for one.
//! Only if the table says so does it wait for the thread, for 10 ms at most.
//!
//! The tables are written by the thread alone, and only while no plan is followed and no launch is at
//! one. A launch first counts itself in, and then looks whether a plan is followed; the thread first
//! ends the plan, and then looks whether launches are counted in. One of both sees the other.
//!
//! Waits are added to one stream alone, that of the first op with moves, and so are the events that moves
//! wait for: what a wait waits for is in the stream before it. An order between streams that the program
//! does not have itself could be a circle, in which all of them wait for ever.
//!
//! A plan that has ended is not taken up again. It ends for any of these reasons, and nothing is
//! handed over to the driver from then on: a launch is not that of the plan, the mode or the beat says
//! so, memory of a range is freed, the context ends, uvmd has published another one.

mod events;
mod launch;
mod moves;
mod queue;

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::{
    PlanMemory,
    plan::{Counter, MOVES_MAX, PERIOD_MAX, Reason, State, TABLE_WORDS, Table},
};

use self::{events::Events, queue::Queue};
pub(crate) use self::{launch::Launch, moves::Mover};
use crate::{
    blocks::Block,
    clock,
    cuda::Handle,
    parts::Range,
    permission::Permission,
    stream::Stream,
    system::{self, Errno, Sharing},
    zeroed::{self, Words},
};

/// Where a move is.
mod stage {
    /// Nowhere.
    pub(super) const IDLE: u64 = 0;
    /// Being handed over to the driver.
    pub(super) const IN_PROGRESS: u64 = 1;
    /// Handed over.
    pub(super) const ENQUEUED: u64 = 2;
    /// In the queue, in the lowest byte.
    const QUEUED: u64 = 3;

    /// In the queue, behind the launch of this number.
    pub(super) const fn queued(launch: u64) -> u64 {
        QUEUED | launch << 8
    }

    /// Number of the launch behind which it is in the queue, if it is.
    pub(super) fn queued_after(stage: u64) -> Option<u64> {
        (stage & 0xff == QUEUED).then_some(stage >> 8)
    }
}

/// Bit of a wait that is for the expiry of a move.
const AT_EXPIRY: u64 = 1 << 32;

/// A plan, if one is followed, and what it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    permission: Permission,
    shared: PlanMemory<'static>,
    /// Generation that is followed, or 0; 0 as well in a child that a fork makes.
    followed: &'static AtomicU64,
    /// Launches at the plan.
    visitors: &'static AtomicU64,
    /// Launches of the process.
    launches: &'static AtomicU64,
    /// Number of the launch from which on the plan is followed: the first one of an iteration.
    first: &'static AtomicU64,
    period: &'static AtomicU64,
    moves: &'static AtomicU64,
    /// Time for which a launch waits until a move is handed over.
    handover_wait_ns: &'static AtomicU64,
    /// Time until which none waits, as one has waited in vain.
    wait_backoff_end_ns: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
    /// Stream of the first op with moves: the only one that moves and waits are added to. 0 before it.
    stream: &'static AtomicU64,
    /// Generation that was adopted or refused last.
    seen: &'static AtomicU64,
    /// Word that the thread waits at, and 1 while it does.
    bell: &'static AtomicU64,
    is_asleep: &'static AtomicU64,
    /// The thread's copy of the plan.
    table: Table<'static>,
    /// [`OpIndex`] of each op.
    ops: &'static [AtomicU64],
    /// Moves by the ops that wait for them, or at which they expire: these with [`AT_EXPIRY`].
    waits: &'static [AtomicU64],
    /// A [`stage`] for each move.
    stages: &'static [AtomicU64],
    queue: Queue,
    events: Events,
    to_gpu: Stream,
    to_host: Stream,
}

/// Moves of an op: first ones and numbers of those that begin behind it, and of those that it waits
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OpIndex {
    begins: u16,
    begin_count: u16,
    waits: u16,
    wait_count: u16,
}

impl OpIndex {
    const fn to_word(self) -> u64 {
        let Self { begins, begin_count, waits, wait_count } = self;
        begins as u64 | (begin_count as u64) << 16 | (waits as u64) << 32 | (wait_count as u64) << 48
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    const fn from_word(word: u64) -> Self {
        Self {
            begins: word as u16,
            begin_count: (word >> 16) as u16,
            waits: (word >> 32) as u16,
            wait_count: (word >> 48) as u16,
        }
    }

    fn begins(self) -> core::ops::Range<usize> {
        let first = usize::from(self.begins);
        first..first + usize::from(self.begin_count)
    }

    fn waits(self) -> core::ops::Range<usize> {
        let first = usize::from(self.waits);
        first..first + usize::from(self.wait_count)
    }
}

fn get(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::Acquire))
}

fn set(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::Release);
    }
}

/// Private words of a plan that are no table: those that launches read in the first cache line, those
/// that they change in the second.
const HEAD_WORDS: usize = 32;
const LINE_WORDS: usize = 8;

impl Plan {
    /// No plan. Of `at_fork`, words that are zeros in a child.
    ///
    /// # Errors
    /// If there is no memory for one.
    pub(crate) fn new(permission: Permission, shared: PlanMemory<'static>, at_fork: &mut Words) -> Result<Self, Errno> {
        const NONE: Errno = Errno(0);
        let tables = TABLE_WORDS + PERIOD_MAX + 3 * MOVES_MAX + Queue::WORDS + Events::WORDS;
        let words = zeroed::private(HEAD_WORDS + tables)?;
        let (head, rest) = words.split_at_checked(HEAD_WORDS).ok_or(NONE)?;
        let (table, rest) = rest.split_at_checked(TABLE_WORDS).ok_or(NONE)?;
        let (ops, rest) = rest.split_at_checked(PERIOD_MAX).ok_or(NONE)?;
        let (waits, rest) = rest.split_at_checked(2 * MOVES_MAX).ok_or(NONE)?;
        let (stages, rest) = rest.split_at_checked(MOVES_MAX).ok_or(NONE)?;
        let (queue, events) = rest.split_at_checked(Queue::WORDS).ok_or(NONE)?;
        let (read, rest) = head.split_at_checked(LINE_WORDS).ok_or(NONE)?;
        let (changed, others) = rest.split_at_checked(LINE_WORDS).ok_or(NONE)?;
        let [first, period, moves, context, device, handover_wait_ns, wait_backoff_end_ns, ..] = read else {
            return Err(NONE);
        };
        let [visitors, launches, ..] = changed else { return Err(NONE) };
        let mut others = Words::new(others);
        let mut other = || others.next().ok_or(NONE);
        let (seen, bell, is_asleep, stream) = (other()?, other()?, other()?, other()?);
        Ok(Self {
            permission,
            shared,
            followed: at_fork.next().ok_or(NONE)?,
            visitors,
            launches,
            first,
            period,
            moves,
            handover_wait_ns,
            wait_backoff_end_ns,
            context,
            device,
            stream,
            seen,
            bell,
            is_asleep,
            table: Table::new(table),
            ops,
            waits,
            stages,
            queue: Queue::new(&mut others, queue).ok_or(NONE)?,
            events: Events::new(&mut others, events).ok_or(NONE)?,
            to_gpu: Stream::new(at_fork).ok_or(NONE)?,
            to_host: Stream::new(at_fork).ok_or(NONE)?,
        })
    }

    /// Generation of the plan that is followed; 0 without one.
    fn followed(&self) -> u64 {
        self.followed.load(Ordering::SeqCst)
    }

    /// Whether a plan is followed.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed() != 0
    }

    /// Ends the plan of a generation, once.
    fn end(&self, generation: u64, state: State) {
        if self.followed.compare_exchange(generation, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            self.shared.set_state(generation, state);
            if matches!(state, State::Drifted(_)) {
                self.shared.count(Counter::Mismatched, 1);
            }
        }
    }

    /// Stops the plan, if one is followed.
    pub(crate) fn stop(&self, reason: Reason) {
        let generation = self.followed();
        if generation != 0 {
            self.end(generation, State::Stopped(reason));
        }
    }

    /// Stops the plan if it moves memory of a block that is about to be freed.
    pub(crate) fn on_free(&self, block: &Block) {
        if !block.is_managed || !self.is_followed() {
            return;
        }
        let Some(visit) = self.visit() else { return };
        let freed = Range { begin: block.begin, end: block.end };
        let moves = usize::try_from(self.moves.load(Ordering::Relaxed)).unwrap_or(0);
        let mut ranges = (0..moves.min(MOVES_MAX)).filter_map(|one| self.table.move_at(one));
        if ranges.any(|one| Range::new(one.begin, one.bytes).shares_a_page(freed)) {
            self.end(visit.generation, State::Stopped(Reason::Freed));
        }
    }

    /// Stops the plan if it is of a context that is about to end.
    pub(crate) fn on_context_end(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.stop(Reason::ContextEnded);
        }
    }

    /// Stops the plan if it is of a device whose primary context may be about to end.
    pub(crate) fn on_device_end(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == u64::from(device.cast_unsigned()) {
            self.stop(Reason::ContextEnded);
        }
    }

    /// Forgets streams and events of a context that has ended.
    pub(crate) fn forget_context(&self, context: Handle) {
        self.to_gpu.forget_context(context);
        self.to_host.forget_context(context);
        self.events.forget_context(context);
    }

    /// Forgets streams and events of a device whose primary context has ended.
    pub(crate) fn forget_device(&self, device: i32) {
        self.to_gpu.forget_device(device);
        self.to_host.forget_device(device);
        self.events.forget_device(device);
    }

    /// Waits for moves that begin, of the helper's thread, and no longer than so.
    pub(crate) fn wait(&self, most_ns: u64) {
        let bell = self.bell.load(Ordering::SeqCst);
        self.is_asleep.store(1, Ordering::SeqCst);
        if self.queue.is_empty() {
            system::wait(self.bell, low(bell), Sharing::Private, most_ns);
        }
        self.is_asleep.store(0, Ordering::SeqCst);
    }

    /// Wakes the helper's thread, if it waits.
    fn ring_bell(&self) {
        if self.is_asleep.swap(0, Ordering::SeqCst) != 0 {
            self.bell.fetch_add(1, Ordering::SeqCst);
            system::wake(self.bell, Sharing::Private);
        }
    }

    /// Whether uvmd is there.
    fn is_live(&self) -> bool {
        self.shared.is_live(clock::monotonic_ns())
    }

    fn is_acting(&self) -> bool {
        self.permission.is_given()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the half that a futex compares")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests;
