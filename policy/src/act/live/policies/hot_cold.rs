//! `hot-cold`: a hot part of the memory is used at every step, while the program walks through a
//! larger cold part. The driver evicts by age of arrival, and so evicts hot and cold memory alike.
//! The policy retains the blocks with the most returns.
//!
//! Parameters: those of `cycle`.

use model::Plan;

use super::working_set::{EVEN_UP_TO, Found};
use crate::act::live::live_policy::{LivePolicy, Named, Running, View};

/// Policy for a hot set.
#[derive(Debug)]
pub(crate) struct HotCold;

impl LivePolicy for HotCold {
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let found = Found::of(view).filter(|found| found.skew() >= EVEN_UP_TO)?;
        Some(found.plan(view, self.name(), "a hot part of the working set is refetched beside a walk"))
    }
}
