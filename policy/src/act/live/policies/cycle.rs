//! `cycle`: cyclic use of more memory than the GPU has, all of it equally often. The driver evicts
//! the oldest arrival, which is needed next, so all memory is refetched. The policy retains as much
//! memory as fits.
//!
//! Parameters: `rest`, the treatment of the rest: `auto` (streams through, by copies if it is only
//! read), `stream`, `remote`.

use model::Plan;

use super::working_set::{EVEN_UP_TO, Found};
use crate::act::live::live_policy::{LivePolicy, Named, Running, View};

/// Policy for cyclic use.
#[derive(Debug)]
pub(crate) struct Cycle;

impl LivePolicy for Cycle {
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let found = Found::of(view).filter(|found| found.skew() < EVEN_UP_TO)?;
        Some(found.plan(view, self.name(), "the cyclic working set exceeds the GPU's capacity"))
    }
}
