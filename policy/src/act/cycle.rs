//! `cycle`: more than the GPU holds is used again and again, all of it as often. The driver evicts what came first, which is what is needed next, and so
//! everything. As much as fits stays instead.
//!
//! Parameters: `rest`, what becomes of the rest: `auto` (it streams through, by copies where it is only read), `stream`, `remote`.

use model::Plan;

use super::{
    live_policy::{LivePolicy, Named, Running, View},
    working_set::{EVEN_UP_TO, Found},
};

/// The policy.
#[derive(Debug)]
pub(crate) struct Cycle;

impl LivePolicy for Cycle {
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let found = Found::of(view).filter(|found| found.skew() < EVEN_UP_TO)?;
        Some(found.plan(view, self.name(), "the cyclic working set exceeds the GPU's capacity"))
    }
}
