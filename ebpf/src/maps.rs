//! Data that the probes share with user space. Names are those of `abi::names`.

use abi::{
    CountKey, DropReason, Layout, Lifecycle, Probe, RecordLimit, SelfTest, Tally,
    count::{EvictionKey, RecordLosses, SiteKey, Space},
    lifecycle::RING_BYTES,
    quota::{SITES_CAPACITY, SPACES_CAPACITY},
};
use aya_ebpf::{
    helpers::generated,
    macros::map,
    maps::{HashMap, PerCpuArray, PerCpuHashMap, RingBuf},
};

/// Layout of structures. The loader fills it in before the programs are verified; it is read-only
/// from then on.
// SAFETY: integers only, for which zero is a value.
#[unsafe(no_mangle)]
pub static LAYOUT: Layout = unsafe { core::mem::zeroed() };

/// Reads a field of [`LAYOUT`]. Field by field, so that the verifier sees each as a constant.
macro_rules! layout {
    ($field:ident) => {{
        let field = &raw const $crate::maps::LAYOUT.$field;
        // SAFETY: a field of a static that nothing writes while programs run. Volatile, or the
        // compiler would fold in the zeroes.
        unsafe { field.read_volatile() }
    }};
}
pub(crate) use layout;

/// Limits of block records. Filled in like [`LAYOUT`].
#[unsafe(no_mangle)]
pub static RECORD_LIMIT: RecordLimit = RecordLimit { per_window: 0, used_bytes: 0, per_space: 0 };

/// Living VA spaces by address.
#[map]
pub static SPACES: HashMap<u64, Space> = HashMap::with_max_entries(SPACES_CAPACITY, 0);

/// Flag by which an insertion fails if the key exists.
pub const BPF_NOEXIST: u64 = 1;

/// Losses of a new VA space.
pub const NO_LOSSES: RecordLosses = RecordLosses { sampled_out: 0, dropped: 0, stale: 0 };

/// Counts of living VA spaces. User space removes those of an ended generation. The loader sets the
/// capacity by the number of CPUs: each entry has 16 bytes per CPU, allocated up front, as a probe
/// cannot allocate.
#[map]
pub static COUNTS: PerCpuHashMap<CountKey, Tally> = PerCpuHashMap::with_max_entries(4096, 0);

/// Distributions of living VA spaces, as above. Shared by all CPUs: there are many keys, with one
/// value per batch or copy.
#[map]
pub static DISTRIBUTIONS: HashMap<CountKey, Tally> = HashMap::with_max_entries(65536, 0);

/// Evictions by victim and evictor, of living VA spaces, as above. Shared by all CPUs: evictions
/// are rare.
#[map]
pub static EVICTIONS: HashMap<EvictionKey, Tally> = HashMap::with_max_entries(16384, 0);

/// Sites of CPU faults, of living VA spaces, as above. Shared by all CPUs: such a fault takes the
/// driver some 10 us.
#[map]
pub static SITES: HashMap<SiteKey, Tally> = HashMap::with_max_entries(SITES_CAPACITY, 0);

/// Records of VA spaces created and destroyed: 11,900 between two readings of user space, which
/// each of them wakes.
#[map]
pub static LIFECYCLES: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Last generation of each CPU, so that generations are unique without an atomic operation. By
/// [`Sequence`].
#[map]
pub static GENERATIONS: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// Sequence of generations. There are two, because a probe may interrupt the iterator between its
/// read and write of one.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Sequence {
    /// Sequence of the probes.
    Registered = 0,
    /// Sequence of the iterator.
    Adopted = 1,
}

/// New generation: number of the CPU, of the sequence, and position in it. Never 0, and unique
/// while these maps exist.
#[inline(always)]
pub fn next_generation(sequence: Sequence) -> u64 {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { generated::bpf_get_smp_processor_id() };
    let sequence = sequence as u32;
    (u64::from(cpu) << 48) | (u64::from(sequence) << 47) | increment(&GENERATIONS, sequence)
}

#[map]
static DROPPED: PerCpuArray<u64> = PerCpuArray::with_max_entries(DropReason::COUNT, 0);

#[map]
static SELF_TESTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(SelfTest::COUNT, 0);

#[map]
static HITS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Probe::COUNT, 0);

/// Counts a run of a probe.
#[inline(always)]
pub fn hit(probe: Probe) {
    increment(&HITS, probe as u32);
}

/// Counts a dropped event.
#[inline(always)]
pub fn count_drop(reason: DropReason) {
    increment(&DROPPED, reason as u32);
}

/// Counts an event that contradicts the layout.
#[inline(always)]
pub fn fail(test: SelfTest) {
    count_drop(DropReason::SelfTest);
    increment(&SELF_TESTS, test as u32);
}

/// Writes the record of a VA space, or counts that there was no room.
#[inline(always)]
pub fn write_lifecycle(record: &Lifecycle) {
    if LIFECYCLES.output::<Lifecycle>(record, 0).is_err() {
        count_drop(DropReason::RingFull);
    }
}

/// Adds one to this CPU's element, and returns the sum.
#[inline(always)]
pub fn increment(array: &PerCpuArray<u64>, index: u32) -> u64 {
    let Some(element) = array.get_ptr_mut(index) else { return 0 };
    // SAFETY: a valid element of this CPU's array. Probes do not interrupt each other on one CPU.
    // One may interrupt the iterator, which shares only the counts of dropped events with them: at
    // worst, one of those is missing too.
    let element = unsafe { &mut *element };
    *element += 1;
    *element
}
