//! The blocks of an iteration on a circle that is closed after one period: what a planner of placements places once, for all iterations.
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
    /// What it is where it comes from: the number of a tensor, of a malloc in its iteration, or of a block in its file.
    pub source: u64,
    /// Rounded.
    pub bytes: u64,
    /// The step at which it begins, less than the period.
    pub start: u64,
    /// The steps at which it is alive: at least one and at most the period. With `start` beyond the period: it crosses into the next iteration.
    pub length: u64,
    /// How many of it are alive at once at most. One, but for what lives longer than the circle is: that is alive all around it.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circle {
    /// Steps after which everything comes again. More than zero if there are blocks.
    pub period: u64,
    /// Iterations that it holds.
    pub turns: usize,
    /// By the step at which they begin.
    pub spans: Vec<Span>,
    /// Bytes, rounded, that are there all the time: never given back, so never shared.
    pub persistent_bytes: u64,
}

impl Default for Circle {
    fn default() -> Self {
        Self { period: 0, turns: 1, spans: Vec::new(), persistent_bytes: 0 }
    }
}

/// Of as many iterations as this a circle may be made for a block that lives so long.
pub const MOST_TURNS: usize = 4;

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

    /// The blocks that begin in a stretch of a stream, which is one iteration. The steps are its mallocs.
    ///
    /// A block's end is where it ended in this run, be it iterations later. If some live longer than an iteration, the circle holds as many iterations,
    /// all alike, as are needed for none to meet itself. Blocks that never ended, or only after more than [`MOST_TURNS`] iterations, are there all
    /// around the circle. Blocks from before that are still there at the stretch's end are persistent, unless they are earlier copies of such a one.
    ///
    /// # Errors
    /// If the stream has not so many mallocs, or sizes add up to more than 64 bits.
    pub fn of_ops(stream: &OpStream, window: Window, alignment: Alignment) -> Result<Self, Invalid> {
        let lives = Lives::of(stream);
        let (first, steps, mallocs) = (window.first_malloc, window.mallocs, lives.order.len());
        let outside = || Invalid::OutsideTrace { first, end: first.saturating_add(steps), mallocs };
        let end = first.checked_add(steps).filter(|&end| first < end && end <= mallocs).ok_or_else(outside)?;
        let blocks = lives.order.get(first..end).unwrap_or_default();
        let bytes = |block: BlockId| alignment.round(stream.blocks()[block].bytes);
        let alive = |(step, &block): (usize, &BlockId)| lives.end_of(block).map(|end| end - first - step);
        let alive: Vec<_> = blocks.iter().enumerate().map(alive).collect();

        let longest =
            alive.iter().flatten().map(|alive| alive.div_ceil(steps)).filter(|&turns| turns <= MOST_TURNS).max();
        let turns = longest.unwrap_or(1);
        let period = (turns * steps) as u64;
        let mut circle = Self { period, turns, ..Self::default() };
        for ((step, &block), alive) in blocks.iter().enumerate().zip(&alive) {
            let span = |turn: usize, length, copies| Span {
                source: step as u64,
                bytes: bytes(block),
                start: (turn * steps + step) as u64,
                length,
                copies,
            };
            match *alive {
                Some(alive) if alive as u64 <= period => {
                    circle.spans.extend((0..turns).map(|turn| span(turn, alive as u64, 1)));
                }
                Some(alive) => {
                    let copies = u32::try_from(alive.div_ceil(steps)).unwrap_or(u32::MAX);
                    circle.spans.push(span(0, period, copies));
                }
                None => circle.spans.push(span(0, period, 1)),
            }
        }
        for (block, _) in stream.blocks().iter() {
            let begun = lives.begin_of(block);
            if begun.is_some_and(|begin| begin >= first) || lives.end_of(block).is_some_and(|at| at <= end) {
                continue;
            }
            // The block that begins where this one began in its own iteration.
            let twin = begun.map(|begin| (steps - (first - begin) % steps) % steps);
            let twin = twin.and_then(|step| blocks.get(step).zip(alive.get(step)));
            let copy = |(&twin, alive): (&BlockId, &Option<usize>)| {
                alive.is_some_and(|alive| alive > steps) && bytes(twin) == bytes(block)
            };
            if !twin.is_some_and(copy) {
                let sum = circle.persistent_bytes.checked_add(bytes(block));
                circle.persistent_bytes = sum.ok_or(Invalid::BytesOverflow)?;
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
