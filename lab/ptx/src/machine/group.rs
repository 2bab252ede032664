//! Groups: lanes of a warp that are at one place.

use std::rc::Rc;

use super::LANES;
use super::program::{FunctionCode, Pc};
use super::state::{State, put};

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it is ready.
    Nothing,
    /// The other members of the instruction at its place.
    Members,
    /// A barrier of the block, by number.
    Barrier(usize),
}

/// Lanes that execute together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) pc: Pc,
    pub(super) mask: u32,
    pub(super) wait: Wait,
    /// Function that it is in.
    pub(super) function: usize,
    /// Offset of that function's frame.
    pub(super) frame_bytes: u64,
    /// Calls that it is in.
    pub(super) depth: u32,
    pub(super) stack: Option<Rc<Frame>>,
}

/// A call that a group is in.
#[derive(Debug)]
pub(super) struct Frame {
    /// The call instruction.
    pub(super) call: Pc,
    pub(super) caller: usize,
    pub(super) caller_frame_bytes: u64,
    /// Registers of the called function's earlier activation.
    pub(super) saved: Option<Saved>,
    pub(super) parent: Option<Rc<Frame>>,
}

impl Group {
    /// Tells whether two groups are at the same place, so that they can merge.
    pub(super) fn same_place(&self, other: &Self) -> bool {
        self.pc == other.pc && self.depth == other.depth && same_stack(self.stack.as_ref(), other.stack.as_ref())
    }

    /// Tells whether a function is in progress, so that calling it is a recursion.
    pub(super) fn is_in(&self, function: usize) -> bool {
        let mut frame = self.stack.as_ref();
        let mut current = self.function;
        loop {
            if current == function {
                return true;
            }
            let Some(outer) = frame else { return false };
            current = outer.caller;
            frame = outer.parent.as_ref();
        }
    }

    /// The same place, for some of the lanes.
    pub(super) fn part(&self, pc: Pc, mask: u32, wait: Wait) -> Self {
        Self { pc, mask, wait, ..self.clone() }
    }
}

/// Compares stacks, which lanes that diverged before a call have twice. One that saved registers is
/// the same only as itself.
fn same_stack(left: Option<&Rc<Frame>>, right: Option<&Rc<Frame>>) -> bool {
    let (mut left, mut right) = (left, right);
    loop {
        match (left, right) {
            (None, None) => return true,
            (Some(a), Some(b)) if Rc::ptr_eq(a, b) => return true,
            (Some(a), Some(b)) if a.call == b.call && a.saved.is_none() && b.saved.is_none() => {
                (left, right) = (a.parent.as_ref(), b.parent.as_ref());
            }
            _ => return false,
        }
    }
}

/// Registers of a function.
#[derive(Debug)]
pub(super) struct Saved {
    words: Vec<[u32; LANES]>,
    longs: Vec<[u64; LANES]>,
    predicates: Vec<u32>,
}

impl Saved {
    pub(super) fn save(state: &State, function: &FunctionCode) -> Self {
        Self {
            words: state.words.get(function.words.clone()).unwrap_or_default().to_vec(),
            longs: state.longs.get(function.longs.clone()).unwrap_or_default().to_vec(),
            predicates: state.predicates.get(function.predicates.clone()).unwrap_or_default().to_vec(),
        }
    }

    pub(super) fn restore(&self, state: &mut State, function: &FunctionCode, mask: u32) {
        let words = state.words.get_mut(function.words.clone()).unwrap_or_default();
        for (register, saved) in words.iter_mut().zip(&self.words) {
            put(register, saved, mask);
        }
        let longs = state.longs.get_mut(function.longs.clone()).unwrap_or_default();
        for (register, saved) in longs.iter_mut().zip(&self.longs) {
            put(register, saved, mask);
        }
        let predicates = state.predicates.get_mut(function.predicates.clone()).unwrap_or_default();
        for (predicate, saved) in predicates.iter_mut().zip(&self.predicates) {
            *predicate = *predicate & !mask | saved & mask;
        }
    }
}
