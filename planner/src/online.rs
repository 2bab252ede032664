//! Online pool: the caching allocators of frameworks at their best, without knowledge of the
//! future. A baseline for plans.
//!
//! Blocks are placed when they begin, into a hole of one address space that grows at its top.
//! Adjacent holes are merged. Real pools need no less: they get their memory in chunks, and no
//! block spans two.

use trace::Circle;

use super::smartpool::Fit;

/// Iterations after which the pool stops to grow, as a rule.
const ITERATIONS: u64 = 3;

/// Size of the pool after a few iterations, without the persistent bytes.
#[must_use]
pub fn pool_bytes(circle: &Circle, fit: Fit) -> u64 {
    // At one step, blocks end before others begin.
    let mut events = Vec::new();
    let copies =
        circle.spans.iter().enumerate().flat_map(|(at, span)| (0..span.copies).map(move |copy| (at, copy, span)));
    for (at, copy, span) in copies {
        for turn in 0..ITERATIONS {
            let begin = turn.saturating_mul(circle.period).saturating_add(span.start);
            events.push((begin, true, at, copy, turn, span.bytes));
            events.push((begin.saturating_add(span.length), false, at, copy, turn, span.bytes));
        }
    }
    events.sort_unstable();
    let mut pool = Pool::default();
    let mut live = std::collections::HashMap::new();
    for (_, begins, at, copy, turn, bytes) in events {
        if begins {
            live.insert((at, copy, turn), pool.allocate(bytes, fit));
        } else if let Some(offset) = live.remove(&(at, copy, turn)) {
            pool.free(offset, bytes);
        }
    }
    pool.top
}

#[derive(Default)]
struct Pool {
    /// By offset: (offset, bytes). No two are adjacent, and none is adjacent to the top.
    holes: Vec<(u64, u64)>,
    /// End of the bytes in use.
    end: u64,
    /// Highest end of a block so far.
    top: u64,
}

impl Pool {
    fn allocate(&mut self, bytes: u64, fit: Fit) -> u64 {
        let fitting = self.holes.iter_mut().filter(|hole| hole.1 >= bytes);
        let hole = match fit {
            Fit::Best => fitting.min_by_key(|hole| hole.1),
            Fit::First => fitting.min_by_key(|hole| hole.0),
        };
        if let Some((offset, free)) = hole {
            let own = *offset;
            (*offset, *free) = (own + bytes, *free - bytes);
            self.holes.retain(|hole| hole.1 > 0);
            return own;
        }
        let own = self.end;
        self.end += bytes;
        self.top = self.top.max(self.end);
        own
    }

    fn free(&mut self, offset: u64, bytes: u64) {
        let at = self.holes.partition_point(|hole| hole.0 < offset);
        self.holes.insert(at, (offset, bytes));
        self.holes.dedup_by(|next, hole| {
            let touch = hole.0 + hole.1 == next.0;
            hole.1 += if touch { next.1 } else { 0 };
            touch
        });
        if let Some(last) = self.holes.pop_if(|hole| hole.0 + hole.1 == self.end) {
            self.end = last.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_bytes_are_reused_and_adjacent_holes_merge() {
        let mut pool = Pool::default();
        let offsets = [4, 4, 4, 4].map(|bytes| pool.allocate(bytes, Fit::Best));
        assert_eq!(offsets, [0, 4, 8, 12]);
        pool.free(0, 4);
        pool.free(8, 4);
        assert_eq!((pool.allocate(3, Fit::First), pool.allocate(4, Fit::Best)), (0, 8));
        pool.free(8, 4);
        pool.free(4, 4);
        assert_eq!(pool.holes, [(3, 9)]);
        pool.free(12, 4);
        assert_eq!((pool.holes.len(), pool.end, pool.top), (0, 3, 16));
    }
}
