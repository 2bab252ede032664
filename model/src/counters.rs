//! What is counted, in the driver's terms.

use std::ops::{AddAssign, Index, IndexMut};

/// How memory was accessed when a fault was raised. The driver's `uvm_fault_access_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A GPU prefetch instruction; not the driver's own prefetcher.
    Prefetch,
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic whose effect need only be visible to this GPU.
    AtomicWeak,
    /// An atomic visible to the whole system.
    AtomicStrong,
}

impl Access {
    /// Every access type, in the driver's numbering.
    pub const ALL: [Self; 5] = [Self::Prefetch, Self::Read, Self::Write, Self::AtomicWeak, Self::AtomicStrong];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Read => "read",
            Self::Write => "write",
            Self::AtomicWeak => "atomic_weak",
            Self::AtomicStrong => "atomic_strong",
        }
    }
}

/// Where bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Host to GPU.
    Htod,
    /// GPU to host.
    Dtoh,
    /// One GPU to another. Counted at the GPU that receives.
    Dtod,
}

impl Direction {
    /// Every direction.
    pub const ALL: [Self; 3] = [Self::Htod, Self::Dtoh, Self::Dtod];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Htod => "htod",
            Self::Dtoh => "dtoh",
            Self::Dtod => "dtod",
        }
    }
}

/// Why bytes were migrated. Groups the driver's `uvm_make_resident_cause_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A page fault of a GPU or a CPU.
    Fault,
    /// The driver's own tree prefetcher, working around a fault. Not `cudaMemPrefetchAsync`, which is `Api`.
    TreePrefetch,
    /// Memory was needed for something else.
    Eviction,
    /// The application, or a tool, asked: prefetch, advice, range groups.
    Api,
    /// The GPU's access counters.
    AccessCounter,
    /// A cause this version does not know.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 6] =
        [Self::Fault, Self::TreePrefetch, Self::Eviction, Self::Api, Self::AccessCounter, Self::Other];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::TreePrefetch => "tree_prefetch",
            Self::Eviction => "eviction",
            Self::Api => "api",
            Self::AccessCounter => "access_counter",
            Self::Other => "other",
        }
    }
}

/// One `u64` per variant of a small enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerVariant<const N: usize>([u64; N]);

impl<const N: usize> Default for PerVariant<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> PerVariant<N> {
    /// The sum over all variants.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl<const N: usize> AddAssign<&Self> for PerVariant<N> {
    fn add_assign(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

macro_rules! index_by {
    ($enum:ty, $n:literal) => {
        #[expect(clippy::indexing_slicing, reason = "the array has one element a variant")]
        impl Index<$enum> for PerVariant<$n> {
            type Output = u64;
            fn index(&self, variant: $enum) -> &u64 {
                &self.0[variant as usize]
            }
        }
        #[expect(clippy::indexing_slicing, reason = "the array has one element a variant")]
        impl IndexMut<$enum> for PerVariant<$n> {
            fn index_mut(&mut self, variant: $enum) -> &mut u64 {
                &mut self.0[variant as usize]
            }
        }
        const _: () = assert!(<$enum>::ALL.len() == $n);
    };
}
index_by!(Access, 5);
index_by!(Cause, 6);

/// What was counted for one process on one GPU, or for any sum of those. All counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// GPU fault entries: one for each page and batch, after the driver merged equal faults.
    pub fault_entries: PerVariant<5>,
    /// GPU faults before merging, by the access type of the entry they were merged into.
    pub fault_instances: PerVariant<5>,
    /// Read faults of CPUs on managed memory.
    pub cpu_read_faults: u64,
    /// Write faults of CPUs on managed memory.
    pub cpu_write_faults: u64,
    /// Bytes copied from host to GPU, by cause. First touches copy nothing and are not here.
    pub bytes_htod: PerVariant<6>,
    /// Bytes copied from GPU to host, by cause.
    pub bytes_dtoh: PerVariant<6>,
    /// Bytes received from another GPU, by cause.
    pub bytes_dtod: PerVariant<6>,
    /// Events known to belong here that could not be counted.
    pub dropped_events: u64,
}

impl Counters {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        fault_entries: PerVariant([0; 5]),
        fault_instances: PerVariant([0; 5]),
        cpu_read_faults: 0,
        cpu_write_faults: 0,
        bytes_htod: PerVariant([0; 6]),
        bytes_dtoh: PerVariant([0; 6]),
        bytes_dtod: PerVariant([0; 6]),
        dropped_events: 0,
    };

    /// Faults of CPUs, reads and writes together.
    #[must_use]
    pub const fn cpu_faults(&self) -> u64 {
        self.cpu_read_faults.saturating_add(self.cpu_write_faults)
    }

    /// Bytes in one direction, by cause.
    #[must_use]
    pub const fn bytes(&self, direction: Direction) -> &PerVariant<6> {
        match direction {
            Direction::Htod => &self.bytes_htod,
            Direction::Dtoh => &self.bytes_dtoh,
            Direction::Dtod => &self.bytes_dtod,
        }
    }

    /// Bytes pushed out of GPU memory, to the host or to another GPU, because the memory was needed.
    #[must_use]
    pub fn evicted_bytes(&self) -> u64 {
        self.bytes_dtoh[Cause::Eviction].saturating_add(self.bytes_dtod[Cause::Eviction])
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        // Destructured without `..`: a new counter that is not summed does not compile.
        let Self {
            fault_entries,
            fault_instances,
            cpu_read_faults,
            cpu_write_faults,
            bytes_htod,
            bytes_dtoh,
            bytes_dtod,
            dropped_events,
        } = other;
        self.fault_entries += fault_entries;
        self.fault_instances += fault_instances;
        self.cpu_read_faults = self.cpu_read_faults.saturating_add(*cpu_read_faults);
        self.cpu_write_faults = self.cpu_write_faults.saturating_add(*cpu_write_faults);
        self.bytes_htod += bytes_htod;
        self.bytes_dtoh += bytes_dtoh;
        self.bytes_dtod += bytes_dtod;
        self.dropped_events = self.dropped_events.saturating_add(*dropped_events);
    }
}

impl<'a> std::iter::Sum<&'a Self> for Counters {
    fn sum<I: Iterator<Item = &'a Self>>(counters: I) -> Self {
        let mut sum = Self::default();
        for each in counters {
            sum += each;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_bytes_are_those_that_left_gpu_memory_because_it_was_needed() {
        let mut counters = Counters::default();
        counters.bytes_dtoh[Cause::Eviction] = 8192;
        counters.bytes_dtoh[Cause::Fault] = 4096;
        counters.bytes_htod[Cause::Eviction] = 1;
        assert_eq!(counters.evicted_bytes(), 8192);
    }

    #[test]
    fn a_sum_adds_each_counter_by_variant() {
        let mut one = Counters { cpu_read_faults: 1, cpu_write_faults: 2, dropped_events: 3, ..Counters::default() };
        one.fault_entries[Access::Write] = 5;
        one.bytes_dtod[Cause::Api] = 7;
        let sum: Counters = [one, one].iter().sum();
        assert_eq!(sum.fault_entries[Access::Write], 10);
        assert_eq!(sum.fault_entries.total(), 10);
        assert_eq!((sum.cpu_faults(), sum.dropped_events, sum.bytes_dtod.total()), (6, 6, 14));
    }
}
