//! The driver's global fatal error, after which it refuses every new program.
//!
//! Attaches to: kprobe `uvm_global_set_fatal_error_impl(NV_STATUS)`, which every fatal error of the
//! driver goes through, with or without a line in the kernel's log.
//! Produces: `FATAL_ERROR`.
//! Cost: none until there is an error.

use abi::{DropReason, Probe};
use aya_ebpf::{
    macros::{kprobe, map},
    maps::Array,
    programs::ProbeContext,
};

use crate::{
    context::{Invocation, argument},
    counting::{self, Dropped},
};

/// First status since the probes were attached, as the driver keeps its first one; 0 without any.
#[map]
static FATAL_ERROR: Array<u32> = Array::with_max_entries(1, 0);

#[kprobe]
fn uvm_fatal_error(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::FatalError);
    counting::count_error(note(&ctx));
    0
}

#[inline(always)]
fn note(ctx: &ProbeContext) -> Result<(), Dropped> {
    let status = argument::<u32>(ctx, 0)?;
    let first = FATAL_ERROR.get_ptr_mut(0).ok_or(Dropped(DropReason::CountsFull))?;
    // SAFETY: an element of an array, which is never removed. Of two errors at one time either is
    // the first.
    let first = unsafe { &mut *first };
    if *first == 0 {
        *first = status;
    }
    Ok(())
}
