//! What the driver must do for a phase, by its rules: how many bytes it copies, and whether the GPU faults.
//!
//! Everything here is about the whole allocation, which every phase touches in all of its pages (in every 64 KiB for [`Order::Strided`], which is
//! what the driver moves for one fault at least). It holds where the GPU cannot access host memory by itself (no ATS), and the CPU cannot access the
//! GPU's, while memory is not oversubscribed, and while the driver does not take the exchange for thrashing: it does for pages that change sides
//! twice within 500 µs, and a phase on some MiB takes longer.
//!
//! [`Order::Strided`]: crate::order::Order::Strided

use serde::{Deserialize, Serialize};

use crate::phase::{
    Advice, Phase,
    Processor::{self, Cpu, Gpu},
};

/// What a phase must cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Bytes copied from host to GPU.
    pub bytes_htod: u64,
    /// Bytes copied from GPU to host.
    pub bytes_dtoh: u64,
    /// Whether the GPU faults; how often depends on its timing.
    pub gpu_faults: bool,
}

/// Where the pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Host,
    Gpu,
    /// A copy on each side (read-mostly).
    Both,
}

/// Where the allocation is, and what was advised for it.
#[derive(Clone, Copy, Debug)]
pub struct Residency {
    bytes: u64,
    place: Place,
    read_mostly: bool,
    prefers: Option<Processor>,
    /// Whether the GPU has a mapping of host memory: advised, or made when it faulted on memory that prefers the host.
    gpu_maps_host: bool,
}

impl Residency {
    /// Of an allocation nobody touched.
    #[must_use]
    pub fn untouched(bytes: u64) -> Self {
        Self { bytes, place: Place::Nowhere, read_mostly: false, prefers: None, gpu_maps_host: false }
    }

    /// What a phase costs, and where it leaves the pages.
    pub fn after(&mut self, phase: Phase) -> Prediction {
        match phase {
            Phase::Write(processor) | Phase::Increment(processor) => self.touch(processor, true),
            Phase::CpuRead => self.touch(Cpu, false),
            Phase::GpuRead(_) => self.touch(Gpu, false),
            Phase::Prefetch(processor) => self.bring_to(processor, false),
            Phase::Advise(advice) => {
                self.advise(advice);
                Prediction::default()
            }
        }
    }

    fn touch(&mut self, processor: Processor, writes: bool) -> Prediction {
        if processor == Gpu && self.place == Place::Host && (self.gpu_maps_host || self.prefers == Some(Cpu)) {
            let gpu_faults = !self.gpu_maps_host;
            self.gpu_maps_host = true;
            return Prediction { gpu_faults, ..Prediction::default() };
        }
        let is_here = match self.place {
            Place::Nowhere => false,
            Place::Host => processor == Cpu,
            Place::Gpu => processor == Gpu,
            Place::Both => !writes,
        };
        let moved = self.bring_to(processor, writes);
        Prediction { gpu_faults: processor == Gpu && !is_here, ..moved }
    }

    /// Get the pages to a processor. Writes leave no copy elsewhere.
    fn bring_to(&mut self, processor: Processor, writes: bool) -> Prediction {
        let (there, bytes_htod, bytes_dtoh) = match processor {
            Cpu => (Place::Host, 0, self.bytes),
            Gpu => (Place::Gpu, self.bytes, 0),
        };
        let copied = Prediction { bytes_htod, bytes_dtoh, gpu_faults: false };
        match self.place {
            Place::Nowhere => {
                self.place = there;
                Prediction::default()
            }
            Place::Both => {
                if writes {
                    self.place = there;
                }
                Prediction::default()
            }
            here if here == there => Prediction::default(),
            _ => {
                self.place = if self.read_mostly && !writes { Place::Both } else { there };
                copied
            }
        }
    }

    fn advise(&mut self, advice: Advice) {
        match advice {
            Advice::ReadMostly => self.read_mostly = true,
            Advice::PreferredLocation(processor) => self.prefers = Some(processor),
            Advice::AccessedByGpu => self.gpu_maps_host = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Workload;

    const BYTES: u64 = 1 << 20;

    /// (to the GPU, to the host) in MiB, and whether the GPU faults, phase by phase.
    fn predicted(workload: &str, rounds: u32) -> Vec<(u64, u64, bool)> {
        let mut residency = Residency::untouched(BYTES);
        let phases = Workload::named(workload).unwrap().phases(rounds);
        let tell =
            |Prediction { bytes_htod, bytes_dtoh, gpu_faults }| (bytes_htod / BYTES, bytes_dtoh / BYTES, gpu_faults);
        phases.into_iter().map(|phase| tell(residency.after(phase))).collect()
    }

    const NOTHING: (u64, u64, bool) = (0, 0, false);
    const TO_GPU: (u64, u64, bool) = (1, 0, true);
    const TO_HOST: (u64, u64, bool) = (0, 1, false);

    #[test]
    fn a_first_touch_faults_and_copies_nothing() {
        assert_eq!(predicted("first-touch", 2), [(0, 0, true), NOTHING, NOTHING, TO_HOST]);
    }

    #[test]
    fn what_the_cpu_wrote_comes_to_the_gpu_once_and_goes_back_when_it_is_written_or_read_again() {
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
    fn memory_that_prefers_the_gpu_still_goes_to_a_cpu_that_cannot_map_it() {
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
