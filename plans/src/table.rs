//! Table of moves that a helper follows: of a plan, or of a probe.

use call_ring::{
    Plan, Token,
    plan::{Destination, HANDOVER_WAIT_MAX_NS, Move},
};

/// Table of moves, as a helper follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Number of a launch at which an iteration begins.
    pub first_launch: u64,
    /// Token of each launch of an iteration.
    pub tokens: Vec<Token>,
    /// Moves, by the launches behind which they begin.
    pub moves: Vec<Move>,
}

impl Table {
    /// Bytes of memory that it takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.tokens.capacity() * size_of::<Token>() + self.moves.capacity() * size_of::<Move>()
    }

    /// Bytes of an iteration in this direction.
    #[must_use]
    pub fn bytes(&self, destination: Destination) -> u64 {
        let moves = self.moves.iter().filter(|step| step.destination == destination);
        moves.map(|step| step.bytes).fold(0, u64::saturating_add)
    }

    /// As the helper takes it. `launches_wait`: whether launches wait until the moves that they need are
    /// handed over to the driver, as long as they may.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits in plans")]
    pub fn plan(&self, gpu: [u8; 16], launches_wait: bool) -> Plan<'_> {
        let budget_bytes = self.moves.iter().map(|step| step.bytes).fold(0, u64::saturating_add);
        let Self { first_launch, tokens, moves } = self;
        let first_launch = *first_launch as u32;
        let handover_wait_ns = if launches_wait { HANDOVER_WAIT_MAX_NS } else { 0 };
        Plan { gpu, first_launch, budget_bytes, handover_wait_ns, tokens, moves }
    }
}
