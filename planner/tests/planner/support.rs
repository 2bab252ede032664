//! Random circles, and the path of published traces.

pub(crate) use ::published::{G10_SETS, data, g10_kernels};
use trace::{Circle, Span};

/// Deterministic pseudo-random numbers.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Blocks that begin anywhere and last for up to the period; a few in more than one copy.
    pub(crate) fn circle(&mut self, blocks: u64, period: u64, most_bytes: u64) -> Circle {
        let mut spans: Vec<_> = (0..blocks)
            .map(|source| {
                let copies = if self.below(10) == 0 { 2 } else { 1 };
                let length = if copies > 1 { period } else { 1 + self.below(period) };
                let bytes = 1 + self.below(most_bytes);
                Span { source, bytes, start: self.below(period), length, copies }
            })
            .collect();
        spans.sort_by_key(|span| span.start);
        Circle { period, spans, persistent_bytes: 0, turns: 1 }
    }
}
