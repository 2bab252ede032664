//! The last calls of a process, as many as its quota holds, with what they rest on: memory, functions
//! and graphs from before.

use std::{collections::VecDeque, mem::size_of};

use call_ring::call::{Action, Call, Pointer};
use trace::ops::{Invalid, OpStream};

use crate::{ops::Ops, program::Program};

/// The last calls of a process.
#[derive(Clone, Debug)]
pub struct Window {
    /// What the program had before the calls, and when.
    before: Program,
    before_ns: u64,
    calls: VecDeque<Call>,
    bytes: usize,
    bytes_max: usize,
    added: u64,
}

/// Bytes that a call takes here.
pub(crate) fn bytes_of(call: &Call) -> usize {
    let more = match &call.action {
        Action::Launch { pointers: Some(pointers), .. } => pointers.len() * size_of::<Pointer>(),
        Action::Function { name, .. } => name.len(),
        _ => 0,
    };
    size_of::<Call>() + more
}

impl Window {
    /// Window of this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { before: Program::default(), before_ns: 0, calls: VecDeque::new(), bytes: 0, bytes_max, added: 0 }
    }

    /// Window of this many bytes, of a program that has this much already.
    #[must_use]
    pub fn after(program: Program, bytes_max: usize) -> Self {
        Self { before: program, ..Self::new(bytes_max) }
    }

    /// Adds a call; the first ones leave for it.
    pub fn add(&mut self, call: Call) {
        self.bytes += bytes_of(&call);
        self.calls.push_back(call);
        self.added += 1;
        while self.bytes > self.bytes_max
            && let Some(first) = self.calls.pop_front()
        {
            self.bytes -= bytes_of(&first);
            self.before_ns = self.before_ns.max(first.stamp.time_ns);
            self.before.advance(&first.action);
        }
    }

    /// Calls that were ever added.
    #[must_use]
    pub const fn added(&self) -> u64 {
        self.added
    }

    /// Calls since the first so many that were ever added; `None` if one of them has left.
    #[must_use]
    pub fn since(&self, added: u64) -> Option<Vec<Call>> {
        let count = usize::try_from(self.added.saturating_sub(added)).ok()?;
        let first = self.calls.len().checked_sub(count)?;
        Some(self.calls.range(first..).cloned().collect())
    }

    /// What the program had before the window.
    #[must_use]
    pub const fn before(&self) -> &Program {
        &self.before
    }

    /// Whether the program has more memory, functions and graphs than are kept of it: streams lack
    /// those.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.before.is_full()
    }

    /// Calls in the window, in their order.
    #[must_use]
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> + ExactSizeIterator {
        self.calls.iter()
    }

    /// What the program had before the last calls, so many, and these calls.
    #[must_use]
    pub fn last(&self, count: usize) -> (Program, Vec<&Call>) {
        let mut program = self.before.clone();
        let first = self.calls.len().saturating_sub(count);
        for call in self.calls.iter().take(first) {
            program.advance(&call.action);
        }
        (program, self.calls.iter().skip(first).collect())
    }

    /// The last calls, so many, as a stream of operations.
    ///
    /// # Errors
    /// If graphs make more operations of them than a stream may have.
    pub fn trace(&self, count: usize) -> Result<OpStream, Invalid> {
        let (program, calls) = self.last(count);
        let begin_ns = calls.first().map_or(self.before_ns, |call| call.stamp.time_ns);
        let mut ops = Ops::after(program, begin_ns)?;
        for call in calls {
            ops.add(call)?;
        }
        Ok(ops.finish())
    }
}

#[cfg(test)]
mod tests {
    use call_ring::{MemoryKind, Size, Stamp, Target};

    use super::*;

    fn call(sequence: u64, action: Action) -> Call {
        let stamp = Stamp { sequence, time_ns: sequence, thread: 1 };
        Call { stamp, is_asynchronous: false, is_cut: false, number: None, action }
    }

    fn malloc(sequence: u64, address: u64) -> Call {
        let kind = MemoryKind::Managed;
        call(sequence, Action::Malloc { stream: 0, address, bytes: 4096, kind, device: 0 })
    }

    fn launch(sequence: u64, address: u64) -> Call {
        let one = Size::new(1, 1, 1);
        let pointers = Some(vec![Pointer { offset_bytes: 0, address }]);
        let target = Target::Stream(1);
        call(sequence, Action::Launch { target, function: 5, grid: one, block: one, shared_bytes: 0, pointers })
    }

    /// A window of ten launches, after all else.
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
    fn calls_since_a_count_are_all_of_them_or_none() {
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
        assert_eq!((window.calls().len(), window.trace(9).unwrap().blocks().len()), (0, 1));
    }
}
