//! Window of the last calls of a process, within its quota, with the state of the program before
//! them: memory, functions and graphs.
//!
//! Calls are stored in segments, which clones of a window share: cloning takes constant time.

use std::{collections::VecDeque, mem::size_of, sync::Arc};

use call_ring::call::{Action, Call, Pointer};
use trace::ops::OpStream;

use crate::{
    map::{Map, entry_bytes},
    ops::{Ops, OpsError},
    program::Program,
};

/// Number of segments of a full window.
const SEGMENTS: usize = 64;

/// Window of the last calls of a process.
#[derive(Clone, Debug)]
pub struct Window {
    /// State of the program before the calls, and its time.
    before: Program,
    before_ns: u64,
    segments: VecDeque<Arc<Segment>>,
    /// Calls that name a function, by handle of the function and number of the call.
    names: Map<(u64, u64), ()>,
    retained: usize,
    bytes: usize,
    bytes_max: usize,
    added: u64,
}

/// Consecutive calls, which are dropped together.
#[derive(Clone, Debug)]
struct Segment {
    /// Number of calls added before them.
    first: u64,
    calls: Vec<Call>,
    bytes: usize,
}

/// Bytes of a call in a window.
pub(crate) fn bytes_of(call: &Call) -> usize {
    /// Overhead of the allocator per allocation.
    const ALLOCATION_OVERHEAD: usize = 16;
    let heap_bytes = match &call.action {
        Action::Launch { pointers: Some(pointers), .. } => {
            pointers.capacity() * size_of::<Pointer>() + ALLOCATION_OVERHEAD
        }
        Action::Function { name, .. } => name.capacity() + ALLOCATION_OVERHEAD + entry_bytes::<(u64, u64), ()>(),
        _ => 0,
    };
    size_of::<Call>() + heap_bytes
}

impl Window {
    /// Window of `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self::with_program(Program::default(), bytes_max)
    }

    /// Window of `bytes_max` bytes that starts from a state of the program.
    #[must_use]
    pub fn with_program(program: Program, bytes_max: usize) -> Self {
        Self {
            before: program,
            before_ns: 0,
            segments: VecDeque::new(),
            names: Map::default(),
            retained: 0,
            bytes: 0,
            bytes_max,
            added: 0,
        }
    }

    /// Adds a call, and drops the oldest calls beyond the limit.
    pub fn add(&mut self, call: Call) {
        if let Action::Function { function, .. } = call.action {
            self.names.insert((function, self.added), ());
        }
        let bytes = bytes_of(&call);
        self.bytes += bytes;
        let segment_bytes = self.bytes_max / SEGMENTS;
        match self.segments.back_mut() {
            Some(last) if last.bytes < segment_bytes => Arc::make_mut(last).add(call, bytes),
            last => {
                if let Some(last) = last {
                    Arc::make_mut(last).calls.shrink_to_fit();
                }
                let segment = Segment { first: self.added, calls: vec![call], bytes };
                self.segments.push_back(Arc::new(segment));
            }
        }
        self.retained += 1;
        self.added += 1;
        while self.bytes > self.bytes_max
            && let Some(first) = self.segments.pop_front()
        {
            self.drop_segment(&first);
        }
    }

    /// Drops the oldest calls in whole segments, and retains at least `retained_min` of them.
    pub fn shorten(&mut self, retained_min: usize) {
        while let Some(first) = self.segments.pop_front_if(|first| self.retained - first.calls.len() >= retained_min) {
            self.drop_segment(&first);
        }
    }

    fn drop_segment(&mut self, segment: &Segment) {
        let Segment { first, calls, bytes } = segment;
        self.bytes -= bytes;
        self.retained -= calls.len();
        for (number, call) in (*first..).zip(calls) {
            if let Action::Function { function, .. } = call.action {
                self.names.remove((function, number));
            }
            self.before_ns = self.before_ns.max(call.stamp.time_ns);
            self.before.advance(&call.action);
        }
    }

    /// Heap bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.before.bytes() + self.bytes
    }

    /// Number of calls ever added.
    #[must_use]
    pub const fn added(&self) -> u64 {
        self.added
    }

    /// Number of calls in the window.
    #[must_use]
    pub const fn retained(&self) -> usize {
        self.retained
    }

    /// Calls from the call with number `added` on, of all that were ever added; `None` if one of
    /// them was dropped.
    #[must_use]
    pub fn since(&self, added: u64) -> Option<Vec<Call>> {
        let count = usize::try_from(self.added.saturating_sub(added)).ok()?;
        (count <= self.retained).then(|| self.last_calls(count).map(|(_, call)| call.clone()).collect())
    }

    /// State of the program before the window.
    #[must_use]
    pub const fn before(&self) -> &Program {
        &self.before
    }

    /// Whether the program has more memory, functions and graphs than its state retains. Streams
    /// lack the rest.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.before.is_full()
    }

    /// Calls in the window, in order.
    #[must_use]
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.segments.iter().flat_map(|segment| &segment.calls)
    }

    /// Last `count` calls, with the number of calls before each. Others are not visited.
    pub fn last_calls(&self, count: usize) -> impl Iterator<Item = (u64, &Call)> {
        let first = self.added - count.min(self.retained) as u64;
        let segments = self.segments.partition_point(|segment| segment.first + segment.calls.len() as u64 <= first);
        self.segments.range(segments..).flat_map(move |segment| {
            let skipped = first.saturating_sub(segment.first);
            let calls = segment.calls.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
            (segment.first + skipped..).zip(calls)
        })
    }

    /// Name of a function at the call of this number, if it was recorded.
    #[must_use]
    pub fn function_at(&self, function: u64, number: u64) -> Option<&str> {
        let named = self.names.last_up_to((function, number)).filter(|((named, _), ())| *named == function);
        let Some(((_, number), ())) = named else { return self.before.function(function) };
        match &self.call(number)?.action {
            Action::Function { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Call of a number.
    fn call(&self, number: u64) -> Option<&Call> {
        let at = self.segments.partition_point(|segment| segment.first <= number).checked_sub(1)?;
        let segment = self.segments.get(at)?;
        segment.calls.get(usize::try_from(number - segment.first).ok()?)
    }

    /// Last `count` calls, and the state of the program before them.
    #[must_use]
    pub fn last(&self, count: usize) -> (Program, Vec<&Call>) {
        let mut program = self.before.clone();
        let first = self.retained.saturating_sub(count);
        for call in self.calls().take(first) {
            program.advance(&call.action);
        }
        (program, self.last_calls(count).map(|(_, call)| call).collect())
    }

    /// Last `count` calls as a stream of operations.
    ///
    /// # Errors
    /// If graphs expand to more operations than a stream may have.
    pub fn trace(&self, count: usize) -> Result<OpStream, OpsError> {
        let (program, calls) = self.last(count);
        let begin_ns = calls.first().map_or(self.before_ns, |call| call.stamp.time_ns);
        let mut ops = Ops::with_program(program, begin_ns)?;
        for call in calls {
            ops.add(call)?;
        }
        Ok(ops.finish())
    }
}

impl Segment {
    fn add(&mut self, call: Call, bytes: usize) {
        self.calls.push(call);
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use call_ring::{Dim3, MemoryKind, Stamp, Target};

    use super::*;
    use crate::visits;

    fn call(sequence: u64, action: Action) -> Call {
        let stamp = Stamp { sequence, time_ns: sequence, thread: 1 };
        Call { stamp, is_asynchronous: false, is_cut: false, number: None, action }
    }

    fn malloc(sequence: u64, address: u64) -> Call {
        let kind = MemoryKind::Managed;
        call(sequence, Action::Malloc { stream: 0, address, bytes: 4096, kind, device: 0 })
    }

    fn launch(sequence: u64, address: u64) -> Call {
        let one = Dim3::new(1, 1, 1);
        let pointers = Some(vec![Pointer { offset_bytes: 0, address }]);
        let target = Target::Stream(1);
        call(sequence, Action::Launch { target, function: 5, grid: one, block: one, shared_bytes: 0, pointers })
    }

    /// Window of ten launches; earlier calls were dropped.
    fn window() -> Window {
        let mut window = Window::new(10 * bytes_of(&launch(0, 0)));
        window.add(malloc(0, 0x10000));
        window.add(call(1, Action::Function { function: 5, name: "add".to_owned() }));
        for sequence in 2..100 {
            window.add(launch(sequence, 0x10000));
        }
        window
    }

    #[test]
    fn window_holds_the_last_calls_within_its_bytes() {
        let window = window();
        let sequences: Vec<u64> = window.calls().map(|call| call.stamp.sequence).collect();
        assert_eq!((window.added(), sequences), (100, (90..100).collect()));
    }

    #[test]
    fn calls_since_a_number_are_complete_or_none() {
        let window = window();
        let sequences = |added| {
            let calls = window.since(added)?;
            Some(calls.iter().map(|call| call.stamp.sequence).collect::<Vec<u64>>())
        };
        assert_eq!(sequences(97), Some(vec![97, 98, 99]));
        assert_eq!(sequences(90).map(|calls| calls.len()), Some(10));
        assert_eq!(sequences(89), None, "one of them has left");
        assert_eq!(sequences(100), Some(vec![]));
        assert_eq!(sequences(101), Some(vec![]));
    }

    #[test]
    fn trace_names_memory_and_functions_from_before_the_window() {
        for count in [3, 10, usize::MAX] {
            let trace = window().trace(count).unwrap();
            assert_eq!(trace.launches().len(), count.min(10));
            assert!(trace.launches().values().iter().all(|launch| launch.arguments.len() == 1));
            assert_eq!((trace.signatures().len(), &*trace.signatures().values()[0].name), (1, "add"));
        }
    }

    #[test]
    fn call_that_is_larger_than_the_window_leaves_it_empty() {
        let mut window = Window::new(1);
        window.add(malloc(0, 0x10000));
        assert_eq!((window.retained(), window.trace(9).unwrap().blocks().len()), (0, 1));
    }

    #[test]
    fn last_calls_are_found_directly_with_the_function_names_of_their_time() {
        let name = |name: &str| Action::Function { function: 5, name: name.to_owned() };
        let mut window = Window::new(1 << 20);
        window.add(call(0, name("first")));
        for sequence in 1..4000 {
            window.add(launch(sequence, 0x10000));
        }
        window.add(call(4000, name("second")));
        window.add(launch(4001, 0x10000));
        let names = |window: &Window, count| {
            let launches = window.last_calls(count).filter(|(_, call)| matches!(call.action, Action::Launch { .. }));
            launches.map(|(number, _)| window.function_at(5, number).map(str::to_owned)).collect::<Vec<_>>()
        };
        let expected = [Some("first"), Some("second")].map(|name| name.map(str::to_owned));
        let before = visits::count();
        assert_eq!(names(&window, 3), expected);
        assert!(visits::count() - before < 20, "{} entries", visits::count() - before);
        assert_eq!(window.function_at(6, 4001), None);
        // The calls that named the functions were dropped; the state before the window has the
        // names.
        for sequence in 4002..20_000 {
            window.add(launch(sequence, 0x10000));
        }
        assert!(window.retained() < 9000);
        assert_eq!(names(&window, 1), [Some("second".to_owned())]);
    }

    #[test]
    fn snapshot_is_unaffected_by_later_calls() {
        let mut window = window();
        let snapshot = window.clone();
        let sequences = |window: &Window| window.calls().map(|call| call.stamp.sequence).collect::<Vec<u64>>();
        for sequence in 100..150 {
            window.add(launch(sequence, 0x10000));
        }
        assert_eq!(sequences(&snapshot), (90..100).collect::<Vec<u64>>());
        assert_eq!(sequences(&window), (140..150).collect::<Vec<u64>>());
        assert_eq!(snapshot.trace(9).unwrap().launches().len(), 9);
    }
}
