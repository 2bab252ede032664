//! Table of moves, of a plan or a probe, as a helper follows it.

use call_ring::{
    Plan, Token,
    plan::{Destination, HANDOVER_WAIT_MAX_NS, Move},
};

/// Table of moves of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Number of a launch at which an iteration begins.
    pub first_launch: u64,
    /// Token of each launch of an iteration.
    pub tokens: Vec<Token>,
    /// Moves, ordered by the launches after which they begin.
    pub moves: Vec<Move>,
}

impl Table {
    /// Heap bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.tokens.capacity() * size_of::<Token>() + self.moves.capacity() * size_of::<Move>()
    }

    /// Bytes moved per iteration in a direction.
    #[must_use]
    pub fn bytes(&self, destination: Destination) -> u64 {
        let moves = self.moves.iter().filter(|step| step.destination == destination);
        moves.map(|step| step.bytes).fold(0, u64::saturating_add)
    }

    /// Plan for the helper. With `launches_wait`, launches wait until the moves that they need are
    /// handed over to the driver, for [`HANDOVER_WAIT_MAX_NS`] at most.
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
