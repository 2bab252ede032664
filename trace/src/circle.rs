//! Blocks of an iteration on a circle that closes after one period. A planner of placements places
//! them once, for all iterations.
//!
//! Positions on the circle are steps at which blocks may begin: the kernels of an [`Iteration`], or
//! the mallocs of a window of an [`OpStream`]. Bytes in use rise at these steps only, so operations
//! between them have no effect. Frees that drift from one iteration to the next move no block.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    id::{BlockId, Id},
    iteration::Iteration,
    ops::{OpKind, OpStream},
};

/// Alignment to which sizes are rounded up before placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Multiple for every size below `large_from_bytes`.
    pub small_bytes: u64,
    /// Lower bound of large sizes.
    pub large_from_bytes: u64,
    /// Multiple for large sizes.
    pub large_bytes: u64,
}

impl Alignment {
    /// No rounding.
    pub const NONE: Self = Self { small_bytes: 1, large_from_bytes: u64::MAX, large_bytes: 1 };
    /// 512 bytes, which suffice for every library on a GPU.
    pub const SMALL: Self = Self { small_bytes: 512, ..Self::NONE };
    /// 512 bytes, and 2 MiB for sizes of 1 MiB or more, so that large blocks coincide with the
    /// driver's VA blocks.
    pub const UVM: Self = Self { small_bytes: 512, large_from_bytes: 1 << 20, large_bytes: 2 << 20 };

    /// Rounded size.
    #[must_use]
    pub fn round(self, bytes: u64) -> u64 {
        let to = if bytes >= self.large_from_bytes { self.large_bytes } else { self.small_bytes };
        bytes.checked_next_multiple_of(to).unwrap_or(bytes)
    }
}

/// Block that recurs in every iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Number in the source: of a tensor, of a malloc in its iteration, or of a block in its file.
    pub source: u64,
    /// Rounded size.
    pub bytes: u64,
    /// Step at which the block begins, less than the period.
    pub start: u64,
    /// Number of steps at which the block is alive: at least 1, at most the period. If its sum with
    /// `start` exceeds the period, the block crosses into the next iteration.
    pub length: u64,
    /// Maximum of copies alive at once: 1, except for a block that outlives the circle and is alive
    /// all around it.
    pub copies: u32,
}

impl Span {
    /// Whether the block is alive at a step.
    #[must_use]
    pub fn contains(&self, step: u64, period: u64) -> bool {
        (step + period - self.start) % period < self.length
    }

    /// Whether the two blocks are alive at a common step.
    #[must_use]
    pub fn overlaps(&self, other: &Self, period: u64) -> bool {
        self.contains(other.start, period) || other.contains(self.start, period)
    }

    /// Whether the block is alive when the next iteration begins.
    #[must_use]
    pub fn crosses(&self, period: u64) -> bool {
        self.start + self.length > period
    }
}

/// Blocks on a circle of one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circle {
    /// Steps after which the blocks recur. More than 0 if there are blocks.
    pub period: u64,
    /// Iterations on the circle.
    pub turns: usize,
    /// Blocks, sorted by start.
    pub spans: Vec<Span>,
    /// Rounded bytes of persistent blocks, which are never freed and so share no memory.
    pub persistent_bytes: u64,
}

impl Default for Circle {
    fn default() -> Self {
        Self { period: 0, turns: 1, spans: Vec::new(), persistent_bytes: 0 }
    }
}

/// Maximum of iterations on a circle, for blocks that outlive an iteration.
pub const MAX_TURNS: usize = 4;

/// Consecutive mallocs of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Number of the first malloc, from 0.
    pub first_malloc: usize,
    /// Number of mallocs: one iteration.
    pub mallocs: usize,
}

/// Reason why a circle cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum Invalid {
    #[error("mallocs {first} to {end} are outside the trace, which has {mallocs}")]
    OutsideTrace { first: usize, end: usize, mallocs: usize },
    #[error("the sum of sizes exceeds 64 bits")]
    BytesOverflow,
    #[error("block {source_id} ends at {end} and begins at {start}")]
    EndsBeforeItBegins { source_id: u64, start: u64, end: u64 },
    #[error("block {source_id} has no bytes")]
    EmptyBlock { source_id: u64 },
}

impl Circle {
    /// Circle of the tensors of an iteration. The steps are its kernels.
    ///
    /// # Errors
    /// If the sum of rounded sizes exceeds 64 bits.
    pub fn of_iteration(iteration: &Iteration, alignment: Alignment) -> Result<Self, Invalid> {
        let period = iteration.kernels().len() as u64;
        let mut circle = Self { period, ..Self::default() };
        for (id, tensor) in iteration.tensors().iter() {
            let bytes = alignment.round(tensor.bytes);
            if tensor.persistent {
                circle.persistent_bytes = circle.persistent_bytes.checked_add(bytes).ok_or(Invalid::BytesOverflow)?;
            } else if let Some(lifetime) = iteration.lifetime(id) {
                let (start, end) = (u64::from(lifetime.first.0), u64::from(lifetime.end.0));
                circle.spans.push(Span { source: u64::from(id.0), bytes, start, length: end - start, copies: 1 });
            }
        }
        circle.finish()
    }

    /// Circle of the blocks that begin in a window of a stream, which is one iteration. The steps
    /// are its mallocs.
    ///
    /// A block ends at its free in this run, even if that is iterations later. If a block outlives
    /// an iteration, the circle has as many equal iterations as are needed for no block to overlap
    /// itself. Blocks that are freed never, or after more than [`MAX_TURNS`] iterations, are alive
    /// all around the circle. Blocks from before the window that are alive at its end are
    /// persistent, unless they are earlier copies of a block that outlives an iteration.
    ///
    /// # Errors
    /// If the window is not within the stream, or the sum of sizes exceeds 64 bits.
    pub fn of_ops(stream: &OpStream, window: Window, alignment: Alignment) -> Result<Self, Invalid> {
        let lifetimes = Lifetimes::of(stream);
        let (first, steps, mallocs) = (window.first_malloc, window.mallocs, lifetimes.order.len());
        let outside = || Invalid::OutsideTrace { first, end: first.saturating_add(steps), mallocs };
        let end = first.checked_add(steps).filter(|&end| first < end && end <= mallocs).ok_or_else(outside)?;
        let blocks = lifetimes.order.get(first..end).unwrap_or_default();
        let bytes = |block: BlockId| alignment.round(stream.blocks()[block].bytes);
        let length = |(step, &block): (usize, &BlockId)| lifetimes.end_of(block).map(|end| end - first - step);
        let lengths: Vec<_> = blocks.iter().enumerate().map(length).collect();

        let longest =
            lengths.iter().flatten().map(|length| length.div_ceil(steps)).filter(|&turns| turns <= MAX_TURNS).max();
        let turns = longest.unwrap_or(1);
        let period = (turns * steps) as u64;
        let mut circle = Self { period, turns, ..Self::default() };
        for ((step, &block), lifetime) in blocks.iter().enumerate().zip(&lengths) {
            let span = |turn: usize, length, copies| Span {
                source: step as u64,
                bytes: bytes(block),
                start: (turn * steps + step) as u64,
                length,
                copies,
            };
            match *lifetime {
                Some(length) if length as u64 <= period => {
                    circle.spans.extend((0..turns).map(|turn| span(turn, length as u64, 1)));
                }
                Some(length) => {
                    let copies = u32::try_from(length.div_ceil(steps)).unwrap_or(u32::MAX);
                    circle.spans.push(span(0, period, copies));
                }
                None => circle.spans.push(span(0, period, 1)),
            }
        }
        for (block, _) in stream.blocks().iter() {
            let begin_number = lifetimes.begin_of(block);
            if begin_number.is_some_and(|begin| begin >= first)
                || lifetimes.end_of(block).is_some_and(|freed| freed <= end)
            {
                continue;
            }
            // The block of the window whose malloc has the same number in its iteration.
            let successor = begin_number.map(|begin| (steps - (first - begin) % steps) % steps);
            let successor = successor.and_then(|step| blocks.get(step).zip(lengths.get(step)));
            let is_earlier_copy = |(&successor, length): (&BlockId, &Option<usize>)| {
                length.is_some_and(|length| length > steps) && bytes(successor) == bytes(block)
            };
            if !successor.is_some_and(is_earlier_copy) {
                let sum = circle.persistent_bytes.checked_add(bytes(block));
                circle.persistent_bytes = sum.ok_or(Invalid::BytesOverflow)?;
            }
        }
        circle.finish()
    }

    /// Circle of one round, of blocks that do not recur: (id, first step, one past the last step,
    /// bytes).
    ///
    /// # Errors
    /// If a block has no bytes or no steps, or the sum of sizes exceeds 64 bits.
    pub fn of_intervals(blocks: impl IntoIterator<Item = (u64, u64, u64, u64)>) -> Result<Self, Invalid> {
        let mut circle = Self::default();
        for (source, start, end, bytes) in blocks {
            let Some(length) = end.checked_sub(start).filter(|&length| length > 0) else {
                return Err(Invalid::EndsBeforeItBegins { source_id: source, start, end });
            };
            if bytes == 0 {
                return Err(Invalid::EmptyBlock { source_id: source });
            }
            circle.period = circle.period.max(end);
            circle.spans.push(Span { source, bytes, start, length, copies: 1 });
        }
        circle.finish()
    }

    fn finish(mut self) -> Result<Self, Invalid> {
        let total = self.spans.iter().try_fold(self.persistent_bytes, |sum, span| {
            span.bytes.checked_mul(u64::from(span.copies)).and_then(|bytes| sum.checked_add(bytes))
        });
        total.ok_or(Invalid::BytesOverflow)?;
        self.spans.sort_by_key(|span| span.start);
        Ok(self)
    }

    /// Peak of the bytes alive, without persistent ones: the lower bound of every placement.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        // (step, whether a block begins, bytes): at one step, ends sort before beginnings.
        let mut changes = Vec::with_capacity(2 * self.spans.len());
        let mut live = 0_u64;
        for span in &self.spans {
            let bytes = span.bytes * u64::from(span.copies);
            if span.crosses(self.period) {
                live += bytes;
                changes.push((span.start + span.length - self.period, false, bytes));
            } else {
                changes.push((span.start + span.length, false, bytes));
            }
            changes.push((span.start, true, bytes));
        }
        changes.sort_unstable();
        let mut peak = live;
        for (_, begins, bytes) in changes {
            live = if begins { live + bytes } else { live - bytes };
            peak = peak.max(live);
        }
        peak
    }
}

/// Lifetimes of a stream's blocks, counted in mallocs.
struct Lifetimes {
    order: Vec<BlockId>,
    begins: Vec<Option<usize>>,
    ends: Vec<Option<usize>>,
}

impl Lifetimes {
    fn of(stream: &OpStream) -> Self {
        let blocks = stream.blocks().len();
        let (mut order, mut begins, mut ends) = (Vec::new(), vec![None; blocks], vec![None; blocks]);
        for op in stream.ops().values() {
            match op.kind {
                OpKind::Malloc(block) => {
                    if let Some(begin) = begins.get_mut(block.index()) {
                        *begin = Some(order.len());
                    }
                    order.push(block);
                }
                OpKind::Free(block) => {
                    if let Some(end) = ends.get_mut(block.index()) {
                        *end = Some(order.len());
                    }
                }
                OpKind::Read(_) | OpKind::Write(_) | OpKind::Launch(_) | OpKind::Sync(_) => {}
            }
        }
        Self { order, begins, ends }
    }

    /// Number of a block's malloc.
    fn begin_of(&self, block: BlockId) -> Option<usize> {
        self.begins.get(block.index()).copied().flatten()
    }

    /// Number of mallocs before a block's free.
    fn end_of(&self, block: BlockId) -> Option<usize> {
        self.ends.get(block.index()).copied().flatten()
    }
}
