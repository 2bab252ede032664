//! Memory that is pushed out of a GPU: whose it was, and who needed it.
//!
//! Attaches to: kprobe `uvm_va_block_evict_chunks(uvm_va_block_t *, uvm_gpu_t *, uvm_gpu_chunk_t *, uvm_tracker_t *)`, called for each VA block
//! with memory in a 2 MiB piece that is pushed out, with something to copy or not.
//! Produces: evictions in `COUNTS`, of the VA space that loses memory and of the one for which it does, and block records. Of managed memory
//! only: of what HMM has at a GPU, the bytes copied out are counted, as any copies, but not the evictions.
//! Cost: less than a microsecond for each.

use abi::{CountKey, Kind, LostReason, Probe, RecordKind, Tally};
use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::kprobe, programs::ProbeContext};

use crate::{
    batch,
    blocks::{self, Happening},
    counting::{self, Known, Lost},
    maps::{PROCESSES, hit, layout, lose},
    memory::{self, Unreadable},
};

#[kprobe]
fn uvm_evict(ctx: ProbeContext) -> u32 {
    hit(Probe::Evict);
    counting::note(evict(&ctx));
    0
}

#[inline(always)]
fn evict(ctx: &ProbeContext) -> Result<(), Lost> {
    let block = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let Some(va_space) = va_space_of(block)? else { return Ok(()) };
    let gpu = memory::driver::<u32>(ctx.arg::<u64>(1).ok_or(Unreadable)?.wrapping_add(u64::from(layout!(gpu_id))))?;
    caused(gpu, 1, 0);
    let space = Known::at(va_space)?;
    space.add(gpu, Kind::Evicted, 0, Tally { events: 1, amount: 0 })?;
    if blocks::are_wanted() {
        let address = memory::driver(block.wrapping_add(u64::from(layout!(block_start))))?;
        blocks::record(&space, &Happening::of(address, gpu, RecordKind::Evicted));
    }
    Ok(())
}

/// The VA space of a block of managed memory; `None` for one that is dead, or of ordinary memory (HMM), which keeps its VA space elsewhere.
#[inline(always)]
pub fn va_space_of(block: u64) -> Result<Option<u64>, Unreadable> {
    match memory::driver::<u64>(block.wrapping_add(u64::from(layout!(block_range))))? {
        0 => Ok(None),
        range => Ok(Some(memory::driver(range)?)),
    }
}

/// Adds to what a VA space had pushed out for it: the one that the fault handler serves on this thread; or that of the current process, which
/// is moving or allocating memory. A tool has none: nobody's. Not inlined: the stack has 512 bytes for all.
#[inline(never)]
pub fn caused(gpu: u32, events: u64, amount: u64) -> u32 {
    let generation = if let Some(handler) = batch::handler() {
        // SAFETY: a value of the map, of this thread alone.
        unsafe { (*handler).generation }
    } else {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        // SAFETY: a value of the map, read at once.
        PROCESSES.get_ptr(tgid).map_or(0, |generation| unsafe { *generation })
    };
    if generation == 0 {
        return 0;
    }
    let key = CountKey { generation, gpu, kind: Kind::EvictionCaused as u16, detail: 0 };
    if counting::add(&key, Tally { events, amount }).is_err() {
        lose(LostReason::CountsFull);
    }
    1
}
