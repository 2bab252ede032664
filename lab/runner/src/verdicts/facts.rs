//! What one process's pages did at a GPU over a stretch of time, in the words of docs/verdicts.md.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Copied from the host to the GPU.
    pub(crate) fetched_bytes: u64,
    /// Became resident with nothing to copy.
    pub(crate) populated_bytes: u64,
    /// Its own, copied out because the memory was needed.
    pub(crate) evicted_bytes: u64,
    /// Anybody's, copied out because it needed the memory.
    pub(crate) evicted_for_it_bytes: u64,
    /// Of the fetched bytes, those that left the GPU last by eviction.
    pub(crate) refetched_bytes: u64,
    /// Of the fetched bytes, those that left the GPU last because its CPU used them.
    pub(crate) cpu_reclaimed_bytes: u64,
    /// Copied to the host and not evicted.
    pub(crate) readback_bytes: u64,
    /// Times that a block changed sides between its CPU and the GPU.
    pub(crate) bounces: u64,
    /// By the driver's own counter of the process.
    pub(crate) gpu_faults: u64,
    pub(crate) cpu_faults: u64,
    /// By the driver's own events.
    pub(crate) throttles: u64,
}

impl Facts {
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.fetched_bytes + self.populated_bytes
    }

    pub(crate) fn eviction_volume_bytes(&self) -> u64 {
        self.evicted_bytes.max(self.evicted_for_it_bytes)
    }

    /// The same with each value by itself this part more, and less.
    pub(crate) fn with_one_off(&self, part: f64) -> Vec<Self> {
        let changes: [fn(&mut Self) -> Vec<&mut u64>; 8] = [
            |facts| vec![&mut facts.fetched_bytes, &mut facts.populated_bytes],
            |facts| vec![&mut facts.populated_bytes],
            |facts| vec![&mut facts.evicted_bytes, &mut facts.evicted_for_it_bytes],
            |facts| vec![&mut facts.refetched_bytes],
            |facts| vec![&mut facts.cpu_reclaimed_bytes],
            |facts| vec![&mut facts.readback_bytes],
            |facts| vec![&mut facts.bounces],
            |facts| vec![&mut facts.throttles],
        ];
        let with = |factor: f64| {
            changes.iter().map(move |values| {
                let mut facts = *self;
                for value in values(&mut facts) {
                    *value = scaled(*value, factor);
                }
                facts
            })
        };
        with(1.0 - part).chain(with(1.0 + part)).collect()
    }

    pub(crate) fn faults(&self) -> u64 {
        self.gpu_faults + self.cpu_faults
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tenth more or less of what is no negative number"
)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).round() as u64
}

impl AddAssign for Facts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            fetched_bytes,
            populated_bytes,
            evicted_bytes,
            evicted_for_it_bytes,
            refetched_bytes,
            cpu_reclaimed_bytes,
            readback_bytes,
            bounces,
            gpu_faults,
            cpu_faults,
            throttles,
        } = other;
        for (sum, more) in [
            (&mut self.fetched_bytes, fetched_bytes),
            (&mut self.populated_bytes, populated_bytes),
            (&mut self.evicted_bytes, evicted_bytes),
            (&mut self.evicted_for_it_bytes, evicted_for_it_bytes),
            (&mut self.refetched_bytes, refetched_bytes),
            (&mut self.cpu_reclaimed_bytes, cpu_reclaimed_bytes),
            (&mut self.readback_bytes, readback_bytes),
            (&mut self.bounces, bounces),
            (&mut self.gpu_faults, gpu_faults),
            (&mut self.cpu_faults, cpu_faults),
            (&mut self.throttles, throttles),
        ] {
            *sum += more;
        }
    }
}
