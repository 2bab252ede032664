//! Sequence of the last calls of a process with their numbers, and the iterations that the detector
//! finds in it.

use std::collections::{HashMap, VecDeque};

use call_ring::{
    MemoryKind, Target, Token,
    call::{Action, Call},
    plan::PERIOD_MAX,
};
use recorder::{LiveBlock, Ops, Program, Window, ops::OpsError};
use trace::{
    BlockId, Detector, Footprints, OpId, OpKind,
    detect::{self, Lock, State},
    footprints::{Extent, Until},
    id::Id,
    ops,
};

use crate::{
    budget::{self, WINDOW_BYTES},
    claims::ClaimLimits,
    pieces::{AllocationInfo, Pieces},
    refusal::Refusal,
};

/// Metadata of a call.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Number of the detector's operations before the call.
    ops: u64,
    /// Number of tokens, of launches and syncs, before the call.
    tokens: u64,
    /// Number of the launch, if any.
    number: Option<u64>,
    /// Whether the call waits for the GPU.
    is_sync: bool,
}

/// Phase and period of iterations, in numbers of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Periodicity {
    /// Number of a launch at which an iteration begins.
    pub(crate) first_launch: u64,
    /// Launches of an iteration.
    pub(crate) period: u64,
}

/// Work of an iteration.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) first_launch: u64,
    pub(crate) tokens: Vec<Token>,
    pub(crate) durations_ns: Vec<u64>,
    /// Per launch, the first launch after the last sync; `None` if that is in the previous
    /// iteration.
    pub(crate) queue_starts: Vec<Option<usize>>,
    pub(crate) pieces: Pieces,
    /// Per launch, whether no copy or fill is between it and the previous launch, so that its uses
    /// are its own.
    pub(crate) isolated: Vec<bool>,
    /// Whether the program moves its managed memory itself, or permits remote access by the GPU.
    pub(crate) manages_placement: bool,
    /// Unmapped bytes of managed allocations that launches name.
    pub(crate) unmapped_bytes: u64,
}

/// Sequence of calls.
#[derive(Debug)]
pub(crate) struct Sequence {
    window: Window,
    marks: VecDeque<Mark>,
    detector: Detector,
    ops: u64,
    tokens: u64,
    /// Current state of the program.
    program: Program,
    /// Number of the last launch.
    last: Option<u64>,
}

/// Detector window in tokens: two iterations, each of at most [`PERIOD_MAX`] launches, copies and
/// fills together.
const DETECTOR_TOKENS: usize = 2 * PERIOD_MAX;
/// Tokens per graph launch: otherwise iterations of few graphs would be too short for the detector.
const GRAPH_TOKENS: usize = 8;
/// Numbers of copies and fills for the detector, which differ from all function handles.
const COPY: u64 = u64::MAX - 1;
const FILL: u64 = u64::MAX - 2;

impl Sequence {
    /// Sequence of calls that starts from a state of the program.
    pub(crate) fn with_program(program: Program) -> Self {
        let settings = detect::Settings { has_syncs: true, window: DETECTOR_TOKENS, ..detect::Settings::default() };
        Self {
            window: Window::with_program(program.clone(), WINDOW_BYTES),
            marks: VecDeque::new(),
            detector: Detector::new(settings),
            ops: 0,
            tokens: 0,
            program,
            last: None,
        }
    }

    /// Heap bytes held, estimated from counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let Self { window, marks, detector, program, .. } = self;
        window.bytes() + marks.capacity() * size_of::<Mark>() + detector.bytes() + program.bytes()
    }

    /// Drops the calls before the last `iterations` iterations of this periodicity.
    pub(crate) fn shorten(&mut self, periodicity: Periodicity, iterations: u64) {
        let Some(since) = self.last.map(|last| last.saturating_sub(iterations * periodicity.period)) else { return };
        if let Some(first) = self.marks.iter().rposition(|mark| mark.number == Some(since)) {
            self.window.shorten(self.marks.len() - first);
            self.marks.drain(..self.marks.len() - self.window.retained());
            self.marks.shrink_to(2 * self.marks.len());
        }
    }

    /// State of the detector.
    pub(crate) fn state(&self) -> State {
        self.detector.state()
    }

    /// Number of the last launch.
    pub(crate) const fn last(&self) -> Option<u64> {
        self.last
    }

    /// Adds a call.
    pub(crate) fn add(&mut self, call: Call) {
        let number = call.number_near(self.last);
        let sync = self.program.sync(&call);
        self.marks.push_back(Mark { ops: self.ops, tokens: self.tokens, number, is_sync: sync.is_some() });
        self.last = number.or(self.last);
        self.detect(&call, sync);
        self.program.advance(&call.action);
        self.window.add(call);
        while self.marks.len() > self.window.retained() {
            self.marks.pop_front();
        }
        if self.detector.due() {
            self.detector.search();
        }
    }

    fn detect(&mut self, call: &Call, sync: Option<ops::SyncKind>) {
        match &call.action {
            Action::Malloc { bytes, .. } => {
                self.detector.malloc(*bytes);
                self.ops += 1;
            }
            Action::Free { address, .. } => {
                if let Some(block) = self.program.block_starting_at(*address) {
                    self.detector.free(block.bytes);
                    self.ops += 1;
                }
            }
            Action::Launch { target: Target::Stream(_), function, .. } => {
                let signature = call.token().map_or(0, |token| Token { pointers: None, ..token }.to_word());
                self.launch(*function, signature);
            }
            Action::Copy { target: Target::Stream(_), .. } => self.launch(COPY, COPY),
            Action::Fill { target: Target::Stream(_), .. } => self.launch(FILL, FILL),
            Action::GraphLaunch { executable, .. } => {
                for _ in 0..GRAPH_TOKENS {
                    self.launch(*executable, *executable);
                }
            }
            _ => {}
        }
        if let Some(kind) = sync {
            self.detector.sync(kind);
            self.ops += 1;
            self.tokens += 1;
        }
    }

    fn launch(&mut self, function: u64, signature: u64) {
        self.detector.launch(function, signature);
        self.ops += 1;
        self.tokens += 1;
    }

    /// Periodicity of a lock; `None` if its launches have no numbers yet.
    pub(crate) fn periodicity(&self, lock: &Lock) -> Result<Option<Periodicity>, Refusal> {
        let begin = self.marks.partition_point(|mark| mark.ops < lock.start_op);
        if begin == 0 && self.window.added() > self.marks.len() as u64 {
            return Err(Refusal::TooLong);
        }
        let Some(first) = self.marks.get(begin) else { return Ok(None) };
        let end = first.tokens + (lock.period.launches + lock.period.syncs) as u64;
        if self.tokens < end {
            return Ok(None);
        }
        let calls = self.window.calls().zip(&self.marks).skip(begin).take_while(|(_, mark)| mark.tokens < end);
        let numbers: Vec<Option<u64>> =
            calls.filter(|(call, _)| call.token().is_some()).map(|(_, mark)| mark.number).collect();
        if numbers.is_empty() || numbers.len() > PERIOD_MAX {
            return Err(Refusal::Period { launches: numbers.len() });
        }
        let period = numbers.len() as u64;
        Ok(numbers.first().copied().flatten().map(|first_launch| Periodicity { first_launch, period }))
    }

    /// Work of the last complete iteration; `None` if it differs from the previous iteration, or no
    /// iteration is complete yet.
    pub(crate) fn work(&self, periodicity: Periodicity, limits: &ClaimLimits) -> Result<Option<Work>, Refusal> {
        if self.program.is_full() {
            return Err(Refusal::Incomplete);
        }
        let Periodicity { first_launch, period } = periodicity;
        let Some(completed) = self.last.and_then(|last| last.checked_sub(first_launch)).map(|since| since / period)
        else {
            return Ok(None);
        };
        // Compares the last complete iteration with the one before. An iteration includes the calls
        // after its last launch, up to the first launch of the next iteration.
        let Some(before) = completed.checked_sub(2) else { return Ok(None) };
        let begins = [before, before + 1, before + 2].map(|at| first_launch + at * period);
        let positions = begins.map(|number| self.marks.iter().position(|mark| mark.number == Some(number)));
        let [Some(previous), Some(begin), Some(end)] = positions else {
            return if self.window.added() > self.marks.len() as u64 { Err(Refusal::TooLong) } else { Ok(None) };
        };
        let calls = |range: std::ops::Range<usize>| self.window.calls().skip(range.start).take(range.len());
        let is_of_graph = |call: &Call| {
            matches!(
                call.action,
                Action::GraphLaunch { .. }
                    | Action::Launch { target: Target::Captured(_), .. }
                    | Action::Copy { target: Target::Captured(_), .. }
                    | Action::Fill { target: Target::Captured(_), .. }
            )
        };
        let is_managed = |call: &Call| matches!(call.action, Action::Malloc { kind: MemoryKind::Managed, .. });
        let mut live = self.program.live();
        if !live.any(|block| block.kind == MemoryKind::Managed) && !calls(begin..end).any(is_managed) {
            return Err(Refusal::NoManagedMemory);
        }
        if calls(begin..end).any(is_of_graph) {
            return Err(Refusal::Graphs);
        }
        let is_unknown = |call: &&Call| {
            matches!(call.action, Action::Launch { pointers: None, .. })
                || (call.is_cut && matches!(call.action, Action::Launch { .. }))
        };
        let launches = calls(begin..end).filter(is_unknown).count();
        if launches > 0 {
            return Err(Refusal::CoverageUnknown { launches });
        }
        let tokens = |range| calls(range).filter_map(Call::token).collect::<Vec<Token>>();
        let (previous_tokens, mut tokens) = (tokens(previous..begin), tokens(begin..end));
        if tokens.len() as u64 != period || previous_tokens.len() != tokens.len() {
            return Ok(None);
        }
        for (token, previous) in tokens.iter_mut().zip(&previous_tokens) {
            if token.signature != previous.signature {
                return Ok(None);
            }
            token.pointers = token.pointers.filter(|_| token.pointers == previous.pointers);
        }
        let times: Vec<u64> =
            calls(begin..end + 1).filter(|call| call.token().is_some()).map(|call| call.stamp.time_ns).collect();
        let durations = times.iter().zip(times.iter().skip(1)).map(|(begin, end)| end.saturating_sub(*begin));
        let durations_ns = durations.collect();
        let [.., first_launch] = begins;
        let queue_starts = self.queue_starts(begin..end);
        let (pieces, isolated, unmapped_bytes) = self.pieces(begin..end, limits)?;
        let manages_placement =
            self.program.has_advised_access() || calls(begin..end).any(|call| call.action.is_placement());
        if pieces.ops as u64 != period {
            return Err(Refusal::Invalid { reason: "a launch without thread blocks".to_owned() });
        }
        Ok(Some(Work {
            first_launch,
            tokens,
            durations_ns,
            queue_starts,
            pieces,
            isolated,
            manages_placement,
            unmapped_bytes,
        }))
    }

    /// Per launch of an iteration, the first launch after the last sync.
    fn queue_starts(&self, range: std::ops::Range<usize>) -> Vec<Option<usize>> {
        let (mut starts, mut first) = (Vec::new(), None);
        for (call, mark) in self.window.calls().zip(&self.marks).skip(range.start).take(range.len()) {
            if call.token().is_some() {
                starts.push(first);
            }
            if mark.is_sync {
                first = Some(starts.len());
            }
        }
        // A sync after the last launch precedes the first launch of the next iteration.
        if first == Some(starts.len()) {
            starts.iter_mut().take_while(|first| first.is_none()).for_each(|first| *first = Some(0));
        }
        starts
    }

    /// Returns the pieces that the launches of an iteration use, each launch with the copies and
    /// fills before it; per launch, whether there are no copies and fills before it; and the
    /// claimed bytes that are not mapped.
    fn pieces(&self, range: std::ops::Range<usize>, limits: &ClaimLimits) -> Result<(Pieces, Vec<bool>, u64), Refusal> {
        let invalid = |reason: OpsError| Refusal::Invalid { reason: reason.to_string() };
        let (program, calls) = self.window.last(self.marks.len() - range.start);
        let blocks = program.live().count() + calls.len();
        budget::check_stream(blocks, calls.iter().take(range.len()).map(|call| addresses(call)).sum())?;
        let mut ops =
            Ops::with_program(program, calls.first().map_or(0, |call| call.stamp.time_ns)).map_err(invalid)?;
        for call in calls.into_iter().take(range.len()) {
            ops.add(call).map_err(invalid)?;
        }
        let stream = ops.finish();
        let first = stream.ops().values().iter().take_while(|op| matches!(op.kind, OpKind::Malloc(_))).count();
        // The first call is a launch.
        let first = OpId::new(first);
        let footprints = Footprints::of(&stream, first..OpId::new(stream.ops().len()), Until::NextInUse);
        let mut uses: Vec<Vec<Extent>> = Vec::new();
        let (mut others, mut isolated) = (Vec::new(), Vec::new());
        for (id, op) in stream.ops().iter() {
            let OpKind::Launch(launch) = op.kind else { continue };
            let extents = footprints.op(id);
            let is_isolated = others.is_empty();
            others.extend_from_slice(extents);
            let signature = &stream.signatures()[stream.launches()[launch].signature];
            // Copies and fills have no grid.
            if signature.grid != [0; 3] {
                uses.push(std::mem::take(&mut others));
                isolated.push(is_isolated);
            }
        }
        // Copies and fills after the last launch precede the first launch of the next iteration.
        if let (Some(first), Some(is_isolated)) = (uses.first_mut(), isolated.first_mut()) {
            *is_isolated &= others.is_empty();
            first.append(&mut others);
        }
        let block = |id: BlockId| {
            let address = stream.blocks()[id].address;
            let kind = address.and_then(|address| self.program.block_starting_at(address)).map(|block| block.kind);
            let outlives = stream.malloc_of(id).is_none_or(|malloc| malloc < first) && stream.free_of(id).is_none();
            AllocationInfo { is_managed: kind == Some(MemoryKind::Managed), outlives }
        };
        let on_gpu = |extent: &Extent| {
            let address = stream.blocks()[extent.block].address;
            address.and_then(|address| self.program.block(address)).is_some_and(|block| block.is_on_gpu())
        };
        drop(footprints);
        for extents in &mut uses {
            extents.retain(on_gpu);
        }
        // Only allocations that the iteration names: a pool may reserve more than the node has.
        uses.iter().flatten().try_for_each(|extent| limits.check(stream.blocks()[extent.block].bytes))?;
        let managed = uses.iter().flatten().filter(|extent| block(extent.block).is_managed);
        let unmapped_bytes = limits.unmapped_bytes(managed.filter_map(|extent| {
            let ops::Block { bytes, address } = stream.blocks()[extent.block];
            address.map(|address| address..address.saturating_add(bytes))
        }));
        Ok((Pieces::of(&stream, &uses, limits, block)?, isolated, unmapped_bytes))
    }

    /// Unmanaged bytes on GPUs, except those of an iteration's pieces.
    pub(crate) fn unmanaged_bytes(&self, pieces: &Pieces) -> u64 {
        let used: HashMap<u64, u64> = pieces.all.iter().fold(HashMap::new(), |mut used, piece| {
            if let Some(block) = self.program.block(piece.address) {
                let bytes = used.entry(block.address).or_insert(0_u64);
                *bytes = piece.bytes.saturating_add(*bytes);
            }
            used
        });
        let unused = |block: &LiveBlock| block.bytes.saturating_sub(used.get(&block.address).copied().unwrap_or(0));
        let of_gpu = |block: &LiveBlock| matches!(block.kind, MemoryKind::Device | MemoryKind::Pool);
        let unused = self.program.live().filter(of_gpu).map(|block| unused(&block));
        // Saturating: claimed sizes are unbounded.
        unused.fold(0, u64::saturating_add)
    }
}

/// Maximum number of addresses that a call names.
fn addresses(call: &Call) -> usize {
    match &call.action {
        Action::Launch { pointers, .. } => pointers.as_ref().map_or(0, Vec::len),
        Action::Copy { .. } => 2,
        _ => 1,
    }
}
