//! Cumulative counts of a process, and its moves per iteration.

use model::{Following, IterationBegin, PlanCounters, verdict::Inputs};

use super::trial::Reading;
use crate::{act::scene::Target, reading::counted_at};

/// Cumulative counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    inputs: Inputs,
    reported: PlanCounters,
}

/// Progress of the current iteration. Moves that are requested in an iteration are copied before
/// its end, but not always in the same interval: so they are compared with the copies of the
/// iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    iteration: Option<u64>,
    /// Counts at its start.
    begin: Counts,
    /// Moves since its start.
    moved: PlanCounters,
}

impl Counts {
    pub(super) fn of(following: &Following, target: &Target<'_>) -> Self {
        Self { inputs: counted_at(target.process, target.key()), reported: following.report.counters }
    }

    /// Reading of a trial with these counts, in this iteration.
    pub(super) const fn at(&self, iteration: IterationBegin) -> Reading {
        let Inputs { bytes_htod, bytes_dtoh, fault_entries, .. } = self.inputs;
        Reading { iteration, link_bytes: bytes_htod.saturating_add(bytes_dtoh), faults: fault_entries }
    }

    /// Moves since an earlier moment. A helper reports the bytes that it has requested; they are
    /// limited to the bytes that the driver has copied, because a process may report anything.
    pub(super) fn moved_since(&self, earlier: &Self) -> PlanCounters {
        let reported = self.reported.since(earlier.reported);
        let copied_htod = self.inputs.bytes_htod.saturating_sub(earlier.inputs.bytes_htod);
        let copied_dtoh = self.inputs.bytes_dtoh.saturating_sub(earlier.inputs.bytes_dtoh);
        PlanCounters {
            to_gpu_bytes: reported.to_gpu_bytes.min(copied_htod),
            to_host_bytes: reported.to_host_bytes.min(copied_dtoh),
            ..reported
        }
    }
}

impl Progress {
    pub(super) fn new(begin: Counts) -> Self {
        Self { iteration: None, begin, moved: PlanCounters::default() }
    }

    /// Advances to the counts of this interval, and to its iteration. Returns the moves since the
    /// last interval.
    pub(super) fn advance(&mut self, counts: &Counts, iteration: Option<u64>) -> PlanCounters {
        let moved = counts.moved_since(&self.begin);
        let increase = moved.since(self.moved);
        self.moved = moved;
        if iteration.is_some() && iteration != self.iteration {
            *self = Self { iteration, begin: *counts, moved: PlanCounters::default() };
        }
        increase
    }
}
