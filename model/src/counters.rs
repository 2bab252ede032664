//! What is counted, in the driver's terms.

use std::ops::{AddAssign, Deref, DerefMut, Index, IndexMut};

use crate::{Access, ApiCall, Cause, Direction, Distribution, RemoteCause, single_counts};

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

/// The same for what most never count: nothing counted takes no memory. Reads as a [`PerVariant`] of zeros until something is.
#[derive(Clone, Debug, Default)]
pub struct RarePerVariant<const N: usize>(Option<Box<PerVariant<N>>>);

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
index_by!(Access, 6);

impl PerVariant<6> {
    /// Access types to list: without the unknown one, unless some are unknown.
    #[must_use]
    pub fn accesses(&self) -> &'static [Access] {
        if self[Access::Unknown] > 0 { &Access::ALL } else { &Access::KNOWN }
    }
}

index_by!(Cause, 7);
index_by!(RemoteCause, 6);
index_by!(ApiCall, 8);

/// Count that begins at zero and adds up.
trait Count {
    /// Nothing counted.
    const ZERO: Self;

    /// Adds another count, saturating.
    fn add(&mut self, other: &Self);
}

impl Count for u64 {
    const ZERO: Self = 0;

    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

impl<const N: usize> Count for PerVariant<N> {
    const ZERO: Self = Self([0; N]);

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.add(theirs);
        }
    }
}

impl<const N: usize> Count for RarePerVariant<N> {
    const ZERO: Self = Self(None);

    fn add(&mut self, other: &Self) {
        if let Self(Some(theirs)) = other {
            (**self).add(theirs);
        }
    }
}

impl Count for Distribution {
    const ZERO: Self = Self::EMPTY;

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

/// Defines a struct of counts from its rows, the fields, their zero and their sum; and from those of
/// [`single_counts`](crate::single_counts), if they follow.
macro_rules! counts {
    (
        { $(#[$struct_doc:meta])* $struct:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* } }
        $($(#[$single_doc:meta])* $single:ident: $quantity:ident $(, $rows:ident $metric:literal $help:literal)?;)*
    ) => {
        counts! { $(#[$struct_doc])* $struct { $($(#[$doc])* $field: $type,)* $($(#[$single_doc])* $single: u64,)* } }
    };
    ($(#[$struct_doc:meta])* $struct:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$struct_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $struct {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $struct {
            /// Nothing counted.
            pub const ZERO: Self = Self { $($field: <$type as Count>::ZERO,)* };
        }

        impl Count for $struct {
            const ZERO: Self = Self::ZERO;

            fn add(&mut self, other: &Self) {
                $(self.$field.add(&other.$field);)*
            }
        }

        impl AddAssign<&Self> for $struct {
            fn add_assign(&mut self, other: &Self) {
                self.add(other);
            }
        }
    };
}

single_counts! { counts {
    /// Counters of one process at one GPU, or a sum of such. All are monotonic.
    Counters {
        /// GPU fault entries: one for each page and batch, after the driver merged equal faults.
        fault_entries: PerVariant<6>,
        /// GPU faults before merging, by the access type of the entry they were merged into.
        fault_instances: PerVariant<6>,
        /// Read faults of CPUs on managed memory.
        cpu_read_faults: u64,
        /// Write faults of CPUs on managed memory.
        cpu_write_faults: u64,
        /// Faults of CPUs on managed memory whose access type the source does not know.
        cpu_unknown_faults: u64,
        /// CPU faults without a site: see [`Sites`](crate::Sites).
        siteless_cpu_faults: u64,
        /// Bytes copied from GPUs for CPU faults without a site.
        siteless_bytes_dtoh: u64,
        /// Bytes copied from host to GPU, by cause. First touches copy nothing and are not here.
        bytes_htod: PerVariant<7>,
        /// Bytes copied from GPU to host, by cause.
        bytes_dtoh: PerVariant<7>,
        /// Bytes received from another GPU, by cause.
        bytes_dtod: RarePerVariant<7>,
        /// Bytes of each copy from host to GPU. One is of pages that follow each other, within a block of 2 MiB.
        migration_size_htod_bytes: Distribution,
        /// Bytes of each copy from GPU to host.
        migration_size_dtoh_bytes: Distribution,
        /// Fault batches that held faults of it, with their size and service time.
        batches: Batches,
        /// Nanoseconds of each run of the driver's fault handler, which services several batches. Only in a GPU's totals: it services faults of all processes.
        fault_handler_duration_ns: Distribution,
        /// Mappings to memory that stays on another processor, by cause. The driver reports them only while a tool is attached to the process.
        remote_mappings: RarePerVariant<6>,
        /// Bytes so mapped, by cause; memory that is mapped again counts again.
        remote_mapped_bytes: RarePerVariant<6>,
        /// The application's own calls, by kind; they name ranges, not GPUs, so they are counted with no GPU.
        api_calls: RarePerVariant<8>,
        /// Bytes in the ranges that those calls named.
        api_bytes: RarePerVariant<8>,
        /// Calls of other processes about this process's memory: uvmd itself, a profiler.
        tool_calls: RarePerVariant<8>,
        /// Bytes in the ranges that those calls named.
        tool_bytes: RarePerVariant<8>,
        /// Events known to belong here that could not be counted.
        dropped_events: u64,
    }
} }

counts! {
    /// Fault batches of a process on a GPU, or of any sum of those. The driver services GPU faults in batches.
    ///
    /// A batch with faults of several processes counts for each; the totals of a GPU count it once.
    Batches {
        /// Fault entries in each batch; of a process: its own.
        entries: Distribution,
        /// From fault to replay: nanoseconds from the batch's first fault entry seen to its replay. The other processes' faults in it took part of them.
        service_ns: Distribution,
    }
}

impl Counters {
    /// Faults of CPUs, whatever the access.
    #[must_use]
    pub const fn cpu_faults(&self) -> u64 {
        self.cpu_read_faults.saturating_add(self.cpu_write_faults).saturating_add(self.cpu_unknown_faults)
    }

    /// Faults of CPUs by access type; without the unknown one, unless some are unknown.
    pub fn cpu_faults_by_access(&self) -> impl Iterator<Item = (Access, u64)> {
        let unknown = (self.cpu_unknown_faults > 0).then_some((Access::Unknown, self.cpu_unknown_faults));
        [(Access::Read, self.cpu_read_faults), (Access::Write, self.cpu_write_faults)].into_iter().chain(unknown)
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
