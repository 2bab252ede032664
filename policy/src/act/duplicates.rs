//! Copies instead of moves, for memory that is fetched and evicted and only read: with read duplication the host keeps its copy while the GPU has one,
//! and evicting the GPU's copies nothing. That saves half of what goes over the link, however often the memory is accessed.
//!
//! Whether memory is written to cannot be seen by range. What can be seen is whether its evictions copy: of memory that is written to, they still do, and
//! each page faults once more, for the write. So ranges are tried, and given up again one by one.

use std::collections::BTreeSet;

use model::{Action, Advice, Answer, Outcome, Step, block::BLOCK_BYTES};

use super::{
    keep::{Pressure, rows, whole_blocks},
    reactor::View,
};

/// A range is not duplicated any longer if its evictions copy more than this part of what comes to it.
const COPIED_MAX: f64 = 0.5;
/// Less that came tells nothing.
const TOLD_BY_BYTES: u64 = 4 * BLOCK_BYTES;

/// Ranges of which the GPU gets copies.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    tries: Vec<Try>,
    has_begun: bool,
    is_refused: bool,
}

#[derive(Debug)]
struct Try {
    steps: Vec<Step>,
    begin: u64,
    end: u64,
    /// What was there before has left the GPU once so much has arrived in all: that was copied.
    settled_at: u64,
    /// Since then, or since it was looked at last.
    from: Option<Traffic>,
}

/// Of a range, ever.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    fetched_bytes: u64,
    evicted_bytes: u64,
}

impl Traffic {
    fn of(view: &View<'_>, begin: u64, end: u64) -> Self {
        let inside = view.blocks.iter().filter(|block| begin <= block.address && block.address < end);
        inside.fold(Self::default(), |sum, block| Self {
            fetched_bytes: sum.fetched_bytes.saturating_add(block.bytes_htod),
            evicted_bytes: sum.evicted_bytes.saturating_add(block.evicted_bytes),
        })
    }
}

impl Duplicates {
    /// Whether it has begun with what may be.
    pub(crate) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Begins with all memory that comes and goes, but for what is kept.
    pub(crate) fn begin(&mut self, view: &View<'_>, kept: &BTreeSet<u64>) -> Vec<Step> {
        self.has_begun = true;
        let Pressure { held_bytes, arrived_bytes } = Pressure::of(view);
        for range in view.ranges {
            let inside = |address: u64| range.begin <= address && address < range.end;
            let moving = whole_blocks(view).filter(|block| inside(block.address) && block.bytes_htod > 0);
            let steps = rows(
                moving.map(|block| block.address).filter(|address| !kept.contains(address)),
                Action::Advise(Advice::ReadDuplication),
            );
            if !steps.is_empty() {
                let settled_at = arrived_bytes.saturating_add(held_bytes);
                self.tries.push(Try { steps, begin: range.begin, end: range.end, settled_at, from: None });
            }
        }
        self.tries.iter().flat_map(|each| each.steps.iter().copied()).collect()
    }

    /// Takes back what does not help.
    pub(crate) fn look(&mut self, view: &View<'_>) -> Vec<Step> {
        let arrived_bytes = Pressure::of(view).arrived_bytes;
        let mut withdrawn = Vec::new();
        self.tries.retain_mut(|each| {
            let is_useless = arrived_bytes >= each.settled_at && each.copies(view);
            if is_useless {
                let taken = Action::Withdraw(Advice::ReadDuplication);
                withdrawn.extend(each.steps.iter().map(|step| Step { action: taken, ..*step }));
            }
            !is_useless
        });
        withdrawn
    }

    /// Nothing is tried again where it may not be done.
    pub(crate) fn carried_out(&mut self, outcome: &Outcome) {
        let refused = |answer: &Answer| matches!(answer, Answer::HeldBack(_) | Answer::Refused(_));
        let is_ours = |action: Action| action == Action::Advise(Advice::ReadDuplication);
        self.is_refused |= outcome.calls.iter().any(|call| is_ours(call.step.action) && refused(&call.answer));
        if self.is_refused {
            self.tries.clear();
        }
    }
}

impl Try {
    /// Whether its evictions copy what they should not.
    fn copies(&mut self, view: &View<'_>) -> bool {
        let now = Traffic::of(view, self.begin, self.end);
        let from = *self.from.get_or_insert(now);
        let fetched = now.fetched_bytes.saturating_sub(from.fetched_bytes);
        if fetched < TOLD_BY_BYTES.max(self.end.saturating_sub(self.begin) / 4) {
            return false;
        }
        self.from = Some(now);
        now.evicted_bytes.saturating_sub(from.evicted_bytes) as f64 > fetched as f64 * COPIED_MAX
    }
}
