//! A launch of a plan: its waits for moves, and the moves that begin after it.

use core::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
};

use call_ring::{
    Token,
    plan::{Counter, Reason, State},
    token::Signature,
};

use super::{AT_EXPIRY, OpIndex, Plan, get, stage};
use crate::{
    clock,
    cuda::{CuResult, Handle, PER_THREAD_STREAM},
    driver, system, thread,
};

/// Poll interval of a launch that waits for a move's hand-over.
const HANDOVER_POLL_NS: u64 = 20_000;
/// Back-off after a wait that timed out: waits take at most 1 % of a program's time.
pub(super) const WAIT_BACKOFF_NS: u64 = 1_000_000_000;

/// Launch or free that visits a plan: pins the plan's tables while alive.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    plan: &'a Plan,
    pub(super) generation: u64,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.plan.visitors.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Launch that is an op of the plan.
#[derive(Debug)]
struct Op<'a> {
    visit: Visit<'a>,
    /// Number of the launch.
    number: u64,
    position: u32,
    token: Token,
    stream: Handle,
}

/// Launch in progress.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    number: u64,
    op: Option<Op<'a>>,
}

impl Plan {
    /// Pins the tables, if a plan is followed.
    pub(super) fn visit(&self) -> Option<Visit<'_>> {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let visit = Visit { plan: self, generation: self.followed() };
        (visit.generation != 0).then_some(visit)
    }

    /// Numbers a launch that is about to be made, and makes its stream wait for the moves that its
    /// op waits for. `launch` returns the signature and the stream, under the driver's name for it.
    /// It is called only while a plan is followed; if it returns `None`, the launch does not match
    /// the plan.
    pub(crate) fn prepare_launch(&self, launch: impl FnOnce() -> Option<(Signature, Handle)>) -> Launch<'_> {
        let number = self.launches.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let op = if self.is_followed() { self.op(number, launch) } else { None };
        if let Some(op) = &op {
            op.wait();
        }
        Launch { number, op }
    }

    /// Deadline of a launch's waits for hand-overs; `None` if its plan has no such waits, or they
    /// are backing off.
    pub(super) fn handover_deadline_ns(&self) -> Option<u64> {
        let timeout_ns = self.handover_wait_ns.load(Ordering::Relaxed);
        if timeout_ns == 0 {
            return None;
        }
        let now_ns = clock::monotonic_ns();
        (now_ns >= self.wait_backoff_end_ns.load(Ordering::Relaxed)).then(|| now_ns.saturating_add(timeout_ns))
    }

    /// Waits until a move of the plan of this generation is handed over to the driver.
    pub(super) fn wait_for_handover(&self, word: &AtomicU64, generation: u64, deadline_ns: u64) {
        let is_pending = || !matches!(word.load(Ordering::Acquire), stage::IDLE | stage::ENQUEUED);
        while is_pending() && self.followed() == generation && self.is_acting() {
            let now_ns = clock::monotonic_ns();
            if now_ns >= deadline_ns {
                // The helper's thread is too slow.
                self.wait_backoff_end_ns.store(now_ns.saturating_add(WAIT_BACKOFF_NS), Ordering::Relaxed);
                return;
            }
            system::sleep(HANDOVER_POLL_NS);
        }
    }

    fn op(&self, number: u64, launch: impl FnOnce() -> Option<(Signature, Handle)>) -> Option<Op<'_>> {
        let visit = self.visit()?;
        if !self.is_acting() {
            self.end(visit.generation, State::Stopped(Reason::Mode));
            return None;
        }
        // Superseded or withdrawn: the helper's thread ends this plan.
        if self.shared.generation() != visit.generation {
            return None;
        }
        let launches = number.checked_sub(self.first_launch.load(Ordering::Relaxed))?;
        let op = u32::try_from(launches.checked_rem(self.period.load(Ordering::Relaxed))?).ok()?;
        let token = self.table.token(op as usize);
        let Some((_, stream)) = launch().filter(|(signature, _)| *signature == token.signature) else {
            self.end(visit.generation, State::Drifted(op));
            return None;
        };
        Some(Op { visit, number, position: op, token, stream })
    }
}

impl Op<'_> {
    const fn plan(&self) -> &Plan {
        self.visit.plan
    }

    fn index(&self) -> OpIndex {
        OpIndex::from_word(get(self.plan().ops, self.position as usize))
    }

    /// Whether its plan is still followed.
    fn is_followed(&self) -> bool {
        self.plan().followed() == self.visit.generation
    }

    fn end(&self, state: State) {
        self.plan().end(self.visit.generation, state);
    }

    /// Counts skipped moves and waits.
    fn count_skipped(&self, count: usize) {
        if self.is_followed() {
            self.plan().shared.count(Counter::Skipped, count as u64);
        }
    }

    fn stop_on_failure(&self, result: Option<CuResult>) {
        let reason = result.map_or(Reason::Unsupported, |CuResult(result)| Reason::Failed(result.cast_unsigned()));
        self.end(State::Stopped(reason));
    }

    /// Whether the launch is in the plan's stream. The first op with moves binds its own.
    fn is_in_plan_stream(&self) -> bool {
        let own = match self.stream {
            PER_THREAD_STREAM => PER_THREAD_STREAM | u64::from(thread::current_id().unwrap_or(0)) << 32,
            stream => stream,
        };
        let bound = self.plan().stream.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
        bound.map_or_else(|first| first == own, |_| true)
    }

    /// Whether events and waits may be added to the launch's stream. Its context is not being
    /// destroyed: no program destroys a context that it launches in.
    fn may_act(&self) -> bool {
        let plan = self.plan();
        if !plan.is_live() {
            self.end(State::Stopped(Reason::StaleHeartbeat));
        }
        self.is_followed()
            && driver::current_context() == plan.context.load(Ordering::Relaxed)
            && driver::is_not_captured(self.stream)
            && self.is_in_plan_stream()
    }

    /// Makes the stream wait for moves that are handed over; others are late. Late moves are still
    /// made until they expire, as the GPU usually lags behind the launches. At its expiry, a late
    /// move is waited for as well: work after this launch then runs after the move.
    fn wait(&self) {
        let (plan, index) = (self.plan(), self.index());
        if index.wait_count == 0 {
            return;
        }
        if !self.may_act() {
            self.count_skipped(index.waits().filter(|at| get(plan.waits, *at) & AT_EXPIRY == 0).count());
            return;
        }
        let deadline_ns = plan.handover_deadline_ns();
        for at in index.waits() {
            let wait = get(plan.waits, at);
            let move_index = usize::try_from(wait & !AT_EXPIRY).unwrap_or(usize::MAX);
            let Some(word) = plan.stages.get(move_index) else { continue };
            if let Some(deadline_ns) = deadline_ns.filter(|_| wait & AT_EXPIRY == 0) {
                plan.wait_for_handover(word, self.visit.generation, deadline_ns);
            }
            match word.compare_exchange(stage::ENQUEUED, stage::IDLE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let result = driver::wait_for_event(self.stream, plan.events.end(move_index));
                    if !result.is_some_and(CuResult::is_ok) {
                        self.stop_on_failure(result);
                        return;
                    }
                }
                Err(stage::IDLE) => {}
                Err(_) => plan.shared.count(Counter::Late, (wait & AT_EXPIRY == 0).into()),
            }
        }
    }

    /// Begins the moves of the op, after its launch.
    fn begin(&self) {
        let (plan, index) = (self.plan(), self.index());
        if u64::from(self.position) + 1 == plan.period.load(Ordering::Relaxed) {
            plan.shared.count(Counter::Iterations, 1);
        }
        if index.move_count == 0 {
            return;
        }
        if !self.may_act() {
            self.count_skipped(index.move_count.into());
            return;
        }
        let result = driver::record_event(plan.events.anchor(index.first_move.into()), self.stream);
        if !result.is_some_and(CuResult::is_ok) {
            self.stop_on_failure(result);
            return;
        }
        for move_index in index.moves() {
            if !self.enqueue(move_index) {
                plan.shared.count(Counter::Skipped, 1);
            }
        }
        plan.wake_thread();
    }
}

impl Op<'_> {
    /// Queues a move. Returns false if a move is skipped: the move of the previous iteration if it
    /// is still in the queue, where this one replaces it, or this one if the previous one is being
    /// handed over.
    fn enqueue(&self, move_index: usize) -> bool {
        let Some(word) = self.plan().stages.get(move_index) else { return false };
        let mut from = stage::IDLE;
        loop {
            let queued = stage::queued(self.number);
            match word.compare_exchange_weak(from, queued, Ordering::AcqRel, Ordering::Acquire) {
                Ok(stage::IDLE | stage::ENQUEUED) => {
                    self.plan().queue.add(move_index);
                    return true;
                }
                Ok(_) | Err(stage::IN_PROGRESS) => return false,
                Err(current) => from = current,
            }
        }
    }
}

impl Launch<'_> {
    /// Number of the launch, as in its record.
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits")]
    pub(crate) const fn number(&self) -> u32 {
        self.number as u32
    }

    /// Whether the launch is an op of a plan.
    pub(crate) const fn is_planned(&self) -> bool {
        self.op.is_some()
    }

    /// Begins the op's moves after the launch has succeeded, if its pointers, as far as known,
    /// match the plan.
    pub(crate) fn complete(self, pointers: Option<NonZeroU32>) {
        let Some(op) = self.op.filter(Op::is_followed) else { return };
        if op.token.matches_pointers(pointers) {
            op.begin();
        } else {
            op.end(State::Drifted(op.position));
        }
    }
}
