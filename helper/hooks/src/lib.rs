//! Second stage of the helper: hooks of the CUDA driver's functions, loaded by the first stage
//! (crate `preload`), and started in a process that uses CUDA.
//!
//! Each hook calls the driver's function and returns its result. A call that succeeded is recorded
//! in the [`call_ring`], which uvmd reads. Hooks add no lock, allocation or wait to those of the
//! driver's function; calls that cannot be recorded are counted.
//!
//! In the mode [`Act`](call_ring::Mode::Act), which uvmd sets, the helper's thread executes uvmd's
//! commands, and the moves of its plan that launches begin. Calls of the program that change
//! memory, advice or contexts wait for the part in progress.
//!
//! Nothing here panics: `scripts/build-helper` fails if a panic is reachable. The library is linked
//! to neither the standard library nor a C library, and looks up what it needs in the process.
//!
//! * [`hooks`]: the hooks
//! * [`recorder`]: the recorder, with a lane of the ring for each thread
//! * [`agent`]: the helper's thread, whose end [`watch`] detects; [`act`]: execution of commands,
//!   by [`driver_call`]s, in [`parts`]
//! * [`gate`]: exclusion between the program and that thread; [`stream`]: that thread's stream
//! * [`plan`]: a plan of moves, which launches begin and wait for
//! * [`permission`]: whether that thread may act
//! * [`contexts`]: contexts in which that thread calls the driver; [`references`]: of the program to
//!   contexts
//! * [`program_advice`]: the program's own advice
//! * [`blocks`]: memory that the program has allocated; [`variables`]: managed variables of its modules
//! * [`parameters`]: layout of functions' parameters
//! * [`driver`]: driver calls by the helper itself
//! * [`cuda`], [`program`], [`real`]: types, the program's memory, and the driver's functions
//! * [`first_stage`], [`headroom`], [`process`]: arguments from the first stage, memory left to the
//!   process, end of its first thread
//! * [`libc`], [`clock`], [`thread`], [`threads`], [`system`], [`lock`], [`sync`], [`shared`], [`mapping`]:
//!   threads, system calls and memory

#![cfg_attr(not(test), no_std)]

mod act;
mod agent;
mod blocks;
mod clock;
mod contexts;
mod cuda;
mod driver;
mod driver_call;
mod first_stage;
mod gate;
mod headroom;
mod hooks;
mod libc;
mod lock;
mod mapping;
mod parameters;
mod parts;
mod permission;
mod plan;
mod process;
mod program;
mod program_advice;
mod real;
mod recorder;
mod references;
mod shared;
mod stream;
mod sync;
mod system;
mod thread;
mod threads;
mod variables;
mod watch;

use core::{ffi::c_void, sync::atomic::AtomicBool};

use first_stage::FirstStage;

/// Replaces a function of the driver by its hook; other functions stay.
pub type Replace = extern "C" fn(*mut c_void) -> *mut c_void;

extern "C" fn replace(function: *mut c_void) -> *mut c_void {
    hooks::hook_for(function)
}

/// Starts the second stage. Called once, and again in a forked child whose fork interrupted the
/// first call. `dlsym` finds functions of the process, and of the driver by the handle `driver`.
/// `first_thread`: the thread with which the process began, or 0. `is_filter_requested`: whether
/// the program has asked for a system call filter.
///
/// # Safety
/// `dlsym` takes null and the handle, and `first_thread` is 0 or a result of `pthread_self`.
#[expect(unsafe_code, reason = "called by the first stage")]
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn uvmd_helper_start(
    dlsym: unsafe extern "C" fn(*mut c_void, *const core::ffi::c_char) -> *mut c_void,
    driver: *mut c_void,
    first_thread: usize,
    is_filter_requested: &'static AtomicBool,
) -> Replace {
    hooks::find(dlsym, driver);
    driver::find(dlsym, driver);
    recorder::start(FirstStage { dlsym, first_thread, is_filter_requested });
    replace
}

#[cfg(feature = "injected")]
#[expect(unsafe_code, reason = "an undefined symbol: the build fails if a panic is reachable")]
mod panic {
    include!("../../panic.rs");
}
