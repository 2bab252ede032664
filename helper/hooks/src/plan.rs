//! Plan that uvmd has published: the launches of an iteration that begin moves of memory, and those
//! that wait for them.
//!
//! Launches are matched with the plan ([`launch`]); the helper's thread adopts plans and hands
//! moves over to the driver ([`moves`]). A launch takes no lock and allocates nothing: it only adds
//! event records and event waits to the program's stream. It waits for the helper's thread only if
//! the table requires it, for at most 10 ms.
//!
//! Only the thread writes the tables, and only while no plan is followed and no launch visits one.
//! A launch first increments the count of visitors, and then reads whether a plan is followed; the
//! thread first ends the plan, and then reads the count. So at least one of them sees the other.
//!
//! Waits are added to only one stream, that of the first op with moves, and so are the events that
//! moves wait for: each wait is for work earlier in the same stream. Waits between streams that the
//! program does not order itself could form a cycle, and deadlock.
//!
//! A plan that has ended is never resumed, and nothing more of it is handed over to the driver. It
//! ends if a launch does not match it, if the mode or a stale heartbeat ends it, if memory of a
//! range is freed, if the context is destroyed, or if uvmd publishes another plan.

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
    mapping::{self, Words},
    parts::Range,
    permission::Permission,
    stream::Stream,
    system::{self, Errno, Sharing},
};

/// Stage of a move.
mod stage {
    /// Not begun.
    pub(super) const IDLE: u64 = 0;
    /// Being handed over to the driver.
    pub(super) const IN_PROGRESS: u64 = 1;
    /// Handed over.
    pub(super) const ENQUEUED: u64 = 2;
    /// In the queue; the tag is in the lowest byte.
    const QUEUED: u64 = 3;

    /// In the queue since the launch of this number.
    pub(super) const fn queued(launch: u64) -> u64 {
        QUEUED | launch << 8
    }

    /// Number of the launch that queued the move, if it is in the queue.
    pub(super) fn queued_after(stage: u64) -> Option<u64> {
        (stage & 0xff == QUEUED).then_some(stage >> 8)
    }
}

/// Flag of an entry of [`Plan::waits`]: the move expires at this op.
const AT_EXPIRY: u64 = 1 << 32;

/// Plan in force, if any, with its tables, queue, events and streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    permission: Permission,
    shared: PlanMemory<'static>,
    /// Generation of the plan that is followed, or 0. Zeroed in a forked child.
    followed: &'static AtomicU64,
    /// Count of visitors: launches and frees that use the tables.
    visitors: &'static AtomicU64,
    /// Count of the process's launches.
    launches: &'static AtomicU64,
    /// Number of the launch at which the plan starts: the first one of an iteration.
    first_launch: &'static AtomicU64,
    period: &'static AtomicU64,
    moves: &'static AtomicU64,
    /// Limit of a launch's wait for the hand-over of a move; 0 for no wait.
    handover_wait_ns: &'static AtomicU64,
    /// End of the back-off: no launch waits for a hand-over before it.
    wait_backoff_end_ns: &'static AtomicU64,
    context: &'static AtomicU64,
    device: &'static AtomicU64,
    /// Stream of the first op with moves, the only one that moves and waits are added to. 0 until
    /// that op.
    stream: &'static AtomicU64,
    /// Generation of the plan that was adopted or refused last.
    processed_generation: &'static AtomicU64,
    /// Futex that the thread waits on, and 1 while it waits.
    wake_futex: &'static AtomicU64,
    is_waiting: &'static AtomicU64,
    /// The thread's copy of the plan.
    table: Table<'static>,
    /// [`OpIndex`] of each op.
    ops: &'static [AtomicU64],
    /// Indices of moves, grouped by the op that waits for them, or at which they expire (with
    /// [`AT_EXPIRY`]).
    waits: &'static [AtomicU64],
    /// [`stage`] of each move.
    stages: &'static [AtomicU64],
    queue: Queue,
    events: Events,
    to_gpu: Stream,
    to_host: Stream,
}

/// Moves of an op: index of the first one that begins after it, and their count; index of its first
/// entry in [`Plan::waits`], and their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OpIndex {
    first_move: u16,
    move_count: u16,
    first_wait: u16,
    wait_count: u16,
}

impl OpIndex {
    const fn to_word(self) -> u64 {
        let Self { first_move, move_count, first_wait, wait_count } = self;
        first_move as u64 | (move_count as u64) << 16 | (first_wait as u64) << 32 | (wait_count as u64) << 48
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    const fn from_word(word: u64) -> Self {
        Self {
            first_move: word as u16,
            move_count: (word >> 16) as u16,
            first_wait: (word >> 32) as u16,
            wait_count: (word >> 48) as u16,
        }
    }

    /// Indices of the moves that begin after the op.
    fn moves(self) -> core::ops::Range<usize> {
        let first = usize::from(self.first_move);
        first..first + usize::from(self.move_count)
    }

    /// Indices of the op's entries in [`Plan::waits`].
    fn waits(self) -> core::ops::Range<usize> {
        let first = usize::from(self.first_wait);
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

/// Private words of a plan besides its tables: those that launches read in the first cache line,
/// those that they write in the second.
const HEAD_WORDS: usize = 32;
const LINE_WORDS: usize = 8;

impl Plan {
    /// Creates an empty plan. Words of `at_fork` are zeroed in a forked child.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new(permission: Permission, shared: PlanMemory<'static>, at_fork: &mut Words) -> Result<Self, Errno> {
        const NONE: Errno = Errno(0);
        let tables = TABLE_WORDS + PERIOD_MAX + 3 * MOVES_MAX + Queue::WORDS + Events::WORDS;
        let words = mapping::private(HEAD_WORDS + tables)?;
        let (head, rest) = words.split_at_checked(HEAD_WORDS).ok_or(NONE)?;
        let (table, rest) = rest.split_at_checked(TABLE_WORDS).ok_or(NONE)?;
        let (ops, rest) = rest.split_at_checked(PERIOD_MAX).ok_or(NONE)?;
        let (waits, rest) = rest.split_at_checked(2 * MOVES_MAX).ok_or(NONE)?;
        let (stages, rest) = rest.split_at_checked(MOVES_MAX).ok_or(NONE)?;
        let (queue, events) = rest.split_at_checked(Queue::WORDS).ok_or(NONE)?;
        let (read, rest) = head.split_at_checked(LINE_WORDS).ok_or(NONE)?;
        let (changed, others) = rest.split_at_checked(LINE_WORDS).ok_or(NONE)?;
        let [first_launch, period, moves, context, device, handover_wait_ns, wait_backoff_end_ns, ..] = read else {
            return Err(NONE);
        };
        let [visitors, launches, ..] = changed else { return Err(NONE) };
        let mut others = Words::new(others);
        let mut other = || others.next().ok_or(NONE);
        let (processed_generation, wake_futex, is_waiting, stream) = (other()?, other()?, other()?, other()?);
        Ok(Self {
            permission,
            shared,
            followed: at_fork.next().ok_or(NONE)?,
            visitors,
            launches,
            first_launch,
            period,
            moves,
            handover_wait_ns,
            wait_backoff_end_ns,
            context,
            device,
            stream,
            processed_generation,
            wake_futex,
            is_waiting,
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

    /// Generation of the plan that is followed, or 0.
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
        let mut ranges = (0..moves.min(MOVES_MAX)).filter_map(|index| self.table.move_at(index));
        if ranges.any(|planned| Range::new(planned.begin, planned.bytes).shares_a_page(freed)) {
            self.end(visit.generation, State::Stopped(Reason::Freed));
        }
    }

    /// Stops the plan if its context is about to be destroyed.
    pub(crate) fn on_context_end(&self, context: Handle) {
        if self.context.load(Ordering::Relaxed) == context {
            self.stop(Reason::ContextEnded);
        }
    }

    /// Stops the plan if its device's primary context may be about to be destroyed.
    pub(crate) fn on_device_end(&self, device: i32) {
        if self.device.load(Ordering::Relaxed) == u64::from(device.cast_unsigned()) {
            self.stop(Reason::ContextEnded);
        }
    }

    /// Forgets streams and events of a destroyed context.
    pub(crate) fn forget_context(&self, context: Handle) {
        self.to_gpu.forget_context(context);
        self.to_host.forget_context(context);
        self.events.forget_context(context);
    }

    /// Forgets streams and events of a device whose primary context was destroyed.
    pub(crate) fn forget_device(&self, device: i32) {
        self.to_gpu.forget_device(device);
        self.to_host.forget_device(device);
        self.events.forget_device(device);
    }

    /// Waits until a launch begins a move, for at most `timeout_ns`. For the helper's thread.
    pub(crate) fn wait(&self, timeout_ns: u64) {
        let wake_futex = self.wake_futex.load(Ordering::SeqCst);
        self.is_waiting.store(1, Ordering::SeqCst);
        if self.queue.is_empty() {
            system::wait(self.wake_futex, low(wake_futex), Sharing::Private, timeout_ns);
        }
        self.is_waiting.store(0, Ordering::SeqCst);
    }

    /// Wakes the helper's thread, if it waits.
    fn wake_thread(&self) {
        if self.is_waiting.swap(0, Ordering::SeqCst) != 0 {
            self.wake_futex.fetch_add(1, Ordering::SeqCst);
            system::wake(self.wake_futex, Sharing::Private);
        }
    }

    /// Whether uvmd's heartbeat is recent.
    fn is_live(&self) -> bool {
        self.shared.is_live(clock::monotonic_ns())
    }

    fn is_acting(&self) -> bool {
        self.permission.is_granted()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the half that a futex compares")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests;
