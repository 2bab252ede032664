//! Evictions from a GPU: victim, evictor and cause.
//!
//! Attaches to: kprobe `uvm_va_block_evict_chunks(uvm_va_block_t *, uvm_gpu_t *, uvm_gpu_chunk_t *,
//! uvm_tracker_t *)`, called for each VA block with memory in an evicted root chunk of 2 MiB,
//! whether or not it has contents to copy; and kprobes and kretprobes
//! `uvm_pmm_gpu_pma_evict_pages_wrapper_entry` and `_range_wrapper_entry`, through which NVIDIA's
//! resource manager requests memory that it allocates.
//! Produces: evictions in `COUNTS`, for the victim's VA space and for the evictor's; both together
//! in `EVICTIONS`; and block records. These cover managed memory only. Of HMM's memory at a GPU,
//! the bytes copied out are counted, as for all copies, and the moves ([`crate::make_resident`]),
//! but not the evictions.
//! Cost: about a microsecond per event.

use abi::{
    CountKey, DropReason, Kind, Owner, Probe, RecordKind, Resource, Tally, Tenant,
    count::{EvictionCause, EvictionKey},
    quota::CALLS_CAPACITY,
};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    batch,
    blocks::{self, BlockEvent},
    calls::{self, is_own},
    context::{Invocation, argument},
    counting::{self, Account, Dropped, Known},
    maps::{EVICTIONS, count_drop, layout},
    memory, movement,
    quotas::{self, Caller},
    va_block::{CAUSE_API, CAUSE_FAULT_MAX, va_space_of},
};

#[kprobe]
fn uvm_evict(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Evict);
    counting::count_error(evict(&ctx));
    0
}

#[inline(always)]
fn evict(ctx: &ProbeContext) -> Result<(), Dropped> {
    let block = argument::<u64>(ctx, 0)?;
    let Some(va_space) = va_space_of(block)? else { return Ok(()) };
    let gpu = memory::driver::<u32>(argument::<u64>(ctx, 1)?.wrapping_add(u64::from(layout!(gpu_id))))?;
    let space = Known::at(va_space)?;
    evicted(&space.account(), gpu, 1, 0);
    space.add(gpu, Kind::Evicted, 0, Tally { events: 1, amount: 0 })?;
    if blocks::are_enabled() {
        let address = memory::driver(block.wrapping_add(u64::from(layout!(block_start))))?;
        blocks::record(&space, &BlockEvent::of(address, gpu, RecordKind::Evicted));
    }
    Ok(())
}

/// Threads in an allocation of unmanaged memory, while the driver searches for free memory.
#[map]
static ALLOCATIONS: HashMap<u64, Caller> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

/// Defines an entry and a return program for each function.
macro_rules! allocations {
    ($($entry:ident: $at_entry:ident, $done:ident: $at_return:ident;)+) => { $(
        #[kprobe]
        fn $entry(_ctx: ProbeContext) -> u32 {
            let _invocation = Invocation::of(Probe::$at_entry);
            begin();
            0
        }

        #[kretprobe]
        fn $done(_ctx: RetProbeContext) -> u32 {
            let _invocation = Invocation::of(Probe::$at_return);
            end();
            0
        }
    )+ };
}

#[inline(always)]
fn begin() {
    // An earlier call whose return was missed.
    end();
    if let Some(caller) = quotas::enter_call() {
        if ALLOCATIONS.insert(bpf_get_current_pid_tgid(), caller, 0).is_ok() {
            return;
        }
        quotas::leave_call(caller);
    }
    count_drop(DropReason::CountsFull);
}

/// Removes the thread's allocation, if any. There is none if the map was full.
#[inline(always)]
fn end() {
    let thread = bpf_get_current_pid_tgid();
    if let Some(caller) = ALLOCATIONS.get_ptr(thread) {
        // SAFETY: a value of the map, of this thread alone.
        let caller = unsafe { *caller };
        let _ = ALLOCATIONS.remove(thread);
        quotas::leave_call(caller);
    }
}

allocations! {
    uvm_alloc_pages: AllocPages, uvm_alloc_pages_done: AllocPagesReturn;
    uvm_alloc_range: AllocRange, uvm_alloc_range_done: AllocRangeReturn;
}

/// VA space for which this thread needs memory, and the cause.
#[inline(always)]
fn evictor() -> (Account, EvictionCause) {
    let thread = bpf_get_current_pid_tgid();
    if ALLOCATIONS.get_ptr(thread).is_some() {
        return (latest(thread), EvictionCause::DeviceAllocation);
    }
    if let Some(handler) = batch::handler() {
        // SAFETY: a value of the map, of this thread alone.
        return (unsafe { (*handler).account }, EvictionCause::Fault);
    }
    // The block that needs the memory is the best evidence.
    if let Some(under_way) = movement::under_way()
        && let Ok(space) = Known::at(under_way.va_space)
    {
        let cause = match under_way.cause {
            CAUSE_API.. if is_own(&space) => EvictionCause::Api,
            CAUSE_API.. => EvictionCause::Tool,
            // A non-replayable fault.
            ..=CAUSE_FAULT_MAX if under_way.gpu != 0 => EvictionCause::Fault,
            _ => EvictionCause::Other,
        };
        return (space.account(), cause);
    }
    // Page tables for migrated memory.
    if let Some(call) = calls::under_way() {
        return (call.account, if call.is_own == 0 { EvictionCause::Tool } else { EvictionCause::Api });
    }
    (latest(thread), EvictionCause::Other)
}

/// Latest VA space of a thread's process, which represents the process.
#[inline(always)]
fn latest(thread: u64) -> Account {
    let tgid = (thread >> 32) as u32;
    let Some(process) = quotas::usage(Tenant::process(tgid)) else { return Account::UNKNOWN };
    // SAFETY: a value of `USAGE`, which is memory even after its removal, and a number.
    let generation = unsafe { (*process).latest_generation };
    // SAFETY: a value of `USAGE`, which is memory even after its removal, and a number.
    let uid = unsafe { (*process).uid };
    Account { generation, owner: Owner { tgid, uid } }
}

/// Adds to the evictions of a VA space, and to those induced by another. Not inlined: the stack has
/// 512 bytes in all.
#[inline(never)]
pub fn evicted(victim: &Account, gpu: u32, events: u64, amount: u64) -> u32 {
    let (evictor, cause) = evictor();
    let added = Tally { events, amount };
    let key = EvictionKey { victim: victim.generation, evictor: evictor.generation, gpu, cause: cause as u32 };
    // Evictions of a victim with more evictors than its quota allows are counted without the
    // evictor, so that no evicted byte is dropped.
    let without_evictor = EvictionKey { evictor: 0, ..key };
    let mut is_full = add_pair(victim, &key, &added) != 0 && add_pair(victim, &without_evictor, &added) != 0;
    if evictor.generation != 0 {
        let key = CountKey { generation: evictor.generation, gpu, kind: Kind::InducedEviction as u16, detail: 0 };
        is_full |= counting::add(&evictor, &key, added).is_err();
    }
    if is_full {
        count_drop(DropReason::CountsFull);
    }
    0
}

/// Adds to a pair of victim and evictor; 0 if there was room.
#[inline(never)]
fn add_pair(victim: &Account, key: &EvictionKey, added: &Tally) -> u32 {
    let resource = if key.evictor == 0 { Resource::Evictions } else { Resource::EvictorPairs };
    u32::from(counting::add_to(&EVICTIONS, victim, resource, key, *added).is_err())
}
