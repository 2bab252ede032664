//! Recording of calls.

use core::{
    ffi::c_void,
    ptr::{self, null_mut},
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

use call_ring::{
    Group, Kind, Lane, Memory, Mode, PlanMemory, Stamp, Target,
    kind::{LEGACY, PER_THREAD},
    memory::OWN_LANES,
    token::Signature,
};

use crate::{
    act::Executor,
    advised::{Advised, Subject},
    agent::Agent,
    blocks::{Block, Blocks, Found},
    clock,
    cuda::{CuResult, Handle, LEGACY_STREAM, PER_THREAD_STREAM},
    driver,
    first_stage::FirstStage,
    gate::{self, Gate},
    libc::{Libc, ThreadKey},
    parameters::Parameters,
    parts::Range,
    permission::Permission,
    plan::{Launch, Mover, Plan},
    process, shared,
    stream::Stream,
    thread,
    threads::Threads,
    zeroed::{self, Words},
};

/// Functions and keys that the recorder of a child takes over from its parent's. A child of a fork looks up
/// nothing: a lock of the loader may be held by a thread that the child does not have.
#[derive(Clone, Copy, Debug)]
struct Inherited {
    first_stage: FirstStage,
    /// Place of each thread for its [`Seat`].
    thread: ThreadKey,
    threads: Option<Threads>,
}

/// Lane of a thread in the ring of a recorder; [`OWN_LANES`] if it has none for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    /// Number of the recorder: a child's thread may have one of its parent's.
    generation: u8,
    thread: u32,
    lane: u8,
}

impl Seat {
    /// In a word; 0 is no seat.
    fn pack(self) -> usize {
        let [a, b, c, d] = self.thread.to_le_bytes();
        usize::from_le_bytes([self.lane + 1, a, b, c, d, self.generation, 0, 0])
    }

    fn unpack(word: usize) -> Option<Self> {
        let [lane, a, b, c, d, generation, _, _] = word.to_le_bytes();
        Some(Self { generation, thread: u32::from_le_bytes([a, b, c, d]), lane: lane.checked_sub(1)? })
    }
}

/// What recording takes, made once.
#[derive(Debug)]
pub(crate) struct Recorder {
    inherited: Inherited,
    /// Number of recorders that the process's parents had.
    generation: u8,
    memory: Memory<'static>,
    pub(crate) blocks: Blocks,
    pub(crate) parameters: Parameters,
    /// Advice of the program's own.
    pub(crate) advised: Advised,
    /// Between the program and the helper's thread.
    pub(crate) gate: Gate,
    /// Of the helper's thread.
    pub(crate) stream: Stream,
    /// Plan of uvmd's that launches follow.
    pub(crate) plan: Plan,
    agent: Agent,
    /// Captures of streams that have begun and not ended, or more: without any, no record asks for them.
    captures: AtomicU64,
    /// 1; 0 in a child that a fork made, which has neither the ring nor CUDA.
    is_own: &'static AtomicU64,
}

/// The last recorder that was made: of this process, or of its parent in a child that a fork made. Null
/// before there is one, and while a child makes its own.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

#[expect(unsafe_code, reason = "a pointer that children compare")]
fn last() -> Option<&'static Recorder> {
    // SAFETY: null, or a recorder that is shared for ever: a child makes one of its own.
    unsafe { RECORDER.load(Ordering::Acquire).as_ref() }
}

/// Recorder of this process; `None` before it started, and in children of a fork.
pub(crate) fn existing() -> Option<&'static Recorder> {
    last().filter(|recorder| recorder.is_own())
}

/// Recorder of this process, if it is to record. If it is to act, the helper's thread is started.
pub(crate) fn recording() -> Option<&'static Recorder> {
    existing().filter(|recorder| recorder.is_recording())
}

/// Recorder of this process, and the gate that a call is within which ends what a command may name:
/// whether calls are recorded or not, as commands may come later.
pub(crate) fn at_gate() -> Option<(&'static Recorder, gate::Call)> {
    existing().map(|recorder| (recorder, recorder.gate.enter()))
}

/// Records a call after it was made, if it succeeded; returns its result.
pub(crate) fn after(result: CuResult, record: impl FnOnce(&'static Recorder)) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        record(recorder);
    }
    result
}

/// Starts to record, once; without the means nothing is recorded.
pub(crate) fn start(first_stage: FirstStage) {
    let dlsym = first_stage.dlsym;
    if clock::find(dlsym)
        && thread::find(dlsym)
        && let Some(thread) = Libc::find(dlsym).and_then(|libc| libc.thread_key(thread_ends))
    {
        process::find_first_thread(first_stage.first_thread);
        make(Inherited { first_stage, thread, threads: Threads::find(dlsym) }, 0);
    }
}

/// Makes the recorder, in one thread.
fn make(inherited: Inherited, generation: u8) {
    if let Some(recorder) = Recorder::new(inherited, generation)
        && let Ok(recorder) = zeroed::leak(recorder)
    {
        RECORDER.store(recorder, Ordering::Release);
    }
}

/// Starts to record anew in a child that a fork made, and that calls `cuInit`: where the parent has done so
/// before, the driver refuses that, and nothing is recorded.
pub(crate) fn start_in_child() {
    let Some(parent) = last().filter(|recorder| !recorder.is_own()) else { return };
    let former = ptr::from_ref(parent).cast_mut();
    if RECORDER.compare_exchange(former, null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    process::find_first_thread_in_child();
    // A filter that came since the parent began may forbid what follows.
    if parent.agent.has_filters_of_start() {
        make(parent.inherited, parent.generation.wrapping_add(1));
    }
}

/// Lane of a thread that has none for itself.
#[expect(clippy::cast_possible_truncation, reason = "twelve")]
const SHARED: u8 = OWN_LANES as u8;

/// Words that a child that a fork makes has as zeros.
const WORDS: usize = 32;

/// At a thread's end: its lane is free for another. Calls that the program makes after this, as its own
/// data of the thread end, go to the lanes that threads share: nothing would give up another one.
extern "C" fn thread_ends(value: *mut c_void) {
    let (Some(recorder), Some(seat)) = (existing(), Seat::unpack(value as usize)) else { return };
    // A lane of its number may be another thread's in the ring of a child.
    if seat.generation != recorder.generation {
        return;
    }
    recorder.give_up(seat);
    recorder.inherited.thread.set(Seat { lane: SHARED, ..seat }.pack());
}

impl Recorder {
    fn new(inherited: Inherited, generation: u8) -> Option<Self> {
        if !(thread::has_number_of_kernel() && shared::is_permitted()) {
            return None;
        }
        let mut words = Words::new(zeroed::private_zero_at_fork(WORDS).ok()?);
        let is_own = words.next()?;
        let (gate, stream) = (Gate::new(&mut words)?, Stream::new(&mut words)?);
        let (blocks, parameters, advised) = (Blocks::new().ok()?, Parameters::new().ok()?, Advised::new().ok()?);
        // Before the ring: whoever sees that sees both.
        let plan_memory = PlanMemory::create(shared::make_plan().ok()?).ok()?;
        let memory = Memory::create(shared::make().ok()?, Mode::Record).ok()?;
        let permission = Permission::new(memory, inherited.first_stage.is_filter_requested);
        let plan = Plan::new(permission, plan_memory, &mut words).ok()?;
        let executor = Executor { memory, permission, blocks, advised, gate, stream };
        let mover = Mover { plan, blocks, advised, gate };
        let agent = Agent::new(inherited.first_stage, inherited.threads, &mut words, executor, &mover)?;
        is_own.store(1, Ordering::Release);
        let captures = AtomicU64::new(0);
        Some(Self {
            inherited,
            generation,
            memory,
            blocks,
            parameters,
            advised,
            gate,
            stream,
            plan,
            agent,
            captures,
            is_own,
        })
    }

    /// Whether it is of this process, and not of its parent.
    fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed) == 1
    }

    /// Whether calls are recorded.
    pub(crate) fn is_recording(&'static self) -> bool {
        match self.memory.mode() {
            Mode::Off => false,
            Mode::Record => true,
            Mode::Act => {
                self.agent.start();
                true
            }
        }
    }

    /// Lane and id of the calling thread; [`OWN_LANES`] if it has none for itself.
    fn thread(&self) -> Option<(usize, u32)> {
        let seat = Seat::unpack(self.inherited.thread.get()).filter(|seat| seat.generation == self.generation);
        let Seat { lane, thread, .. } = seat.or_else(|| self.take_seat())?;
        Some((lane.into(), thread))
    }

    fn take_seat(&self) -> Option<Seat> {
        let thread = thread::own_id()?;
        let own = (0..SHARED).find(|lane| self.memory.lane((*lane).into()).acquire(thread));
        let seat = Seat { generation: self.generation, thread, lane: own.unwrap_or(SHARED) };
        if !self.inherited.thread.set(seat.pack()) {
            // Nothing would give the lane up at the thread's end.
            self.give_up(seat);
            return None;
        }
        Some(seat)
    }

    fn give_up(&self, seat: Seat) {
        if seat.lane < SHARED {
            self.memory.lane(seat.lane.into()).release();
        }
    }

    /// Writes a call with a lane and a stamp.
    fn write(&self, call: impl FnOnce(Lane<'static>, Stamp) -> Group<'static>) {
        let Some((number, thread)) = self.thread() else {
            self.memory.count_unrecorded();
            return;
        };
        if number < OWN_LANES {
            self.write_to(self.memory.lane(number), thread, call);
            return;
        }
        match self.memory.shared_lanes(thread).find(Lane::try_lock) {
            Some(lane) => {
                self.write_to(lane, thread, call);
                lane.unlock();
            }
            None => self.memory.lane(OWN_LANES).count_dropped(),
        }
    }

    /// Writes a call to a lane that no other thread is writing to.
    fn write_to(&self, lane: Lane<'static>, thread: u32, call: impl FnOnce(Lane<'static>, Stamp) -> Group<'static>) {
        // A full lane takes no number: the reader would wait for it.
        if lane.has_room(1) {
            call(lane, self.memory.stamp(clock::monotonic_ns(), thread)).publish();
        } else {
            lane.count_dropped();
        }
    }

    /// Records a call.
    pub(crate) fn record(&self, kind: Kind, flags: u8, words: [u64; 5]) {
        self.write(|lane, stamp| Group::begin(lane, stamp, kind, flags, words));
    }

    /// Records a call whose work has a target, with what follows its first record.
    pub(crate) fn record_work(
        &self,
        kind: Kind,
        flags: u8,
        target: Target,
        words: [u64; 4],
        more: impl FnOnce(&mut Group<'static>),
    ) {
        self.write(|lane, stamp| {
            let mut group = Group::with_target(lane, stamp, kind, flags, target, words);
            more(&mut group);
            group
        });
    }

    /// Records the name of a function.
    pub(crate) fn record_function(&self, function: Handle) {
        // Asked before the record takes its number, which others wait for: the driver may take
        // long.
        let name = driver::name(function);
        self.write(|lane, stamp| {
            let mut group = Group::begin(lane, stamp, Kind::Function, 0, [0, function, 0, 0, 0]);
            group.name(crate::program::text(name));
            group
        });
    }

    /// Counts a call whose record lacks something.
    pub(crate) fn count_unrecorded(&self) {
        self.memory.count_unrecorded();
    }

    /// Adds the pointers among aligned words of arguments.
    pub(crate) fn add_pointers(&self, group: &mut Group<'static>, words: impl Iterator<Item = (u16, u64)>) {
        for (offset_bytes, word) in words {
            match self.blocks.find(word) {
                Found::Inside => group.pointer(offset_bytes, word),
                Found::Outside => {}
                Found::Unknown => group.set_arguments_unknown(),
            }
        }
    }

    /// Where work goes that is submitted to a stream.
    pub(crate) fn target(&self, stream: Handle, is_per_thread: bool) -> Target {
        let stream = named_default(stream, is_per_thread);
        let capture = if self.captures.load(Ordering::Relaxed) > 0 { driver::capture(stream) } else { None };
        capture.map_or_else(|| Target::Stream(named_stream(stream, is_per_thread)), Target::Captured)
    }

    /// Numbers a launch that is about to be made, and has its stream wait as a plan says. `launch` has
    /// what is launched, and the stream; it is called beside a plan alone.
    pub(crate) fn before_launch(
        &self,
        is_per_thread: bool,
        launch: impl FnOnce() -> Option<(Signature, Handle)>,
    ) -> Launch<'_> {
        self.plan.before(|| launch().map(|(signature, stream)| (signature, named_default(stream, is_per_thread))))
    }

    /// Counts a capture that has begun.
    pub(crate) fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that has ended.
    pub(crate) fn capture_ends(&self) {
        // One that began before there was a recorder is not counted.
        let fewer = |captures: u64| captures.checked_sub(1);
        let _ = self.captures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Removes the block that begins at an address, which is about to be freed, with what was
    /// advised of it.
    pub(crate) fn remove(&self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.plan.on_free(&block);
        self.forget_advice(&block);
        Some(block)
    }

    /// Adds a block that was removed for a free that failed. What was advised of it is not known
    /// any more: it may be anything.
    pub(crate) fn restore(&self, block: Block) {
        if block.is_managed && !self.advised.note(range(&block), Subject::UNKNOWN) {
            self.count_unrecorded();
        }
        self.blocks.add(block);
    }

    fn forget_advice(&self, block: &Block) {
        if block.is_managed && !self.advised.forget(range(block), None) {
            self.count_unrecorded();
        }
    }

    /// Frees all memory of a context that is no more.
    pub(crate) fn context_ends(&'static self, context: Handle) {
        self.stream.forget_context(context);
        self.plan.forget_context(context);
        while let Some(block) = self.blocks.remove_any_in(context) {
            self.forget_advice(&block);
            if self.is_recording() {
                self.record(Kind::Free, 0, [0, block.begin, 0, 0, 0]);
            }
        }
    }
}

const fn range(block: &Block) -> Range {
    Range { begin: block.begin, end: block.end }
}

/// Stream 0 as the driver names it, whichever function the program calls.
pub(crate) const fn named_default(stream: Handle, is_per_thread: bool) -> Handle {
    match stream {
        0 if is_per_thread => PER_THREAD_STREAM,
        0 => LEGACY_STREAM,
        _ => stream,
    }
}

/// A stream by one name, whichever the program has for it: the default ones, of which each context
/// has its own, by the context's handle with [`LEGACY`] or [`PER_THREAD`].
pub(crate) fn named_stream(stream: Handle, is_per_thread: bool) -> Handle {
    match named_default(stream, is_per_thread) {
        LEGACY_STREAM => driver::context() | LEGACY,
        PER_THREAD_STREAM => driver::context() | PER_THREAD,
        stream => stream,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::libc::dlsym;

    #[test]
    fn recorder_of_a_child_leaves_that_of_its_parent_as_it_is() {
        static IS_FILTER_REQUESTED: AtomicBool = AtomicBool::new(false);
        start(FirstStage { dlsym, first_thread: 0, is_filter_requested: &IS_FILTER_REQUESTED });
        let parent = existing().unwrap();
        let (lane, _) = parent.thread().unwrap();
        assert!(lane < OWN_LANES);
        let seat = parent.inherited.thread.get();
        // As the kernel does in a child that a fork makes.
        parent.is_own.store(0, Ordering::Relaxed);
        assert!(existing().is_none());
        start_in_child();
        let child = existing().unwrap();
        assert!(!ptr::eq(parent, child));
        // Handlers and threads that have the parent's find it unchanged.
        assert_eq!(parent.is_own.load(Ordering::Relaxed), 0);
        // The lane that a thread has in the parent's ring may be another thread's in the child's. It neither
        // writes to it, nor gives it up at its end, whichever of the child's threads has made the recorder.
        let other = 7;
        assert!(child.memory.lane(lane).acquire(other));
        assert_ne!(child.thread().unwrap().0, lane);
        thread_ends(seat as *mut c_void);
        assert!(!child.memory.lane(lane).acquire(other), "the other thread still has it");
        let (own, _) = child.thread().unwrap();
        thread_ends(child.inherited.thread.get() as *mut c_void);
        assert!(child.memory.lane(own).acquire(other));
        assert_eq!(child.thread().unwrap().0, OWN_LANES);
        start_in_child();
        assert!(ptr::eq(existing().unwrap(), child));
    }
}
