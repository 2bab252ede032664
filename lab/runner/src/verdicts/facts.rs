//! Sums of page events of a process at a GPU over a period, in the terms of docs/verdicts.md.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Sums of page events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Bytes copied from the host to the GPU.
    pub(crate) fetched_bytes: u64,
    /// Bytes that became resident without a copy.
    pub(crate) populated_bytes: u64,
    /// Bytes of the process, evicted for any process.
    pub(crate) evicted_bytes: u64,
    /// Bytes of any process, evicted for this process.
    #[serde(rename = "evicted_for_it_bytes")]
    pub(crate) induced_eviction_bytes: u64,
    /// Fetched bytes that left the GPU last by eviction.
    pub(crate) refetched_bytes: u64,
    /// Fetched bytes that left the GPU last by an access of the process's CPU.
    pub(crate) cpu_reclaimed_bytes: u64,
    /// Bytes copied to the host without an eviction.
    pub(crate) readback_bytes: u64,
    /// Changes of sides of blocks between the process's CPU and the GPU.
    pub(crate) bounces: u64,
    /// GPU faults, by the driver's counter of the process.
    pub(crate) gpu_faults: u64,
    pub(crate) cpu_faults: u64,
    /// Throttles, by the driver's events.
    pub(crate) throttles: u64,
}

impl Facts {
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.fetched_bytes + self.populated_bytes
    }

    pub(crate) fn eviction_volume_bytes(&self) -> u64 {
        self.evicted_bytes.max(self.induced_eviction_bytes)
    }

    /// Deviations by a share: for each value, copies with only this value lower and higher. Arrived
    /// bytes and the eviction volume count as one value each.
    pub(crate) fn deviations(&self, share: f64) -> Vec<Self> {
        let changes: [fn(&mut Self) -> Vec<&mut u64>; 8] = [
            |facts| vec![&mut facts.fetched_bytes, &mut facts.populated_bytes],
            |facts| vec![&mut facts.populated_bytes],
            |facts| vec![&mut facts.evicted_bytes, &mut facts.induced_eviction_bytes],
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
        with(1.0 - share).chain(with(1.0 + share)).collect()
    }

    pub(crate) fn faults(&self) -> u64 {
        self.gpu_faults + self.cpu_faults
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tenth more or less of a value that is not negative"
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
            induced_eviction_bytes,
            refetched_bytes,
            cpu_reclaimed_bytes,
            readback_bytes,
            bounces,
            gpu_faults,
            cpu_faults,
            throttles,
        } = other;
        for (sum, addend) in [
            (&mut self.fetched_bytes, fetched_bytes),
            (&mut self.populated_bytes, populated_bytes),
            (&mut self.evicted_bytes, evicted_bytes),
            (&mut self.induced_eviction_bytes, induced_eviction_bytes),
            (&mut self.refetched_bytes, refetched_bytes),
            (&mut self.cpu_reclaimed_bytes, cpu_reclaimed_bytes),
            (&mut self.readback_bytes, readback_bytes),
            (&mut self.bounces, bounces),
            (&mut self.gpu_faults, gpu_faults),
            (&mut self.cpu_faults, cpu_faults),
            (&mut self.throttles, throttles),
        ] {
            *sum += addend;
        }
    }
}
