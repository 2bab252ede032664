//! `hot-cold`: a part of the memory is used at every step, beside much that is walked through. The driver evicts by age of arrival, so the hot part goes
//! with the cold. It stays instead, the blocks that come back most first.
//!
//! Parameters: those of `cycle`.

use model::Plan;

use super::{
    live_policy::{LivePolicy, Named, Running, View},
    working_set::{EVEN_UP_TO, Found},
};

/// The policy.
#[derive(Debug)]
pub(crate) struct HotCold;

impl LivePolicy for HotCold {
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let found = Found::of(view).filter(|found| found.skew() >= EVEN_UP_TO)?;
        Some(found.plan(view, self.name(), "a hot part of the working set is refetched beside a walk"))
    }
}
