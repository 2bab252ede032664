//! Counts from records of several VA spaces, for fuzz targets.

use std::collections::BTreeMap;

use abi::{CountKey, Tally, count::EvictionKey};
use sys::uvm::{
    queue::KindCounts,
    records::{EventKind, Record},
    tracker::Counters,
};

use super::{
    tally::{SpaceTally, Totals},
    timeline::Timeline,
};

/// Processor ids of a physical GPU.
const IDS_PER_GPU: u32 = 8;

/// Counts from records.
#[derive(Debug)]
pub struct RecordCounts {
    spaces: BTreeMap<u64, SpaceTally>,
    timeline: Timeline,
}

impl Default for RecordCounts {
    fn default() -> Self {
        Self { spaces: BTreeMap::new(), timeline: Timeline::new(IDS_PER_GPU) }
    }
}

impl RecordCounts {
    /// Adds a record of a VA space.
    pub fn add(&mut self, generation: u64, record: &Record) {
        if let Record::Replay(replay) = record {
            self.timeline.add_replay(replay);
        } else if let Some(event) = self.space(generation).add(record) {
            self.timeline.add(generation, event);
        }
    }

    /// Ends a reading that began at a time.
    pub fn advance(&mut self, now_ns: u64) {
        self.timeline.advance(now_ns);
    }

    /// Adds totals of a VA space with these counters, and counts of a queue that has lost records;
    /// for the last time if `is_last`.
    pub fn complete(&mut self, generation: u64, all: Counters, kinds: KindCounts, is_last: bool) {
        let totals = Totals { all, gpus: vec![(1, all)], kinds };
        if kinds.of(EventKind::GpuFault) > 0 {
            self.timeline.lost_faults(generation);
        }
        if kinds.of(EventKind::Replay) > 0 {
            self.timeline.lost_replays();
        }
        if is_last {
            self.timeline.finish(generation, 0);
            self.space(generation).finish(&totals);
        } else {
            self.space(generation).complete(&totals, &kinds);
        }
    }

    /// Forgets a VA space.
    pub fn forget(&mut self, generation: u64) {
        self.spaces.remove(&generation);
        self.timeline.forget(generation);
    }

    /// Counts of all VA spaces.
    #[must_use]
    pub fn counts(&self) -> Vec<(CountKey, Tally)> {
        self.spaces.values().flat_map(SpaceTally::counts).chain(self.timeline.counts()).collect()
    }

    /// Evictions by victim and evictor.
    #[must_use]
    pub fn evictions(&self) -> Vec<(EvictionKey, Tally)> {
        self.timeline.evictions().collect()
    }

    /// Records that were not counted, as they cannot be true.
    #[must_use]
    pub fn contradictions(&self) -> u64 {
        self.spaces.values().flat_map(|space| space.contradictions().values()).sum()
    }

    fn space(&mut self, generation: u64) -> &mut SpaceTally {
        let all = EventKind::ALL;
        self.spaces.entry(generation).or_insert_with(|| SpaceTally::new(generation, IDS_PER_GPU, all))
    }
}
