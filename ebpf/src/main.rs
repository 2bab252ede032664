//! The probes on nvidia-uvm.
//!
//! * [`notify`]: faults and migrations, counted in the kernel
//! * [`batch`]: batches of GPU faults, replays, and runs of the fault handler
//! * [`moves`]: blocks that are made resident somewhere, and memory that becomes resident with nothing to copy
//! * [`residency`], [`split`] and [`pages`]: how much of a block is at which GPU
//! * [`eviction`]: whose memory is pushed out, and for whom
//! * [`thrashing`] and [`remote`]: what the driver does about memory that several processors want
//! * [`calls`]: what processes ask of the driver
//! * [`blocks`]: records of where it happened
//! * [`lifecycle`]: which process a VA space belongs to, and when it is gone
//! * [`adopt`]: which VA spaces were there before the probes
//! * [`quotas`]: how much of the maps one process and one user may hold
//!
//! Nothing here changes what the driver does. An event that cannot be counted is counted as lost, with the reason.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod adopt;
mod batch;
mod blocks;
mod calls;
mod counting;
mod eviction;
mod lifecycle;
mod maps;
mod memory;
mod moves;
mod notify;
mod pages;
mod quotas;
mod remote;
mod residency;
mod split;
mod thrashing;

/// GPL-compatible, as the tracing helpers demand.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: the programs are built so that nothing in them panics, and the verifier rejects the endless loop otherwise.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
