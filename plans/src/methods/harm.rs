//! Memory leaves the GPU behind each launch that uses it: a control, which a trial has to find out.

use call_ring::plan::{Destination, MOVES_MAX};

use super::{Demand, Method, Outline};
use crate::{
    moves::{Step, assembled},
    refusal::Refusal,
    traffic,
};

/// Name of the method.
pub(super) const NAME: &str = "harmful-plan";

/// Departures of all that is used, as many as a plan holds. No launch waits for them.
pub(super) struct Harm;

impl Method for Harm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn outline(&self, demand: &Demand) -> Result<Outline, Refusal> {
        let Demand { pieces, gpu_bytes, .. } = demand;
        let all = pieces.all.iter().enumerate().filter(|(_, piece)| piece.moves);
        let leaves = |piece, begin| Step { piece, destination: Destination::Host, begin, wait: None };
        let steps = all.flat_map(|(place, piece)| piece.uses.iter().map(move |op| leaves(place, *op)));
        let mut moves = assembled(pieces, steps);
        moves.truncate(MOVES_MAX);
        if moves.is_empty() {
            return Err(Refusal::NothingMoves);
        }
        let traffic = traffic::of(pieces, *gpu_bytes, &moves);
        Ok(Outline { moves, traffic, peak_bytes: 0 })
    }
}
