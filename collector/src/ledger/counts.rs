//! Sums of counters.

use std::collections::BTreeMap;

use model::{Counters, GpuKey};

use super::Space;

/// Counters of GPUs, and of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) host: Counters,
    pub(crate) gpus: BTreeMap<GpuKey, Counters>,
    /// Counts of the GPUs' fault handlers, for all processes: batches, replays and runs, and
    /// nothing else.
    pub(super) handlers: BTreeMap<GpuKey, Counters>,
}

impl Counts {
    /// Zero counts.
    pub(super) const NONE: Self = Self { host: Counters::ZERO, gpus: BTreeMap::new(), handlers: BTreeMap::new() };

    pub(super) fn add(&mut self, other: &Self) {
        self.host += &other.host;
        for (gpu, counters) in &other.gpus {
            *self.gpus.entry(*gpu).or_default() += counters;
        }
        self.add_handlers(other);
    }

    pub(super) fn add_handlers(&mut self, other: &Self) {
        for (gpu, counters) in &other.handlers {
            *self.handlers.entry(*gpu).or_default() += counters;
        }
    }

    /// Counts batches once: in a sum over processes, a batch with faults of several of them is one
    /// of the GPU's.
    pub(super) fn count_batches_once(&mut self) {
        for counters in self.gpus.values_mut() {
            (counters.batches, counters.replays) = Default::default();
        }
        for (gpu, handler) in std::mem::take(&mut self.handlers) {
            *self.gpus.entry(gpu).or_default() += &handler;
        }
    }

    pub(super) fn add_space(&mut self, space: &Space) {
        self.host.dropped_events = self.host.dropped_events.saturating_add(space.dropped_events);
        for (key, tally) in &space.tallies {
            self.add_tally(key, space.gpu_ids.key(key.gpu), *tally);
        }
    }
}
