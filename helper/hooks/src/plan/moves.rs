//! Adoption of plans, and hand-over of moves to the driver, by the helper's thread.
//!
//! All driver calls are made within the [gate](crate::gate), as those of commands are, and after
//! the same checks: the program may have freed the memory, given advice, or destroyed the context
//! since. No call waits for work of the GPU. Like a command, a move is made in parts: a free by the
//! program waits for at most one part.

use core::sync::atomic::Ordering;

use call_ring::plan::{Counter, Destination, Header, Move, PERIOD_MAX, Reason, State};

use super::{AT_EXPIRY, OpIndex, Plan, get, set, stage};
use crate::{
    blocks::{Blocks, TableUnavailable},
    contexts::{context_of, enter_context_of},
    cuda::{CuResult, Handle},
    driver,
    driver_call::{HOST, PREFETCH_BYTES_MAX},
    gate::{Gate, RETRY_NS},
    parts::{Gaps, NotManaged, Parts, Range},
    program_advice::{ProgramAdvice, Subject},
    system,
    watch::Watch,
};

const NOT_READY: Reason = Reason::Failed(CuResult::NOT_READY.0.cast_unsigned());

/// Moves made in a row before commands are served.
const BATCH_MOVES_MAX: usize = 64;

impl From<NotManaged> for Reason {
    fn from(_: NotManaged) -> Self {
        Self::NotAllocated
    }
}

impl From<TableUnavailable> for Reason {
    fn from(_: TableUnavailable) -> Self {
        NOT_READY
    }
}

/// Converts a driver result to a reason to stop.
fn check_result(result: Option<CuResult>) -> Result<(), Reason> {
    match result {
        Some(result) if result.is_ok() => Ok(()),
        Some(CuResult(result)) => Err(Reason::Failed(result.cast_unsigned())),
        None => Err(Reason::Unsupported),
    }
}

impl Plan {
    /// Whether the plan of this generation may still be followed; ends it otherwise.
    fn may_continue(&self, generation: u64) -> bool {
        if !self.is_acting() {
            self.stop(Reason::Mode);
        } else if !self.is_live() {
            self.stop(Reason::StaleHeartbeat);
        } else if self.shared.generation() != generation {
            self.stop(Reason::Withdrawn);
        }
        self.followed() == generation
    }

    /// Fills the tables of launches: moves that begin at each op, and waits.
    pub(super) fn build_index(&self, header: &Header) {
        let moves = || (0..header.moves).filter_map(|at| self.table.move_at(at).map(|planned| (at, planned)));
        let change = |op: u32, change: &dyn Fn(&mut OpIndex)| {
            let mut index = OpIndex::from_word(get(self.ops, op as usize));
            change(&mut index);
            set(self.ops, op as usize, index.to_word());
        };
        (0..header.period.min(PERIOD_MAX)).for_each(|op| set(self.ops, op, 0));
        // Ops at which a move is waited for.
        let waits = |planned: &Move| {
            let expiry_op = planned.expiry_op.filter(|op| planned.wait_op != Some(*op));
            [planned.wait_op.map(|op| (op, 0)), expiry_op.map(|op| (op, AT_EXPIRY))].into_iter().flatten()
        };
        for (at, planned) in moves() {
            let at = u16::try_from(at).unwrap_or(u16::MAX);
            change(planned.begin_op, &|index| {
                if index.move_count == 0 {
                    index.first_move = at;
                }
                index.move_count = index.move_count.saturating_add(1);
            });
            for (op, _) in waits(&planned) {
                change(op, &|index| index.wait_count = index.wait_count.saturating_add(1));
            }
        }
        let mut first = 0_u16;
        for op in 0..header.period.min(PERIOD_MAX) {
            let mut index = OpIndex::from_word(get(self.ops, op));
            (index.first_wait, first) = (first, first.saturating_add(index.wait_count));
            index.wait_count = 0;
            set(self.ops, op, index.to_word());
        }
        for (at, planned) in moves() {
            set(self.stages, at, stage::IDLE);
            for (op, expiry) in waits(&planned) {
                change(op, &|index| {
                    set(self.waits, usize::from(index.first_wait) + usize::from(index.wait_count), at as u64 | expiry);
                    index.wait_count = index.wait_count.saturating_add(1);
                });
            }
        }
    }

    /// Whether a move that began after `launch` has expired.
    pub(super) fn has_expired(&self, planned: &Move, launch: u64) -> bool {
        self.is_past_expiry(planned, launch, 0)
    }

    /// Whether it is too late to hand the move over. If the op at which it expires is also the one
    /// that waits for its hand-over, the move has one launch of grace.
    pub(super) fn is_too_late(&self, planned: &Move, launch: u64) -> bool {
        let is_waited_for = planned.wait_op == planned.expiry_op && self.handover_wait_ns.load(Ordering::Relaxed) > 0;
        self.is_past_expiry(planned, launch, is_waited_for.into())
    }

    /// Whether a move that began after `launch` expired at least `grace_launches` launches ago.
    fn is_past_expiry(&self, planned: &Move, launch: u64, grace_launches: u64) -> bool {
        let (period, begin) = (self.period.load(Ordering::Relaxed), u64::from(planned.begin_op));
        // Launches from the one that began the move to the next launch of this op: at most an
        // iteration.
        let ahead = |op: u32| (u64::from(op) + period).checked_sub(begin + 1)?.checked_rem(period).map(|ops| ops + 1);
        let launches = self.launches.load(Ordering::Relaxed).saturating_sub(launch);
        planned.expiry_op.and_then(ahead).is_some_and(|ahead| launches >= ahead + grace_launches)
    }

    /// Number of the next launch that begins an iteration.
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits")]
    pub(super) fn next_iteration_begin(&self, header: &Header) -> u64 {
        let next = self.launches.load(Ordering::Relaxed).wrapping_add(1);
        let period = i64::try_from(header.period).unwrap_or(i64::MAX).max(1);
        // Distance from the first launch, modulo 2^32.
        let since = i64::from((next as u32).wrapping_sub(header.first_launch).cast_signed());
        next.wrapping_add((-since).rem_euclid(period).cast_unsigned())
    }
}

/// Follower of plans, in the helper's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover {
    pub(crate) plan: Plan,
    pub(crate) blocks: Blocks,
    /// The program's own advice.
    pub(crate) program_advice: ProgramAdvice,
    /// Gate between the program and the helper's thread.
    pub(crate) gate: Gate,
}

impl Mover {
    /// Adopts a published plan, and hands over moves that have begun. Returns whether the thread
    /// should call this again soon.
    pub(crate) fn follow(&self, watch: &mut Watch) -> bool {
        let plan = &self.plan;
        let generation = plan.shared.generation();
        let followed = plan.followed();
        if followed != 0 && !plan.may_continue(followed) {
            // Moves in the queue are dropped.
            self.drain();
        }
        let mut is_pending = false;
        if plan.followed() == 0
            && generation != plan.processed_generation.load(Ordering::Relaxed)
            && generation & 1 == 0
        {
            let may_adopt = plan.is_acting() && plan.is_live();
            // While a launch still uses the tables, adoption is retried soon.
            is_pending = may_adopt && plan.visitors.load(Ordering::SeqCst) != 0;
            if may_adopt && !is_pending {
                self.adopt(generation, watch);
            }
        }
        for move_index in core::iter::from_fn(|| plan.queue.take()).take(BATCH_MOVES_MAX) {
            self.execute(move_index, watch);
        }
        is_pending || plan.is_followed()
    }

    fn drain(&self) {
        while let Some(move_index) = self.plan.queue.take() {
            set(self.plan.stages, move_index, stage::IDLE);
        }
    }

    /// Adopts a plan, or refuses it.
    fn adopt(&self, generation: u64, watch: &mut Watch) {
        let plan = &self.plan;
        self.drain();
        if !plan.shared.copy_to(generation, plan.table) {
            // Superseded, or being rewritten.
            return;
        }
        plan.processed_generation.store(generation, Ordering::Relaxed);
        match plan.table.check().and_then(|header| self.activate(&header, generation, watch)) {
            Ok(()) => {}
            Err(Reason::Withdrawn) => plan.shared.set_state(generation, State::Stopped(Reason::Withdrawn)),
            Err(reason) => plan.shared.set_state(generation, State::Refused(reason)),
        }
    }

    /// Versions of the blocks and of the advice that ranges are checked against.
    fn versions(&self) -> (u64, u64) {
        (self.blocks.version(), self.program_advice.version())
    }

    /// Puts a plan into force.
    fn activate(&self, header: &Header, generation: u64, watch: &mut Watch) -> Result<(), Reason> {
        let plan = &self.plan;
        let checked = self.versions();
        self.prepare(header, watch)?;
        plan.build_index(header);
        plan.moves.store(header.moves as u64, Ordering::Relaxed);
        plan.handover_wait_ns.store(header.handover_wait_ns, Ordering::Relaxed);
        plan.wait_backoff_end_ns.store(0, Ordering::Relaxed);
        plan.period.store(header.period as u64, Ordering::Relaxed);
        // Frees and context destructions from here on see the plan.
        let _part = watch.begin_part().ok_or(NOT_READY)?;
        // Checked again only after a change: calls of the program wait for this part.
        if self.versions() != checked {
            self.check_ranges(header)?;
        }
        if !plan.events.covers(header.moves) {
            return Err(Reason::ContextEnded);
        }
        plan.first_launch.store(plan.next_iteration_begin(header), Ordering::Relaxed);
        plan.stream.store(0, Ordering::Relaxed);
        plan.shared.set_state(generation, State::Following);
        plan.followed.store(generation, Ordering::SeqCst);
        Ok(())
    }

    /// Checks a plan's ranges and device, and creates its streams and events.
    fn prepare(&self, header: &Header, watch: &mut Watch) -> Result<(), Reason> {
        let plan = &self.plan;
        self.check_ranges(header)?;
        if !driver::supports_plans() {
            return Err(Reason::Unsupported);
        }
        let (context, device) = {
            let _part = watch.begin_part().ok_or(NOT_READY)?;
            // Per thread: its calls must not invalidate captures of the program.
            driver::relax_capture_mode();
            let device = driver::device_by_uuid(header.gpu).ok_or(Reason::NoDevice)?;
            if !driver::supports_prefetch(device) {
                return Err(Reason::Unsupported);
            }
            let own = match plan.table.move_at(0).filter(|_| header.moves > 0) {
                Some(first) => self.blocks.next_managed(first.begin)?,
                None => None,
            };
            let own = own.and_then(context_of).unwrap_or(0);
            let context = enter_context_of(&self.blocks, device, own).ok_or(Reason::NoDevice)?;
            driver::leave_context();
            (context, device)
        };
        plan.context.store(context, Ordering::Relaxed);
        plan.device.store(device.cast_unsigned().into(), Ordering::Relaxed);
        loop {
            let _part = watch.begin_part().ok_or(NOT_READY)?;
            if plan.events.belong_to_other_context(context) {
                plan.events.destroy();
            }
            if driver::enter_context(context) != Some(device) {
                return Err(Reason::ContextEnded);
            }
            let result = self.create_batch(header, context, device);
            driver::leave_context();
            if result? {
                return Ok(());
            }
        }
    }

    /// Creates the streams and a batch of events in their context; true once all exist.
    fn create_batch(&self, header: &Header, context: Handle, device: i32) -> Result<bool, Reason> {
        let plan = &self.plan;
        let failed = |result| check_result(result).err().unwrap_or(Reason::Unsupported);
        plan.to_gpu.get_or_create(context, device).map_err(failed)?;
        plan.to_host.get_or_create(context, device).map_err(failed)?;
        plan.events.create_batch(header.moves, context, device).map_err(failed)
    }

    fn check_ranges(&self, header: &Header) -> Result<(), Reason> {
        (0..header.moves)
            .filter_map(|at| self.plan.table.move_at(at))
            .try_for_each(|planned| self.check_range(range(&planned)))
    }

    /// Checks that a move is permitted: the program has allocated all of it as managed memory,
    /// without advice on the preferred location.
    fn check_range(&self, range: Range) -> Result<(), Reason> {
        // Parts of unlimited size: each ends with its block.
        let mut parts = Parts::new(range, 1 << 63, Gaps::Refused);
        while self.next(&mut parts, range)?.is_some() {}
        self.check_advice(range)
    }

    fn check_advice(&self, range: Range) -> Result<(), Reason> {
        if self.program_advice.overlaps(range, Some(Subject::LOCATION)) { Err(Reason::ProgramAdvice) } else { Ok(()) }
    }

    /// Next part of a range; `None` after the last.
    fn next(&self, parts: &mut Parts, range: Range) -> Result<Option<Range>, Reason> {
        parts.next(|address| {
            let block = self.blocks.next_managed(address)?;
            // After the last part, the block found begins after the range.
            let is_pooled = block.is_some_and(|block| block.is_pooled && block.begin < range.end);
            if is_pooled { Err(Reason::NotAllocated) } else { Ok(block) }
        })
    }

    /// Makes a move that has begun, unless the plan has ended or the move has expired.
    fn execute(&self, move_index: usize, watch: &mut Watch) {
        let plan = &self.plan;
        let (Some(word), Some(planned), generation) =
            (plan.stages.get(move_index), plan.table.move_at(move_index), plan.followed())
        else {
            return;
        };
        let range = range(&planned);
        let mut parts = Parts::new(range, PREFETCH_BYTES_MAX, Gaps::Refused);
        // Launch that began the move, once the hand-over is in progress.
        let mut begin_launch = None;
        let is_handed_over = loop {
            if generation == 0 || plan.followed() != generation || watch.must_end() {
                return set(plan.stages, move_index, stage::IDLE);
            }
            let from = word.load(Ordering::Acquire);
            let set_stage = |to| word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
            let Some(launch) = begin_launch.or_else(|| stage::queued_after(from)) else { return };
            // Until the hand-over is in progress, a launch may begin the move anew at any time.
            if begin_launch.is_none() && plan.is_too_late(&planned, launch) {
                if set_stage(stage::IDLE) {
                    plan.shared.count(Counter::Expired, 1);
                    return;
                }
                continue;
            }
            let Ok(_part) = self.gate.begin() else {
                system::sleep(RETRY_NS);
                continue;
            };
            let is_first = begin_launch.is_none();
            if !plan.may_continue(generation) || is_first && !set_stage(stage::IN_PROGRESS) {
                continue;
            }
            begin_launch = Some(launch);
            // Checks the whole range before the first part.
            let permitted = if is_first { self.check_range(range) } else { Ok(()) };
            match permitted.and_then(|()| self.hand_over_part(move_index, &planned, &mut parts, launch, is_first)) {
                Ok(false) => {}
                result => break result.is_ok(),
            }
        };
        if !is_handed_over {
            plan.shared.count(Counter::Skipped, 1);
        }
        set(plan.stages, move_index, if is_handed_over { stage::ENQUEUED } else { stage::IDLE });
    }

    /// Checks the result of a call for a move. A failure stops the plan, as further calls would
    /// fail too.
    fn check_call(&self, result: Option<CuResult>) -> Result<(), Reason> {
        check_result(result).inspect_err(|reason| self.plan.stop(*reason))
    }

    /// Hands the next part of a move over to the driver, on a stream that waits for the move's
    /// anchor; returns whether that was the last part.
    fn hand_over_part(
        &self,
        move_index: usize,
        planned: &Move,
        parts: &mut Parts,
        launch: u64,
        is_first: bool,
    ) -> Result<bool, Reason> {
        let plan = &self.plan;
        let context = plan.context.load(Ordering::Relaxed);
        let device = device_from_word(plan.device.load(Ordering::Relaxed));
        if driver::enter_context(context) != Some(device) {
            driver::leave_context();
            plan.stop(Reason::ContextEnded);
            return Err(Reason::ContextEnded);
        }
        let result = self.hand_over_part_in_context(move_index, planned, parts, is_first, (context, device));
        let is_to_host = planned.destination == Destination::Host;
        let result = match result {
            // The move has expired during the call: moves to the GPU must run after it.
            Ok(true) if is_to_host && plan.has_expired(planned, launch) => {
                self.order_moves_to_gpu_after(move_index, (context, device))
            }
            result => result,
        };
        driver::leave_context();
        result
    }

    fn hand_over_part_in_context(
        &self,
        move_index: usize,
        &Move { begin, bytes, destination, begin_op, .. }: &Move,
        parts: &mut Parts,
        is_first: bool,
        (context, device): (Handle, i32),
    ) -> Result<bool, Reason> {
        let plan = &self.plan;
        let (stream, to, counter) = match destination {
            Destination::Gpu => (&plan.to_gpu, device, Counter::BytesToGpu),
            Destination::Host => (&plan.to_host, HOST, Counter::BytesToHost),
        };
        let stream = stream.get_or_create(context, device).or_else(|result| self.check_call(result).map(|()| 0))?;
        if is_first {
            let index = OpIndex::from_word(get(plan.ops, begin_op as usize));
            self.check_call(driver::wait_for_event(stream, plan.events.anchor(index.first_move.into())))?;
        }
        let range = Range::new(begin, bytes);
        let part = self.next(parts, range)?;
        if let Some(part) = part {
            self.check_advice(part)?;
            let bytes = usize::try_from(part.bytes()).map_err(|_| Reason::Range)?;
            self.check_call(driver::prefetch(part.begin, bytes, to, stream))?;
        }
        let is_last = part.is_none() || parts.is_exhausted();
        if is_last {
            self.check_call(driver::record_event(plan.events.end(move_index), stream))?;
            plan.shared.count(Counter::Moves, 1);
            plan.shared.count(counter, bytes);
        }
        Ok(is_last)
    }

    /// Makes moves to the GPU that are handed over from now on wait for a move to the host.
    fn order_moves_to_gpu_after(&self, move_index: usize, (context, device): (Handle, i32)) -> Result<bool, Reason> {
        let stream =
            self.plan.to_gpu.get_or_create(context, device).or_else(|result| self.check_call(result).map(|()| 0))?;
        self.check_call(driver::wait_for_event(stream, self.plan.events.end(move_index)))?;
        Ok(true)
    }

    /// Destroys streams and events, if no plan is followed, no launch visits one, and no call of
    /// the program is within the gate.
    pub(crate) fn release_idle(&self) {
        let plan = &self.plan;
        let is_idle = !plan.is_followed() && plan.visitors.load(Ordering::SeqCst) == 0;
        if is_idle
            && self.has_streams()
            && let Ok(_part) = self.gate.begin()
        {
            plan.events.destroy();
            plan.to_gpu.destroy();
            plan.to_host.destroy();
        }
    }

    /// Whether any streams or events exist.
    fn has_streams(&self) -> bool {
        let plan = &self.plan;
        plan.events.exist() || plan.to_gpu.exists() || plan.to_host.exists()
    }

    /// Stops the plan, and destroys streams and events, with retries for a second.
    pub(crate) fn shut_down(&self) {
        self.plan.stop(Reason::Exit);
        self.gate.retry_for_one_second(|| {
            self.release_idle();
            !self.has_streams()
        });
    }
}

/// Range of a move.
const fn range(&Move { begin, bytes, .. }: &Move) -> Range {
    Range::new(begin, bytes)
}

/// Device stored in a word.
#[expect(clippy::cast_possible_truncation, reason = "an int that was widened")]
const fn device_from_word(word: u64) -> i32 {
    (word as u32).cast_signed()
}
