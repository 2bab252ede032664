//! `hot-cold`: a hot part of the memory is used at every step, while the program walks through a
//! larger cold part. The driver evicts by age of arrival, and so evicts hot and cold memory alike.
//! The policy retains the blocks with the most returns.
//!
//! Parameters: those of `cycle`.

use model::Proposal;

use super::working_set::{EVEN_UP_TO, WorkingSet};
use crate::act::live::live_policy::{LivePolicy, Named, Running, View};

/// Policy for a hot set.
#[derive(Debug)]
pub(crate) struct HotCold;

impl LivePolicy for HotCold {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let working_set = WorkingSet::of(view).filter(|working_set| working_set.skew() >= EVEN_UP_TO)?;
        Some(working_set.propose(view, self.name(), "a hot part of the working set is refetched during a walk"))
    }
}
