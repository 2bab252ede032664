//! Placement of blocks in one pool.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use trace::{Circle, Span};

/// Address of one copy of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Index of the span in [`Circle::spans`].
    pub span: usize,
    /// Number of the copy, from 0.
    pub copy: u32,
    /// Offset from the beginning of the pool.
    pub offset: u64,
}

/// Address of every block of a circle. Persistent tensors are not included: they lie below the
/// pool, and never share memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// By span, then by copy.
    pub slots: Vec<Slot>,
    /// End of the highest block.
    pub pool_bytes: u64,
}

/// Reason why a placement does not fit its circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum Misplaced {
    #[error("slot {slot} is for span {span}, copy {copy}, which does not exist")]
    Unknown { slot: usize, span: usize, copy: u32 },
    #[error("{slots} slots for {copies} copies of spans")]
    WrongCount { slots: usize, copies: u64 },
    #[error("slot {slot} ends at {end}, beyond the pool of {pool_bytes} bytes")]
    OutsidePool { slot: usize, end: u64, pool_bytes: u64 },
    #[error("slots {one} and {other} share bytes while both are alive")]
    Overlap { one: usize, other: usize },
}

impl Placement {
    /// Checks that it places every copy of every span once, within the pool, and that no two live
    /// blocks share a byte.
    ///
    /// Independent of the planner, and quadratic where all blocks overlap: for tests, and for
    /// placements from elsewhere.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self, circle: &Circle) -> Result<(), Misplaced> {
        let copies: u64 = circle.spans.iter().map(|span| u64::from(span.copies)).sum();
        if copies != self.slots.len() as u64 {
            return Err(Misplaced::WrongCount { slots: self.slots.len(), copies });
        }
        let mut placed: Vec<(usize, &Span, u64, u64)> = Vec::with_capacity(self.slots.len());
        let mut expected =
            circle.spans.iter().enumerate().flat_map(|(at, span)| (0..span.copies).map(move |c| (at, c)));
        for (slot, &Slot { span: at, copy, offset }) in self.slots.iter().enumerate() {
            let known = circle.spans.get(at).filter(|_| expected.next() == Some((at, copy)));
            let Some(span) = known else { return Err(Misplaced::Unknown { slot, span: at, copy }) };
            let end = offset.saturating_add(span.bytes);
            if end > self.pool_bytes {
                return Err(Misplaced::OutsidePool { slot, end, pool_bytes: self.pool_bytes });
            }
            placed.push((slot, span, offset, end));
        }
        placed.sort_by_key(|&(slot, _, offset, _)| (offset, slot));
        for (at, &(one, span, _, end)) in placed.iter().enumerate() {
            let above = placed.iter().skip(at + 1).take_while(|&&(_, _, offset, _)| offset < end);
            for &(other, other_span, _, _) in above {
                if span.overlaps(other_span, circle.period) {
                    return Err(Misplaced::Overlap { one, other });
                }
            }
        }
        Ok(())
    }

    /// Size of the pool as a multiple of the peak of live bytes; 1 is the minimum.
    #[must_use]
    pub fn ratio(&self, circle: &Circle) -> f64 {
        let peak_bytes = circle.peak_bytes();
        if peak_bytes == 0 { 1.0 } else { self.pool_bytes as f64 / peak_bytes as f64 }
    }
}
