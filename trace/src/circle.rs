//! The blocks of one iteration on a circle of one period: what a planner of placements places once, for all iterations.
//!
//! Positions on the circle are steps at which blocks may begin: the kernels of an [`Iteration`], the mallocs of a stretch of an [`OpStream`]. Bytes in
//! use only ever rise at such a step, so nothing between them matters, and frees that drift from one iteration to the next move nothing.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    id::{BlockId, Id},
    iteration::Iteration,
    ops::{OpKind, OpStream},
};

/// To what sizes are rounded up before they are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Every size, to a multiple of this.
    pub small_bytes: u64,
    /// Sizes from here on ...
    pub large_from_bytes: u64,
    /// ... to a multiple of this.
    pub large_bytes: u64,
}

impl Alignment {
    /// Sizes as they are.
    pub const NONE: Self = Self { small_bytes: 1, large_from_bytes: u64::MAX, large_bytes: 1 };
    /// 512 bytes, which every library on a GPU is content with.
    pub const SMALL: Self = Self { small_bytes: 512, ..Self::NONE };
    /// That, and 2 MiB from 1 MiB on, so that large blocks and the driver's blocks coincide.
    pub const UVM: Self = Self { small_bytes: 512, large_from_bytes: 1 << 20, large_bytes: 2 << 20 };

    /// The rounded size.
    #[must_use]
    pub fn round(self, bytes: u64) -> u64 {
        let to = if bytes >= self.large_from_bytes { self.large_bytes } else { self.small_bytes };
        bytes.checked_next_multiple_of(to).unwrap_or(bytes)
    }
}

/// A block that comes again in every iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What it is where it comes from: the number of a tensor, of a malloc in its iteration, or of a line's own id.
    pub source: u64,
    /// Rounded.
    pub bytes: u64,
    /// The step at which it begins, less than the period.
    pub start: u64,
    /// The steps at which it is alive: at least one and at most the period. With `start` beyond the period: it crosses into the next iteration.
    pub length: u64,
    /// How many of it are alive at once at most: more than one where it lives longer than a period, and then all around the circle.
    pub copies: u32,
}

impl Span {
    /// Whether it is alive at a step.
    #[must_use]
    pub fn contains(&self, step: u64, period: u64) -> bool {
        (step + period - self.start) % period < self.length
    }

    /// Whether the two are ever alive at once.
    #[must_use]
    pub fn overlaps(&self, other: &Self, period: u64) -> bool {
        self.contains(other.start, period) || other.contains(self.start, period)
    }

    /// Whether it is still alive when the next iteration begins.
    #[must_use]
    pub fn crosses(&self, period: u64) -> bool {
        self.start + self.length > period
    }
}

/// Blocks on a circle of one period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circle {
    /// Steps after which everything comes again. More than zero if there are blocks.
    pub period: u64,
    /// By the step at which they begin.
    pub spans: Vec<Span>,
    /// Bytes, rounded, that are there all the time: never given back, so never shared.
    pub persistent_bytes: u64,
}

/// A stretch of a stream's mallocs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first, counted from the stream's first malloc.
    pub first_malloc: usize,
    /// How many: one iteration.
    pub mallocs: usize,
}

/// Why there is no circle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Invalid {
    #[error("mallocs {first} to {end} of a trace that has {mallocs}")]
    OutsideTrace { first: usize, end: usize, mallocs: usize },
    #[error("sizes add up to more than 64 bits of bytes")]
    BytesOverflow,
    #[error("block {source_id} ends at {end} and begins at {start}")]
    EndsBeforeItBegins { source_id: u64, start: u64, end: u64 },
    #[error("block {source_id} holds no bytes")]
    EmptyBlock { source_id: u64 },
}

impl Circle {
    /// The tensors of an iteration. The steps are its kernels.
    ///
    /// # Errors
    /// If the rounded sizes add up to more than 64 bits.
    pub fn of_iteration(iteration: &Iteration, alignment: Alignment) -> Result<Self, Invalid> {
        let period = iteration.kernels().len() as u64;
        let mut circle = Self { period, ..Self::default() };
        for (id, tensor) in iteration.tensors().iter() {
            let bytes = alignment.round(tensor.bytes);
            if tensor.persistent {
                circle.persistent_bytes = circle.persistent_bytes.checked_add(bytes).ok_or(Invalid::BytesOverflow)?;
            } else if let Some(life) = iteration.lifetime(id) {
                let (start, end) = (u64::from(life.first.0), u64::from(life.end.0));
                circle.spans.push(Span { source: u64::from(id.0), bytes, start, length: end - start, copies: 1 });
            }
        }
        circle.finish()
    }

    /// The blocks that begin in a stretch of a stream. The steps are its mallocs.
    ///
    /// A block's end is where it ended in this run, be it an iteration later. One that never ended is taken to live all around the circle. Blocks from
    /// before that are still there at the stretch's end are persistent, unless they are earlier copies of a block that lives longer than a period.
    ///
    /// # Errors
    /// If the stream has not so many mallocs, or sizes add up to more than 64 bits.
    pub fn of_ops(stream: &OpStream, window: Window, alignment: Alignment) -> Result<Self, Invalid> {
        let lives = Lives::of(stream);
        let first = window.first_malloc;
        let mallocs = lives.order.len();
        let outside = || Invalid::OutsideTrace { first, end: first.saturating_add(window.mallocs), mallocs };
        let end = first.checked_add(window.mallocs).filter(|&end| first < end && end <= mallocs).ok_or_else(outside)?;
        let period = window.mallocs as u64;
        let mut circle = Self { period, ..Self::default() };
        for (step, &block) in lives.order.get(first..end).unwrap_or_default().iter().enumerate() {
            let start = step as u64;
            let alive = lives.end_of(block).map(|end| (end - first - step) as u64);
            let copies = u32::try_from(alive.map_or(1, |alive| alive.div_ceil(period))).unwrap_or(u32::MAX);
            let length = alive.unwrap_or(period).min(period);
            let bytes = alignment.round(stream.blocks()[block].bytes);
            circle.spans.push(Span { source: start, bytes, start, length, copies });
        }
        for (block, entry) in stream.blocks().iter() {
            let begun = lives.begin_of(block);
            let before = begun.is_none_or(|begin| begin < first);
            if !before || lives.end_of(block).is_some_and(|at| at <= end) {
                continue;
            }
            let bytes = alignment.round(entry.bytes);
            let ago = begun.map(|begin| (first - begin) % window.mallocs);
            let twin = ago.and_then(|ago| circle.spans.get((window.mallocs - ago) % window.mallocs));
            if !twin.is_some_and(|twin| twin.copies > 1 && twin.bytes == bytes) {
                circle.persistent_bytes = circle.persistent_bytes.checked_add(bytes).ok_or(Invalid::BytesOverflow)?;
            }
        }
        circle.finish()
    }

    /// Blocks that do not come again, as one round of a circle that is as long as they need: (own id, first step, one past the last, bytes).
    ///
    /// # Errors
    /// If a block holds no bytes or no step, or sizes add up to more than 64 bits.
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
        let all = self.spans.iter().try_fold(self.persistent_bytes, |sum, span| {
            span.bytes.checked_mul(u64::from(span.copies)).and_then(|bytes| sum.checked_add(bytes))
        });
        all.ok_or(Invalid::BytesOverflow)?;
        self.spans.sort_by_key(|span| span.start);
        Ok(self)
    }

    /// The most bytes of blocks alive at once, without the persistent ones: no placement needs less.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        // (step, whether something begins, bytes): at one step what ends goes before what begins.
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

/// The lives of a stream's blocks, counted in mallocs.
struct Lives {
    order: Vec<BlockId>,
    begins: Vec<Option<usize>>,
    ends: Vec<Option<usize>>,
}

impl Lives {
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
                OpKind::Read(_) | OpKind::Write(_) | OpKind::Launch(_) => {}
            }
        }
        Self { order, begins, ends }
    }

    /// The number of its malloc.
    fn begin_of(&self, block: BlockId) -> Option<usize> {
        self.begins.get(block.index()).copied().flatten()
    }

    /// How many mallocs had been when it was freed.
    fn end_of(&self, block: BlockId) -> Option<usize> {
        self.ends.get(block.index()).copied().flatten()
    }
}
