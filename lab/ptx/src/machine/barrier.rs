//! Barriers of a block.

/// Barriers that a block has.
pub(crate) const BARRIERS: usize = 16;

/// Kind of a barrier instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// `bar.sync`
    Wait,
    /// `bar.arrive`
    Arrive,
    /// `bar.red.popc`
    Count,
    /// `bar.red.and`
    All,
    /// `bar.red.or`
    Any,
}

/// Threads that have arrived at a barrier since it last completed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    /// Threads that arrived, and lanes without a thread in their warps.
    arrived: u32,
    /// Threads that arrived alone.
    threads: u32,
    /// Threads to wait for; none: all of the block.
    expected: Option<u32>,
    /// Warps of which a thread has arrived.
    warps: u32,
    /// Threads whose predicate is true.
    pub(super) population: u32,
}

impl Barrier {
    /// Registers the arrival of lanes of one warp, `live` of which have not exited.
    pub(super) fn arrive(&mut self, warp: usize, lanes: u32, live: u32, expected: Option<u32>, predicate: u32) {
        let bit = 1u32.checked_shl(warp as u32).unwrap_or(0);
        if self.warps & bit == 0 {
            self.warps |= bit;
            self.arrived += live.count_zeros();
        }
        self.arrived += lanes.count_ones();
        self.threads += lanes.count_ones();
        self.expected = expected.or(self.expected);
        self.population += (lanes & predicate).count_ones();
    }

    /// Tells whether a thread has arrived.
    pub(super) fn has_arrivals(&self) -> bool {
        self.threads > 0
    }

    /// Tells whether all have arrived, of a block with so many live threads.
    pub(super) fn is_complete(&self, live_threads: u32) -> bool {
        self.has_arrivals()
            && match self.expected {
                Some(expected) => self.arrived >= expected,
                None => self.threads >= live_threads,
            }
    }

    /// Tells whether the predicates of all that arrived are true.
    pub(super) fn all(&self) -> bool {
        self.population == self.threads
    }
}
