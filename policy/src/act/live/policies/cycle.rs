//! `cycle`: cyclic use of more memory than the GPU has, all of it equally often. The driver evicts
//! the oldest arrival, which is needed next, so all memory is refetched. The policy retains as much
//! memory as fits.
//!
//! Parameters: `rest`, the treatment of the rest: `auto` (streams through, by copies if it is only
//! read), `stream`, `remote`.

use model::Proposal;

use super::working_set::{EVEN_UP_TO, WorkingSet};
use crate::act::live::live_policy::{LivePolicy, Named, Running, View};

/// Policy for cyclic use.
#[derive(Debug)]
pub(crate) struct Cycle;

impl LivePolicy for Cycle {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let working_set = WorkingSet::of(view).filter(|working_set| working_set.skew() < EVEN_UP_TO)?;
        Some(working_set.propose(view, self.name(), "the cyclic working set exceeds the GPU's capacity"))
    }
}
