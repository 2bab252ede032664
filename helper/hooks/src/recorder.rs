//! Recording of calls.

use core::{
    ffi::c_void,
    ptr::{self, null_mut},
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

use call_ring::{
    Group, Kind, Lane, Memory, Mode, PlanMemory, Stamp, Target,
    kind::{LEGACY, PER_THREAD},
    memory::DEDICATED_LANES,
    token::Signature,
};

use crate::{
    act::Executor,
    agent::Agent,
    blocks::{Block, Blocks, SearchResult},
    clock,
    cuda::{CuResult, Handle, LEGACY_STREAM, PER_THREAD_STREAM},
    driver,
    first_stage::FirstStage,
    gate::{self, Gate},
    libc::{Libc, ThreadKey},
    mapping::{self, Words},
    parameters::Parameters,
    parts::Range,
    permission::Permission,
    plan::{Launch, Mover, Plan},
    process,
    program_advice::{ProgramAdvice, Subject},
    references::References,
    shared,
    stream::Stream,
    thread,
    threads::Threads,
    variables::{Variable, Variables},
};

/// Functions and keys that a forked child's recorder inherits from its parent's. The child looks up
/// nothing, as a lock of the loader may be held by a thread that the child does not have.
#[derive(Clone, Copy, Debug)]
struct Inherited {
    first_stage: FirstStage,
    /// Thread-local slot for the [`LaneLease`].
    thread: ThreadKey,
    threads: Option<Threads>,
}

/// Lane of a thread in the ring of a recorder; [`DEDICATED_LANES`] if it has no lane of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneLease {
    /// Generation of the recorder: a child's thread may still have a lease of its parent's
    /// recorder.
    generation: u8,
    thread: u32,
    lane: u8,
}

impl LaneLease {
    /// Packs the lease into a word; 0 is no lease.
    fn pack(self) -> usize {
        let [a, b, c, d] = self.thread.to_le_bytes();
        usize::from_le_bytes([self.lane + 1, a, b, c, d, self.generation, 0, 0])
    }

    fn unpack(word: usize) -> Option<Self> {
        let [lane, a, b, c, d, generation, _, _] = word.to_le_bytes();
        Some(Self { generation, thread: u32::from_le_bytes([a, b, c, d]), lane: lane.checked_sub(1)? })
    }
}

/// Recorder of a process, created once.
#[derive(Debug)]
pub(crate) struct Recorder {
    inherited: Inherited,
    /// Count of recorders in the process's ancestors.
    generation: u8,
    memory: Memory<'static>,
    pub(crate) blocks: Blocks,
    /// Managed variables, whose memory is among the blocks.
    pub(crate) variables: Variables,
    /// References to contexts.
    pub(crate) references: References,
    pub(crate) parameters: Parameters,
    /// The program's own advice.
    pub(crate) program_advice: ProgramAdvice,
    /// Gate between the program and the helper's thread.
    pub(crate) gate: Gate,
    /// Stream of the helper's thread.
    pub(crate) stream: Stream,
    /// uvmd's plan, which launches follow.
    pub(crate) plan: Plan,
    agent: Agent,
    /// Upper bound of the number of captures in progress. At 0, records do not query whether their
    /// stream is captured.
    captures: AtomicU64,
    /// 1; 0 in a forked child, which has neither the ring nor CUDA.
    is_own: &'static AtomicU64,
}

/// Recorder that was created last: of this process, or of its parent in a forked child. Null before
/// the first one, and while a child creates its own.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

#[expect(unsafe_code, reason = "a pointer that children compare")]
fn latest() -> Option<&'static Recorder> {
    // SAFETY: null, or a leaked recorder that is only shared: a child creates its own.
    unsafe { RECORDER.load(Ordering::Acquire).as_ref() }
}

/// Recorder of this process; `None` before it has started, and in forked children.
pub(crate) fn current() -> Option<&'static Recorder> {
    latest().filter(|recorder| recorder.is_own())
}

/// Recorder of this process, unless it is off. Starts the helper's thread in the mode to act.
pub(crate) fn recording() -> Option<&'static Recorder> {
    current().filter(|recorder| recorder.is_recording())
}

/// Recorder of this process, and the guard of the gate, for a call that changes memory, advice or
/// contexts. In any mode, as commands may follow later.
pub(crate) fn enter_gate() -> Option<(&'static Recorder, gate::CallGuard)> {
    current().map(|recorder| (recorder, recorder.gate.enter()))
}

/// Records a call after it was made, if it succeeded; returns its result.
pub(crate) fn record_success(result: CuResult, record: impl FnOnce(&'static Recorder)) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        record(recorder);
    }
    result
}

/// Starts recording, once. Records nothing if a function that it needs is missing.
pub(crate) fn start(first_stage: FirstStage) {
    let dlsym = first_stage.dlsym;
    if clock::find(dlsym)
        && thread::find(dlsym)
        && let Some(thread) = Libc::find(dlsym).and_then(|libc| libc.thread_key(on_thread_exit))
    {
        process::find_first_thread(first_stage.first_thread);
        create(Inherited { first_stage, thread, threads: Threads::find(dlsym) }, 0);
    }
}

/// Creates the recorder. Only one thread may call this.
fn create(inherited: Inherited, generation: u8) {
    if let Some(recorder) = Recorder::new(inherited, generation)
        && let Ok(recorder) = mapping::leak(recorder)
    {
        RECORDER.store(recorder, Ordering::Release);
    }
}

/// Restarts recording in a forked child that calls `cuInit`. If the parent has called it before,
/// the driver refuses that, and nothing is recorded.
pub(crate) fn start_in_child() {
    let Some(parent) = latest().filter(|recorder| !recorder.is_own()) else { return };
    let former = ptr::from_ref(parent).cast_mut();
    if RECORDER.compare_exchange(former, null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    process::find_first_thread_in_child();
    // A filter installed since the parent began may forbid what follows.
    if parent.agent.has_initial_filters() {
        create(parent.inherited, parent.generation.wrapping_add(1));
    }
}

/// Lane number of threads without a lane of their own.
#[expect(clippy::cast_possible_truncation, reason = "the number of dedicated lanes is 12")]
const SHARED_LANE: u8 = DEDICATED_LANES as u8;

/// Count of words that are zeroed in a forked child.
const FORK_ZEROED_WORDS: usize = 32;

/// Releases the lane of a thread that ends. Later calls of this thread, made while its thread-local
/// data are destroyed, go to the shared lanes: nothing would release another lane.
extern "C" fn on_thread_exit(value: *mut c_void) {
    let (Some(recorder), Some(lease)) = (current(), LaneLease::unpack(value as usize)) else { return };
    // In a child's ring, the lane of this number may be another thread's.
    if lease.generation != recorder.generation {
        return;
    }
    recorder.release_lane(lease);
    recorder.inherited.thread.set(LaneLease { lane: SHARED_LANE, ..lease }.pack());
}

impl Recorder {
    fn new(inherited: Inherited, generation: u8) -> Option<Self> {
        if !(thread::has_kernel_id() && shared::is_permitted()) {
            return None;
        }
        let mut words = Words::new(mapping::private_wiped_on_fork(FORK_ZEROED_WORDS).ok()?);
        let is_own = words.next()?;
        let (gate, stream) = (Gate::new(&mut words)?, Stream::new(&mut words)?);
        let (blocks, variables) = (Blocks::new().ok()?, Variables::new().ok()?);
        let references = References::new().ok()?;
        let (parameters, program_advice) = (Parameters::new().ok()?, ProgramAdvice::new().ok()?);
        // Before the ring: a reader that finds the ring finds both.
        let plan_memory = PlanMemory::create(shared::create_plan().ok()?).ok()?;
        let memory = Memory::create(shared::create_ring().ok()?, Mode::Record).ok()?;
        let permission = Permission::new(memory, inherited.first_stage.is_filter_requested);
        let plan = Plan::new(permission, plan_memory, &mut words).ok()?;
        let executor = Executor { memory, permission, blocks, program_advice, gate, stream };
        let mover = Mover { plan, blocks, program_advice, gate };
        let agent = Agent::new(inherited.first_stage, inherited.threads, &mut words, executor, &mover)?;
        is_own.store(1, Ordering::Release);
        let captures = AtomicU64::new(0);
        Some(Self {
            inherited,
            generation,
            memory,
            blocks,
            variables,
            references,
            parameters,
            program_advice,
            gate,
            stream,
            plan,
            agent,
            captures,
            is_own,
        })
    }

    /// Whether the recorder is this process's own, not its parent's.
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

    /// Lane and id of the calling thread; [`DEDICATED_LANES`] if it has no lane of its own.
    fn lane_and_thread(&self) -> Option<(usize, u32)> {
        let lease = LaneLease::unpack(self.inherited.thread.get()).filter(|lease| lease.generation == self.generation);
        let LaneLease { lane, thread, .. } = lease.or_else(|| self.acquire_lane())?;
        Some((lane.into(), thread))
    }

    fn acquire_lane(&self) -> Option<LaneLease> {
        let thread = thread::current_id()?;
        let own = (0..SHARED_LANE).find(|lane| self.memory.lane((*lane).into()).acquire(thread));
        let lease = LaneLease { generation: self.generation, thread, lane: own.unwrap_or(SHARED_LANE) };
        if !self.inherited.thread.set(lease.pack()) {
            // Nothing would release the lane at the thread's end.
            self.release_lane(lease);
            return None;
        }
        Some(lease)
    }

    fn release_lane(&self, lease: LaneLease) {
        if lease.lane < SHARED_LANE {
            self.memory.lane(lease.lane.into()).release();
        }
    }

    /// Writes a call with a lane and a stamp.
    fn write(&self, call: impl FnOnce(Lane<'static>, Stamp) -> Group<'static>) {
        let Some((number, thread)) = self.lane_and_thread() else {
            self.memory.count_unrecorded();
            return;
        };
        if number < DEDICATED_LANES {
            self.write_to(self.memory.lane(number), thread, call);
            return;
        }
        match self.memory.shared_lanes(thread).find(Lane::try_lock) {
            Some(lane) => {
                self.write_to(lane, thread, call);
                lane.unlock();
            }
            None => self.memory.lane(DEDICATED_LANES).count_dropped(),
        }
    }

    /// Writes a call to a lane that no other thread writes to.
    fn write_to(&self, lane: Lane<'static>, thread: u32, call: impl FnOnce(Lane<'static>, Stamp) -> Group<'static>) {
        // A full lane takes no number, as the reader would wait for its record.
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

    /// Records a call whose work has a target; `more` adds further records.
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
        // Queried before the record takes its number, which the reader waits for: the driver may
        // take long.
        let name = driver::function_name(function);
        self.write(|lane, stamp| {
            let mut group = Group::begin(lane, stamp, Kind::Function, 0, [0, function, 0, 0, 0]);
            group.add_name(crate::program::text(name));
            group
        });
    }

    /// Counts a call whose record is incomplete.
    pub(crate) fn count_unrecorded(&self) {
        self.memory.count_unrecorded();
    }

    /// Adds the pointers among aligned words of arguments.
    pub(crate) fn add_pointers(&self, group: &mut Group<'static>, words: impl Iterator<Item = (u16, u64)>) {
        for (offset_bytes, word) in words {
            match self.blocks.find(word) {
                SearchResult::Inside => group.add_pointer(offset_bytes, word),
                SearchResult::Outside => {}
                SearchResult::Contended => group.set_arguments_unknown(),
            }
        }
    }

    /// Target of work that is submitted to a stream: the stream, or the capture that it is part of.
    pub(crate) fn target(&self, stream: Handle, is_per_thread: bool) -> Target {
        let stream = resolve_default_stream(stream, is_per_thread);
        let capture = if self.captures.load(Ordering::Relaxed) > 0 { driver::capture_id(stream) } else { None };
        capture.map_or_else(|| Target::Stream(unique_stream(stream, is_per_thread)), Target::Captured)
    }

    /// Numbers a launch that is about to be made, and makes its stream wait for moves of the plan.
    /// `launch` returns the signature and the stream; it is called only while a plan is followed.
    pub(crate) fn prepare_launch(
        &self,
        is_per_thread: bool,
        launch: impl FnOnce() -> Option<(Signature, Handle)>,
    ) -> Launch<'_> {
        self.plan.prepare_launch(|| {
            launch().map(|(signature, stream)| (signature, resolve_default_stream(stream, is_per_thread)))
        })
    }

    /// Counts a capture that has begun.
    pub(crate) fn on_capture_begin(&self) {
        self.captures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a capture that has ended.
    pub(crate) fn on_capture_end(&self) {
        // A capture that began before the recorder existed was not counted.
        let fewer = |captures: u64| captures.checked_sub(1);
        let _ = self.captures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Removes the block that begins at an address and is about to be freed, with its advice.
    pub(crate) fn remove(&self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.plan.on_free(&block);
        self.forget_advice(&block);
        Some(block)
    }

    /// Restores a block after a failed free. Its advice was removed: the block counts as advised on
    /// any subject.
    pub(crate) fn restore(&self, block: Block) {
        if block.is_managed && !self.program_advice.insert(range(&block), Subject::UNKNOWN) {
            self.count_unrecorded();
        }
        self.blocks.add(block);
    }

    /// Removes the variables that a predicate selects, whose memory has ended, and records their
    /// frees.
    pub(crate) fn end_variables(&'static self, is_selected: impl Fn(&Variable) -> bool) {
        self.variables.remove(is_selected, |variable| self.end_variable(variable));
    }

    /// Removes the memory of a variable, and records its free.
    pub(crate) fn end_variable(&'static self, variable: Variable) {
        self.remove(variable.address);
        if self.is_recording() {
            self.record(Kind::Free, 0, [0, variable.address, 0, 0, 0]);
        }
    }

    fn forget_advice(&self, block: &Block) {
        if block.is_managed && !self.program_advice.remove(range(block), None) {
            self.count_unrecorded();
        }
    }

    /// Assigns the memory of a context to another one, in which it lives on.
    pub(crate) fn reassign(&self, context: Handle, other: Handle) {
        self.variables.reassign(context, other);
        if !self.blocks.reassign(context, other) {
            self.count_unrecorded();
        }
    }

    /// Forgets what the helper has in a destroyed context, whose handle the driver may reuse.
    pub(crate) fn forget_context(&self, context: Handle) {
        self.references.forget_context(context);
        self.stream.forget_context(context);
        self.plan.forget_context(context);
    }

    /// Records frees of all memory of a destroyed context.
    pub(crate) fn on_context_destroyed(&'static self, context: Handle) {
        self.forget_context(context);
        self.variables.remove(|variable| variable.context == context, drop);
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

/// The driver's name of stream 0, by the form of the function called.
pub(crate) const fn resolve_default_stream(stream: Handle, is_per_thread: bool) -> Handle {
    match stream {
        0 if is_per_thread => PER_THREAD_STREAM,
        0 => LEGACY_STREAM,
        _ => stream,
    }
}

/// Unique name of a stream. Each context has its own default streams: they are named by the
/// context's handle with [`LEGACY`] or [`PER_THREAD`].
pub(crate) fn unique_stream(stream: Handle, is_per_thread: bool) -> Handle {
    match resolve_default_stream(stream, is_per_thread) {
        LEGACY_STREAM => driver::current_context() | LEGACY,
        PER_THREAD_STREAM => driver::current_context() | PER_THREAD,
        stream => stream,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::libc::dlsym;

    #[test]
    fn child_begins_anew_and_does_not_change_the_recorder_of_its_parent() {
        static IS_FILTER_REQUESTED: AtomicBool = AtomicBool::new(false);
        start(FirstStage { dlsym, first_thread: 0, is_filter_requested: &IS_FILTER_REQUESTED });
        let parent = current().unwrap();
        let (lane, _) = parent.lane_and_thread().unwrap();
        assert!(lane < DEDICATED_LANES);
        let lease = parent.inherited.thread.get();
        parent.references.add(7);
        // As the kernel does in a forked child.
        parent.is_own.store(0, Ordering::Relaxed);
        assert!(current().is_none());
        start_in_child();
        let child = current().unwrap();
        assert!(!ptr::eq(parent, child));
        assert!(!child.references.remove(7), "a context of the parent");
        // Handlers and threads that have the parent's recorder find it unchanged.
        assert_eq!(parent.is_own.load(Ordering::Relaxed), 0);
        // The lane that a thread has in the parent's ring may be another thread's in the child's.
        // The thread neither writes to it nor releases it at its end, even if another thread of the
        // child has created the recorder.
        let other = 7;
        assert!(child.memory.lane(lane).acquire(other));
        assert_ne!(child.lane_and_thread().unwrap().0, lane);
        on_thread_exit(lease as *mut c_void);
        assert!(!child.memory.lane(lane).acquire(other), "the other thread still has it");
        let (own, _) = child.lane_and_thread().unwrap();
        on_thread_exit(child.inherited.thread.get() as *mut c_void);
        assert!(child.memory.lane(own).acquire(other));
        assert_eq!(child.lane_and_thread().unwrap().0, DEDICATED_LANES);
        start_in_child();
        assert!(ptr::eq(current().unwrap(), child));
    }
}
