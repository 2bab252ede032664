//! What is counted, in the driver's terms.

use std::ops::{AddAssign, Deref, DerefMut, Index, IndexMut};

use crate::{Access, ApiCall, Cause, Direction, Distribution, RemoteCause};

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

/// The same for what most never count: nothing counted takes no memory. Reads as a [`PerVariant`] of zeros until something is.
#[derive(Clone, Debug, Default)]
pub struct RarePerVariant<const N: usize>(Option<Box<PerVariant<N>>>);

impl<const N: usize> RarePerVariant<N> {
    /// Nothing counted.
    pub const ZERO: Self = Self(None);
}

impl<const N: usize> Deref for RarePerVariant<N> {
    type Target = PerVariant<N>;

    fn deref(&self) -> &PerVariant<N> {
        match &self.0 {
            Some(counts) => counts,
            None => const { &PerVariant([0; N]) },
        }
    }
}

impl<const N: usize> DerefMut for RarePerVariant<N> {
    fn deref_mut(&mut self) -> &mut PerVariant<N> {
        self.0.get_or_insert_default()
    }
}

impl<const N: usize> PartialEq for RarePerVariant<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for RarePerVariant<N> {}

impl<const N: usize> AddAssign<&Self> for RarePerVariant<N> {
    fn add_assign(&mut self, other: &Self) {
        if let Self(Some(theirs)) = other {
            **self += theirs;
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
index_by!(Cause, 7);
index_by!(RemoteCause, 6);
index_by!(ApiCall, 8);

/// Counters of one process at one GPU, or a sum of such. All are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub bytes_htod: PerVariant<7>,
    /// Bytes copied from GPU to host, by cause.
    pub bytes_dtoh: PerVariant<7>,
    /// Bytes received from another GPU, by cause.
    pub bytes_dtod: RarePerVariant<7>,
    /// Bytes of each copy from host to GPU. One is of pages that follow each other, within a block of 2 MiB.
    pub migration_size_htod_bytes: Distribution,
    /// Bytes of each copy from GPU to host.
    pub migration_size_dtoh_bytes: Distribution,
    /// Bytes that became resident at the GPU with nothing to copy: first touches. Counted where it is known how this driver keeps residency.
    pub populated_bytes: u64,
    /// Pieces of memory, of at most 2 MiB, that were pushed out of the GPU because memory was needed; with nothing to copy too.
    pub evictions: u64,
    /// The same, by whom the memory was needed for: pieces of anybody's, its own among them.
    pub induced_evictions: u64,
    /// Bytes copied out in those that it caused.
    pub induced_eviction_bytes: u64,
    /// Fault batches that held faults of it, with their size and service time.
    pub batches: Batches,
    /// Times that the GPU was told to try its faulting accesses again after such a batch.
    pub replays: u64,
    /// Service time: nanoseconds of each run of the driver's fault handler, which serves several batches. Only in a GPU's totals: it serves whoever faulted.
    pub fault_handler_duration_ns: Distribution,
    /// Pages that the driver found to be thrashing, once an episode. It does not see thrashing by evictions.
    pub thrashing_pages: u64,
    /// Times that the driver held a processor back from a thrashing page.
    pub throttles: u64,
    /// Sum of the durations whose end was seen.
    pub throttled_ns: u64,
    /// Mappings to memory that stays on another processor, by cause. The driver tells of them only while a tool is attached to the process.
    pub remote_mappings: RarePerVariant<6>,
    /// Bytes so mapped, by cause; what is mapped again counts again.
    pub remote_mapped_bytes: RarePerVariant<6>,
    /// The application's own calls, by kind; they name ranges, not GPUs, so they are counted with no GPU.
    pub api_calls: RarePerVariant<8>,
    /// Bytes in the ranges that those calls named.
    pub api_bytes: RarePerVariant<8>,
    /// Calls of other processes about this process's memory: uvmd itself, a profiler.
    pub tool_calls: RarePerVariant<8>,
    /// Bytes in the ranges that those calls named.
    pub tool_bytes: RarePerVariant<8>,
    /// Events known to belong here that could not be counted.
    pub dropped_events: u64,
}

/// The fault batches of a process on a GPU, or of any sum of those. The driver serves GPU faults in batches.
///
/// Fault batches. A batch with faults of several processes counts for each; the totals of a GPU count it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Fault entries in each batch; of a process: its own.
    pub entries: Distribution,
    /// From fault to replay: nanoseconds from the batch's first fault entry seen to its replay. The other processes' faults in it took part of them.
    pub service_ns: Distribution,
}

impl Batches {
    /// None.
    pub const ZERO: Self = Self { entries: Distribution::EMPTY, service_ns: Distribution::EMPTY };
}

impl AddAssign<&Self> for Batches {
    fn add_assign(&mut self, other: &Self) {
        let Self { entries, service_ns } = other;
        self.entries += entries;
        self.service_ns += service_ns;
    }
}

impl Counters {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        fault_entries: PerVariant([0; 5]),
        fault_instances: PerVariant([0; 5]),
        cpu_read_faults: 0,
        cpu_write_faults: 0,
        bytes_htod: PerVariant([0; 7]),
        bytes_dtoh: PerVariant([0; 7]),
        bytes_dtod: RarePerVariant::ZERO,
        migration_size_htod_bytes: Distribution::EMPTY,
        migration_size_dtoh_bytes: Distribution::EMPTY,
        populated_bytes: 0,
        evictions: 0,
        induced_evictions: 0,
        induced_eviction_bytes: 0,
        batches: Batches::ZERO,
        replays: 0,
        fault_handler_duration_ns: Distribution::EMPTY,
        thrashing_pages: 0,
        throttles: 0,
        throttled_ns: 0,
        remote_mappings: RarePerVariant::ZERO,
        remote_mapped_bytes: RarePerVariant::ZERO,
        api_calls: RarePerVariant::ZERO,
        api_bytes: RarePerVariant::ZERO,
        tool_calls: RarePerVariant::ZERO,
        tool_bytes: RarePerVariant::ZERO,
        dropped_events: 0,
    };

    /// Faults of CPUs, reads and writes together.
    #[must_use]
    pub const fn cpu_faults(&self) -> u64 {
        self.cpu_read_faults.saturating_add(self.cpu_write_faults)
    }

    /// Bytes in one direction, by cause.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> &PerVariant<7> {
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
            migration_size_htod_bytes,
            migration_size_dtoh_bytes,
            populated_bytes,
            evictions,
            induced_evictions,
            induced_eviction_bytes,
            batches,
            replays,
            fault_handler_duration_ns,
            thrashing_pages,
            throttles,
            throttled_ns,
            remote_mappings,
            remote_mapped_bytes,
            api_calls,
            api_bytes,
            tool_calls,
            tool_bytes,
            dropped_events,
        } = other;
        self.fault_entries += fault_entries;
        self.fault_instances += fault_instances;
        self.bytes_htod += bytes_htod;
        self.bytes_dtoh += bytes_dtoh;
        self.bytes_dtod += bytes_dtod;
        self.migration_size_htod_bytes += migration_size_htod_bytes;
        self.migration_size_dtoh_bytes += migration_size_dtoh_bytes;
        self.batches += batches;
        self.fault_handler_duration_ns += fault_handler_duration_ns;
        self.remote_mappings += remote_mappings;
        self.remote_mapped_bytes += remote_mapped_bytes;
        self.api_calls += api_calls;
        self.api_bytes += api_bytes;
        self.tool_calls += tool_calls;
        self.tool_bytes += tool_bytes;
        for (mine, theirs) in [
            (&mut self.cpu_read_faults, cpu_read_faults),
            (&mut self.cpu_write_faults, cpu_write_faults),
            (&mut self.populated_bytes, populated_bytes),
            (&mut self.evictions, evictions),
            (&mut self.induced_evictions, induced_evictions),
            (&mut self.induced_eviction_bytes, induced_eviction_bytes),
            (&mut self.replays, replays),
            (&mut self.thrashing_pages, thrashing_pages),
            (&mut self.throttles, throttles),
            (&mut self.throttled_ns, throttled_ns),
            (&mut self.dropped_events, dropped_events),
        ] {
            *mine = mine.saturating_add(*theirs);
        }
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
        let sum: Counters = [one.clone(), one].iter().sum();
        assert_eq!(sum.fault_entries[Access::Write], 10);
        assert_eq!(sum.fault_entries.total(), 10);
        assert_eq!((sum.cpu_faults(), sum.dropped_events, sum.bytes_dtod.total()), (6, 6, 14));
    }

    #[test]
    fn what_most_never_count_takes_no_memory_and_reads_as_zeros() {
        let mut counters = Counters::default();
        assert_eq!(counters.api_calls.total(), 0);
        assert!(counters.api_calls.0.is_none());
        let nothing = counters.clone();
        counters += &nothing;
        assert!(counters.api_calls.0.is_none(), "a sum of nothing is nothing");
        counters.api_calls[ApiCall::Prefetch] += 2;
        assert_eq!((counters.api_calls[ApiCall::Prefetch], counters.api_calls.total()), (2, 2));
        counters.api_calls[ApiCall::Prefetch] = 0;
        assert_eq!(counters, nothing);
    }
}
