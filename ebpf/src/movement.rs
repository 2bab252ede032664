//! Blocks being made resident at a processor, by thread.

use abi::{RecordKind, quota::CALLS_CAPACITY};
use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::HashMap};

use crate::quotas::Caller;

/// Block being made resident at a processor.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Move {
    /// VA space; 0 for ordinary memory (HMM), which is not tracked.
    pub va_space: u64,
    /// Generation of the VA space; 0 if unknown.
    pub generation: u64,
    pub block: u64,
    /// Destination; 0 for the host.
    pub gpu: u32,
    /// `uvm_make_resident_cause_t`
    pub cause: u32,
    pub region: u32,
    pub is_duplicate: u32,
    pub mask: u64,
    /// Bytes requested that were not resident there.
    pub missing: u64,
    /// Bytes copied there.
    pub received: u64,
    pub copies: Copies,
    pub caller: Caller,
}

/// Consecutive copies of one kind, not yet in a record.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Copies {
    pub address: u64,
    pub bytes: u64,
    pub kind: RecordKind,
    pub gpu: u32,
    pub cause: u32,
    /// Number of copies; 0 if there are none.
    pub events: u32,
    pub slots: u32,
    pub padding: u32,
}

/// Empty set of copies.
pub const NO_COPIES: Copies =
    Copies { address: 0, bytes: 0, kind: RecordKind::CopyHtod, gpu: 0, cause: 0, events: 0, slots: 0, padding: 0 };

/// Moves by thread: see [`place`].
#[map]
pub static MOVES: HashMap<u64, Move> = HashMap::with_max_entries(2 * CALLS_CAPACITY, 0);

/// Key of a thread's move. While a block is made resident, others may be evicted for it; during an
/// eviction, nothing else moves. Two places per thread are therefore enough.
#[inline(always)]
pub fn place(is_eviction: bool) -> u64 {
    bpf_get_current_pid_tgid() << 1 | u64::from(is_eviction)
}

/// Move in progress on this thread, except for evictions on its behalf.
#[inline(always)]
pub fn under_way() -> Option<&'static Move> {
    // SAFETY: a value of the map, of this thread alone.
    MOVES.get_ptr(place(false)).map(|under_way| unsafe { &*under_way })
}
