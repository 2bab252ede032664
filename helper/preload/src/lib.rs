//! First stage of the helper: what `LD_PRELOAD` loads into every program, and nothing in most of
//! them but a function between the program and `dlsym`.
//!
//! It depends on no library and on no version of the C library, so that it loads wherever the
//! program does. With `UVMD_HELPER=record` it loads the second stage (crate `hooks`) as it is loaded
//! itself, from the folder in which it lies. Only where a program finds the CUDA driver does it start it,
//! and give out hooks in place of the driver's functions. Without the second stage, or without
//! `UVMD_HELPER=record`, all stays as it is.
//!
//! * [`dlsym`]: functions by name, as programs with `dlopen` find the driver's
//! * [`driver`]: the driver among the loaded libraries
//! * [`elf`]: symbols of loaded libraries
//! * [`libc`]: functions of the C library, and its own `dlsym`
//! * [`load`]: what is done before the program begins; [`origin`]: what the process began with
//! * [`sandbox`]: filters of system calls that the program installs; [`permission`]: those under which
//!   nothing is loaded
//! * [`exports`]: the driver's functions under their own names, for programs that are linked to it
//! * [`registers`]: arguments of a function, saved while another one is called first
//! * [`allocator`]: managed memory for PyTorch
//! * [`stage`]: loads the second stage, and starts it, once

#![cfg_attr(not(test), no_std)]
#![cfg(target_arch = "x86_64")]

pub mod allocator;
pub mod dlsym;
mod driver;
mod elf;
pub mod exports;
mod libc;
mod load;
mod origin;
mod permission;
mod registers;
pub mod sandbox;
mod stage;

#[cfg(feature = "injected")]
#[expect(unsafe_code, reason = "a symbol that nobody has: no panic is reachable, or the build says so")]
mod panic {
    include!("../../panic.rs");
}
