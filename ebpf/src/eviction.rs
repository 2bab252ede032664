//! Memory that is pushed out of a GPU: whose it was, who needed it, and what for.
//!
//! Attaches to: kprobe `uvm_va_block_evict_chunks(uvm_va_block_t *, uvm_gpu_t *, uvm_gpu_chunk_t *, uvm_tracker_t *)`, called for each VA block
//! with memory in a 2 MiB piece that is pushed out, with something to copy or not; and kprobes and kretprobes
//! `uvm_pmm_gpu_pma_evict_pages_wrapper_entry` and `_range_wrapper_entry`, through which NVIDIA's resource manager asks for memory that it allocates.
//! Produces: evictions in `COUNTS`, of the VA space that loses memory and of the one for which it does; both together in `EVICTIONS`; and block
//! records. Of managed memory only: of what HMM has at a GPU, the bytes copied out are counted, as any copies, but not the evictions.
//! Cost: a microsecond or so for each.

use abi::{
    CountKey, Kind, LostReason, Probe, RecordKind, Tally,
    count::{EvictionCause, EvictionKey},
};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    batch,
    blocks::{self, Happening},
    calls::{self, is_own},
    counting::{self, Known, Lost},
    maps::{EVICTIONS, PROCESSES, hit, layout, lose},
    memory::{self, Unreadable},
    moves,
    notify::{CAUSE_API, CAUSE_FAULT_MAX},
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
    let space = Known::at(va_space)?;
    pushed_out(space.generation, gpu, 1, 0);
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

/// Threads that allocate memory which is not managed, as long as memory is looked for.
#[map]
static ALLOCATIONS: HashMap<u64, u32> = HashMap::with_max_entries(1024, 0);

/// An entry and a return for each.
macro_rules! allocations {
    ($($entry:ident: $at_entry:ident, $done:ident: $at_return:ident;)+) => { $(
        #[kprobe]
        fn $entry(_ctx: ProbeContext) -> u32 {
            hit(Probe::$at_entry);
            if ALLOCATIONS.insert(bpf_get_current_pid_tgid(), 1, 0).is_err() {
                lose(LostReason::CountsFull);
            }
            0
        }

        #[kretprobe]
        fn $done(_ctx: RetProbeContext) -> u32 {
            hit(Probe::$at_return);
            // There, unless there was no room.
            let _ = ALLOCATIONS.remove(bpf_get_current_pid_tgid());
            0
        }
    )+ };
}

allocations! {
    uvm_alloc_pages: AllocPages, uvm_alloc_pages_done: AllocPagesReturn;
    uvm_alloc_range: AllocRange, uvm_alloc_range_done: AllocRangeReturn;
}

/// For whom memory is being looked for on this thread, and what for. The generation is 0 where nobody is known.
#[inline(always)]
fn evictor() -> (u64, EvictionCause) {
    let thread = bpf_get_current_pid_tgid();
    if ALLOCATIONS.get_ptr(thread).is_some() {
        return (latest(thread), EvictionCause::DeviceAllocation);
    }
    if let Some(handler) = batch::handler() {
        // SAFETY: a value of the map, of this thread alone.
        return (unsafe { (*handler).generation }, EvictionCause::Fault);
    }
    // The block for which there is no room tells it best.
    if let Some(under_way) = moves::under_way()
        && let Ok(space) = Known::at(under_way.va_space)
    {
        let cause = match under_way.cause as u32 {
            CAUSE_API.. if is_own(&space) => EvictionCause::Api,
            CAUSE_API.. => EvictionCause::Tool,
            // One that is not replayable.
            ..=CAUSE_FAULT_MAX if under_way.gpu != 0 => EvictionCause::Fault,
            _ => EvictionCause::Other,
        };
        return (space.generation, cause);
    }
    // Page tables for what has been moved.
    if let Some(call) = calls::under_way() {
        return (call.generation, if call.is_own == 0 { EvictionCause::Tool } else { EvictionCause::Api });
    }
    (latest(thread), EvictionCause::Other)
}

/// The VA space that stands for the process of a thread: its latest. 0 if it has none.
#[inline(always)]
fn latest(thread: u64) -> u64 {
    let tgid = (thread >> 32) as u32;
    // SAFETY: a value of the map, read at once.
    PROCESSES.get_ptr(tgid).map_or(0, |generation| unsafe { *generation })
}

/// Adds to what a VA space lost, and to what another had pushed out for it. Not inlined: the stack has 512 bytes for all.
#[inline(never)]
pub fn pushed_out(victim: u64, gpu: u32, events: u64, amount: u64) -> u32 {
    let (evictor, cause) = evictor();
    let key = EvictionKey { victim, evictor, gpu, cause: cause as u32 };
    let mut full = counting::add_to(&EVICTIONS, &key, Tally { events, amount }).is_err();
    if evictor != 0 {
        let key = CountKey { generation: evictor, gpu, kind: Kind::EvictionCaused as u16, detail: 0 };
        full |= counting::add(&key, Tally { events, amount }).is_err();
    }
    if full {
        lose(LostReason::CountsFull);
    }
    0
}
