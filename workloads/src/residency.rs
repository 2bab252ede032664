//! Predicted work of the driver for a phase, by its rules: bytes copied, and whether the GPU
//! faults.
//!
//! Predictions are for the whole allocation. Every phase accesses all of its pages, or every 64 KiB
//! for [`Order::Strided`], the least that the driver migrates for a fault. Predictions hold under
//! these conditions:
//!
//! * The GPU cannot access host memory by itself (no ATS), and the CPU cannot access GPU memory.
//! * Memory is not oversubscribed.
//! * The driver detects no thrashing. It does for pages that change sides twice within 500 µs, and
//!   a phase on some MiB takes longer.
//!
//! [`Order::Strided`]: crate::order::Order::Strided

use serde::{Deserialize, Serialize};

use crate::phase::{
    Advice, Phase,
    Processor::{self, Cpu, Gpu},
};

/// Predicted cost of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Whether the GPU faults. The number of faults depends on its timing.
    pub gpu_faults: bool,
}

/// Location of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unpopulated,
    Host,
    Gpu,
    /// A copy on each side (read-mostly).
    Both,
}

/// Residency of the allocation, and its advice.
#[derive(Clone, Copy, Debug)]
pub struct Residency {
    bytes: u64,
    place: Place,
    read_mostly: bool,
    preferred_location: Option<Processor>,
    /// Whether the GPU maps host memory: by advice, or since it faulted on memory whose preferred
    /// location is the host.
    gpu_maps_host: bool,
}

impl Residency {
    /// Residency of an untouched allocation.
    #[must_use]
    pub fn untouched(bytes: u64) -> Self {
        Self { bytes, place: Place::Unpopulated, read_mostly: false, preferred_location: None, gpu_maps_host: false }
    }

    /// Applies a phase to the residency, and predicts its cost.
    pub fn apply(&mut self, phase: Phase) -> Prediction {
        match phase {
            Phase::Write(processor) | Phase::Increment(processor) => self.access(processor, true),
            Phase::CpuRead => self.access(Cpu, false),
            Phase::GpuRead(_) => self.access(Gpu, false),
            Phase::Prefetch(processor) => self.migrate_to(processor, false),
            Phase::Advise(advice) => {
                self.advise(advice);
                Prediction::default()
            }
        }
    }

    fn access(&mut self, processor: Processor, writes: bool) -> Prediction {
        if processor == Gpu && self.place == Place::Host && (self.gpu_maps_host || self.preferred_location == Some(Cpu))
        {
            let gpu_faults = !self.gpu_maps_host;
            self.gpu_maps_host = true;
            return Prediction { gpu_faults, ..Prediction::default() };
        }
        let is_resident = match self.place {
            Place::Unpopulated => false,
            Place::Host => processor == Cpu,
            Place::Gpu => processor == Gpu,
            Place::Both => !writes,
        };
        let copied = self.migrate_to(processor, writes);
        Prediction { gpu_faults: processor == Gpu && !is_resident, ..copied }
    }

    /// Migrates the pages to a processor. Writes leave no copy elsewhere.
    fn migrate_to(&mut self, processor: Processor, writes: bool) -> Prediction {
        let (destination, bytes_htod, bytes_dtoh) = match processor {
            Cpu => (Place::Host, 0, self.bytes),
            Gpu => (Place::Gpu, self.bytes, 0),
        };
        let copied = Prediction { bytes_htod, bytes_dtoh, gpu_faults: false };
        match self.place {
            Place::Unpopulated => {
                self.place = destination;
                Prediction::default()
            }
            Place::Both => {
                if writes {
                    self.place = destination;
                }
                Prediction::default()
            }
            here if here == destination => Prediction::default(),
            _ => {
                self.place = if self.read_mostly && !writes { Place::Both } else { destination };
                copied
            }
        }
    }

    fn advise(&mut self, advice: Advice) {
        match advice {
            Advice::ReadMostly => self.read_mostly = true,
            Advice::PreferredLocation(processor) => self.preferred_location = Some(processor),
            Advice::AccessedByGpu => self.gpu_maps_host = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Workload;

    const BYTES: u64 = 1 << 20;

    /// Predictions by phase, as MiB to the GPU, MiB to the host, and whether the GPU faults.
    fn predicted(workload: &str, rounds: u32) -> Vec<(u64, u64, bool)> {
        let mut residency = Residency::untouched(BYTES);
        let phases = Workload::named(workload).unwrap().phases(rounds);
        let figures =
            |Prediction { bytes_htod, bytes_dtoh, gpu_faults }| (bytes_htod / BYTES, bytes_dtoh / BYTES, gpu_faults);
        phases.into_iter().map(|phase| figures(residency.apply(phase))).collect()
    }

    const NOTHING: (u64, u64, bool) = (0, 0, false);
    const TO_GPU: (u64, u64, bool) = (1, 0, true);
    const TO_HOST: (u64, u64, bool) = (0, 1, false);

    #[test]
    fn a_first_touch_faults_and_copies_nothing() {
        assert_eq!(predicted("first-touch", 2), [(0, 0, true), NOTHING, NOTHING, TO_HOST]);
    }

    #[test]
    fn cpu_writes_are_copied_to_the_gpu_once_and_back_when_the_cpu_accesses_them_again() {
        assert_eq!(predicted("cpu-write-gpu-read", 2), [NOTHING, TO_GPU, TO_HOST, TO_GPU, TO_HOST]);
        assert_eq!(predicted("strided", 1), predicted("cpu-write-gpu-read", 1));
        assert_eq!(predicted("random", 1), predicted("cpu-write-gpu-read", 1));
    }

    #[test]
    fn taking_turns_copies_everything_both_ways_in_every_round() {
        assert_eq!(predicted("ping-pong", 2), [NOTHING, TO_GPU, TO_HOST, TO_GPU, TO_HOST, NOTHING]);
    }

    #[test]
    fn a_prefetch_copies_the_same_and_leaves_no_faults() {
        assert_eq!(predicted("prefetch", 1), [NOTHING, (1, 0, false), NOTHING, TO_HOST]);
        assert_eq!(predicted("prefetch-back", 1), [NOTHING, (1, 0, false), NOTHING, TO_HOST, NOTHING]);
    }

    #[test]
    fn memory_that_prefers_the_host_is_mapped_once_and_never_copied() {
        assert_eq!(predicted("preferred-host", 2), [NOTHING, NOTHING, (0, 0, true), NOTHING, NOTHING]);
    }

    #[test]
    fn memory_that_prefers_the_gpu_migrates_to_a_cpu_that_cannot_map_it() {
        assert_eq!(predicted("preferred-gpu", 2), [NOTHING, NOTHING, TO_GPU, TO_HOST, TO_GPU, TO_HOST]);
    }

    #[test]
    fn memory_mapped_beforehand_neither_faults_nor_is_copied() {
        assert_eq!(predicted("accessed-by", 2), [NOTHING; 5]);
    }

    #[test]
    fn read_mostly_memory_has_two_copies_until_it_is_written() {
        assert_eq!(
            predicted("read-mostly", 2),
            [NOTHING, NOTHING, TO_GPU, NOTHING, NOTHING, NOTHING, TO_GPU, NOTHING, NOTHING, NOTHING]
        );
    }
}
