//! The probes on nvidia-uvm.
//!
//! * [`notify`]: faults and migrations, counted in the kernel
//! * [`lifecycle`]: which process a VA space belongs to, and when it is gone
//! * [`adopt`]: which VA spaces were there before the probes
//!
//! Nothing here changes what the driver does. An event that cannot be counted is counted as lost, with the reason.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod adopt;
mod lifecycle;
mod maps;
mod memory;
mod notify;

/// GPL-compatible, as the tracing helpers demand.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: the programs are built so that nothing in them panics, and the verifier rejects the endless loop otherwise.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
