//! Mappings to memory that stays on another processor.
//!
//! Attaches to: kprobe `uvm_tools_record_map_remote(uvm_va_block_t *, uvm_push_t *, u32 processor,
//! u32 residency, u64 address, size_t bytes, UvmEventMapRemoteCause)`. The driver calls it only
//! while a tool, such as a profiler, has a queue or counters on the VA space. Without one nothing
//! is counted here, and no other function of the driver reports remote mappings.
//! Produces: remote mappings in `COUNTS`.

use abi::{Kind, Probe, Tally};
use aya_ebpf::{macros::kprobe, programs::ProbeContext};

use crate::{
    context::{Invocation, argument},
    counting::{self, Dropped, Known},
    va_block::va_space_of,
};

/// Largest cause; `UvmEventMapRemoteCauseEviction` is 5, and larger values count as this one.
const CAUSE_MAX: u32 = 6;

#[kprobe]
fn uvm_map_remote(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::MapRemote);
    counting::count_error(map_remote(&ctx));
    0
}

#[inline(always)]
fn map_remote(ctx: &ProbeContext) -> Result<(), Dropped> {
    let Some(va_space) = va_space_of(argument(ctx, 0)?)? else { return Ok(()) };
    let processor = argument::<u32>(ctx, 2)?;
    let amount = argument::<u64>(ctx, 5)?;
    let cause = argument::<u32>(ctx, 6)?;
    Known::at(va_space)?.add(processor, Kind::MapRemote, cause.min(CAUSE_MAX), Tally { events: 1, amount })
}
