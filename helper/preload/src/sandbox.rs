//! System call filters (seccomp) that the program installs through the C library. Under such a
//! filter, even a query for filters may kill the process.
//!
//! The interposed `prctl` and `syscall` set a flag on a request for a filter, and jump to the C
//! library's functions. A `vfork` child that requests a filter before it executes another program
//! sets the flag in its parent's memory, which makes the helper inactive in the parent, too.

#![expect(unsafe_code, reason = "functions of the C library's ABI")]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_int, c_long, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use crate::{
    elf::{self, Next},
    registers,
};

/// Whether the program has requested a filter, or the state that a filter requires. Inherited by
/// its children.
pub(crate) static IS_FILTER_REQUESTED: AtomicBool = AtomicBool::new(false);

static PRCTL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `PR_SET_SECCOMP` and `PR_SET_NO_NEW_PRIVS` of `linux/prctl.h`: a filter, and the loss of the
/// right to gain privileges, which an unprivileged filter requires.
const SET_SECCOMP: c_int = 22;
const SET_NO_NEW_PRIVILEGES: c_int = 38;
/// Numbers of x86-64.
const NUMBER_PRCTL: c_long = 157;
const NUMBER_SECCOMP: c_long = 317;

/// Finds the C library's functions, normally before their first call.
pub(crate) fn find() {
    for (name, function) in [(c"prctl", &PRCTL), (c"syscall", &SYSCALL)] {
        find_one(name, function);
    }
}

fn find_one(name: &CStr, function: &AtomicPtr<c_void>) -> *mut c_void {
    let found = elf::next_definition((&raw const IS_FILTER_REQUESTED) as usize, name)
        .map_or(missing_function as *mut c_void, Next::address);
    function.store(found, Ordering::Relaxed);
    found
}

/// Substitute for a function that no object defines, so that nothing calls it.
extern "C" fn missing_function() -> c_long {
    -1
}

extern "C" fn resolve_prctl(option: c_int) -> *mut c_void {
    if matches!(option, SET_SECCOMP | SET_NO_NEW_PRIVILEGES) {
        IS_FILTER_REQUESTED.store(true, Ordering::Relaxed);
    }
    found(c"prctl", &PRCTL)
}

extern "C" fn resolve_syscall(number: c_long, option: c_int) -> *mut c_void {
    if number == NUMBER_SECCOMP || (number == NUMBER_PRCTL && matches!(option, SET_SECCOMP | SET_NO_NEW_PRIVILEGES)) {
        IS_FILTER_REQUESTED.store(true, Ordering::Relaxed);
    }
    found(c"syscall", &SYSCALL)
}

fn found(name: &CStr, function: &AtomicPtr<c_void>) -> *mut c_void {
    let found = function.load(Ordering::Relaxed);
    if found.is_null() { find_one(name, function) } else { found }
}

macro_rules! interposed {
    ($name:ident, $resolve:ident) => {
        #[doc = concat!("`", stringify!($name), "` of the C library.\n\n# Safety\nAs the C library's.")]
        #[unsafe(naked)]
        #[cfg_attr(feature = "injected", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                registers::save!(),
                "call {resolve}",
                registers::restore!(),
                "mov r11, rax",
                // Number of vector arguments.
                "xor eax, eax",
                "jmp r11",
                resolve = sym $resolve,
            )
        }
    };
}

interposed!(prctl, resolve_prctl);
interposed!(syscall, resolve_syscall);

#[cfg(test)]
mod tests {
    use super::*;

    type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;

    fn requested_by(call: impl FnOnce()) -> bool {
        IS_FILTER_REQUESTED.store(false, Ordering::Relaxed);
        call();
        IS_FILTER_REQUESTED.swap(false, Ordering::Relaxed)
    }

    /// A single test, as the flag is the whole process's.
    #[test]
    fn filter_requests_are_recorded_and_all_calls_are_made() {
        const GETPID: c_long = 39;
        const GET_SECCOMP: c_int = 21;
        find();
        // SAFETY: the type is that of unistd.h, with all arguments.
        let syscall = unsafe { core::mem::transmute::<*const (), Syscall>(syscall as *const ()) };
        // SAFETY: the type is that of sys/prctl.h, with all arguments.
        let prctl = unsafe { core::mem::transmute::<*const (), Prctl>(prctl as *const ()) };
        let (no_filter, nobody) = (usize::MAX, usize::MAX);
        // SAFETY: takes no arguments.
        assert!(!requested_by(|| assert_eq!(unsafe { syscall(GETPID, 1, 2, 3, 4, 5, 6) }, std::process::id().into())));
        // SAFETY: takes no arguments.
        assert!(!requested_by(|| assert_eq!(unsafe { prctl(GET_SECCOMP, 0, 0, 0, 0) }, 0)));
        // SAFETY: the kernel refuses an unknown mode.
        assert!(requested_by(|| assert_eq!(unsafe { prctl(SET_SECCOMP, no_filter, 0, 0, 0) }, -1)));
        // SAFETY: the kernel refuses an unknown operation.
        assert!(requested_by(|| assert_eq!(unsafe { syscall(NUMBER_SECCOMP, nobody, 0, 0, 0, 0, 0) }, -1)));
        let option = usize::try_from(SET_SECCOMP).unwrap();
        // SAFETY: the kernel refuses an unknown mode.
        assert!(requested_by(|| assert_eq!(unsafe { syscall(NUMBER_PRCTL, option, no_filter, 0, 0, 0, 0) }, -1)));
    }
}
