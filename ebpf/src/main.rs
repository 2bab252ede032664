//! Probes on nvidia-uvm.
//!
//! * [`perf_events`]: faults and migrations, counted in the kernel
//! * [`context`]: invocations of the probes, and arguments of the driver's functions
//! * [`batch`]: batches of GPU faults, replays, and runs of the fault handler
//! * [`make_resident`]: blocks made resident at a processor, and memory populated without a copy
//! * [`movement`] and [`va_block`]: data of blocks that several of these share
//! * [`residency`], [`split`] and [`pages`]: resident pages of a block at each GPU
//! * [`sites`]: instructions that raise CPU faults
//! * [`eviction`]: evictions, by victim and evictor
//! * [`thrashing`] and [`remote`]: throttling, and remote mappings of memory that several
//!   processors use
//! * [`calls`]: prefetch and advice calls
//! * [`fatal_error`]: the error after which the driver refuses every new program
//! * [`blocks`]: block records
//! * [`lifecycle`]: creation and end of VA spaces, and their processes
//! * [`adopt`]: VA spaces older than the probes
//! * [`quotas`]: limits of map entries per process and user
//!
//! The probes do not change what the driver does. An event that cannot be counted is dropped, with
//! a reason.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod adopt;
mod batch;
mod blocks;
mod calls;
mod context;
mod counting;
mod eviction;
mod fatal_error;
mod lifecycle;
mod make_resident;
mod maps;
mod memory;
mod movement;
mod pages;
mod perf_events;
mod quotas;
mod remote;
mod residency;
mod sites;
mod split;
mod thrashing;
mod va_block;

/// Licence compatible with the GPL, as the tracing helpers require.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Panic handler, never reached: the programs are built without panics, and the verifier rejects
/// the endless loop otherwise.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
