//! First stage of the helper: the library that `LD_PRELOAD` loads into every program. In most
//! programs it does nothing but interpose `dlsym` and `dlopen`.
//!
//! It depends on no library and on no version of the C library, so that it loads wherever the
//! program does. With `UVMD_HELPER=record`, it loads the second stage (crate `hooks`) from its own
//! folder when it is initialised. It starts the second stage, and hands out hooks in place of the
//! driver's functions, only once the program finds the CUDA driver. Without the second stage, or
//! without `UVMD_HELPER=record`, nothing is replaced.
//!
//! * [`dlsym`]: function lookup, for programs that `dlopen` the driver
//! * [`dlopen`]: bindings of libraries that are opened with `RTLD_DEEPBIND`
//! * [`driver`]: the driver among the loaded libraries
//! * [`elf`]: symbols of loaded libraries
//! * [`libc`]: functions of the C library
//! * [`interposed`]: next definitions of interposed functions
//! * [`load`]: initialisation before the program begins; [`startup`]: state of the process at its
//!   start
//! * [`sandbox`]: system call filters that the program installs; [`permission`]: filters under
//!   which the second stage may run
//! * [`exports`]: the driver's functions under their own names, for programs that are linked to it
//! * [`registers`]: argument registers, saved around a call before the function
//! * [`allocator`]: managed memory for PyTorch
//! * [`second_stage`]: loads the second stage, and starts it, once

#![cfg_attr(not(test), no_std)]
#![cfg(target_arch = "x86_64")]

pub mod allocator;
pub mod dlopen;
pub mod dlsym;
mod driver;
mod elf;
pub mod exports;
mod interposed;
mod libc;
mod load;
mod permission;
mod registers;
pub mod sandbox;
mod second_stage;
mod startup;

#[cfg(feature = "injected")]
#[expect(unsafe_code, reason = "an undefined symbol: the build fails if a panic is reachable")]
mod panic {
    include!("../../panic.rs");
}
