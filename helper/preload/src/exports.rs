//! The driver's functions under their own names. A program that is linked to the driver finds these
//! first; each finds the hook, or the driver's function, when it is first called.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::{
    arch::{asm, naked_asm},
    ffi::{CStr, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    libc::{self, Dlsym},
    stage::{self, Replaced},
};

/// Function that a program is linked to.
struct Export {
    name: &'static CStr,
    target: &'static AtomicPtr<c_void>,
}

/// A name that ends with a zero.
const fn text(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Answers `CUDA_ERROR_STUB_LIBRARY`: there is no driver.
extern "C" fn no_driver() -> c_int {
    34
}

/// Times that a call lets other threads run while one of them loads the second stage.
const TURNS_MAX: u32 = 100_000;

/// Finds the function behind an export, and remembers it.
extern "C" fn resolve(export: &'static Export) -> *mut c_void {
    let Some((dlsym, driver, function)) = find(export.name) else {
        if let Some(dlsym) = libc::dlsym() {
            libc::forget_error(dlsym);
        }
        return no_driver as *mut c_void;
    };
    for _ in 0..TURNS_MAX {
        match stage::replace(dlsym, driver, function) {
            Replaced::By(found) => {
                export.target.store(found, Ordering::Relaxed);
                return found;
            }
            Replaced::Loading => give_way(),
        }
    }
    // Within a dlopen for which the loading waits. The next call looks again.
    function
}

/// Lets another thread run.
fn give_way() {
    const SCHED_YIELD: usize = 24;
    // SAFETY: a system call without arguments, which changes these registers alone.
    unsafe {
        asm!("syscall", inlateout("rax") SCHED_YIELD => _, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
}

/// The real `dlsym`, the driver, and its function of a name.
pub(crate) fn find(name: &CStr) -> Option<(Dlsym, *mut c_void, *mut c_void)> {
    const LAZY_AND_LOADED_ALREADY: c_int = 1 | 4;
    let dlsym = libc::dlsym()?;
    let driver = libc::dlopen(dlsym, c"libcuda.so.1", LAZY_AND_LOADED_ALREADY)?;
    // SAFETY: a handle of dlopen.
    let function = unsafe { dlsym(driver, name.as_ptr()) };
    (!function.is_null()).then_some((dlsym, driver, function))
}

/// Export of a name.
pub(crate) fn named(name: &CStr) -> Option<*mut c_void> {
    let (_, export) = EXPORTS.iter().find(|(exported, _)| *exported == name)?;
    Some(*export as *mut c_void)
}

macro_rules! exports {
    ($($name:ident)*) => {
        /// All of them, by name.
        static EXPORTS: &[(&CStr, unsafe extern "C" fn())] = &[$((text(concat!(stringify!($name), "\0")), $name)),*];

        $(
            // expect cannot stand at a naked function.
            #[allow(non_snake_case, reason = "the name of the driver")]
            #[doc = concat!("`", stringify!($name), "` of cuda.h.\n\n# Safety\nAs the driver's.")]
            #[unsafe(naked)]
            #[cfg_attr(feature = "injected", unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                static TARGET: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                static EXPORT: Export = Export {
                    name: text(concat!(stringify!($name), "\0")),
                    target: &TARGET,
                };
                naked_asm!(
                    "mov rax, [rip + {TARGET}]",
                    "test rax, rax",
                    "jnz 2f",
                    // All registers of arguments; none of these functions has a floating one.
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "sub rsp, 8",
                    "lea rdi, [rip + {EXPORT}]",
                    "call {resolve}",
                    "add rsp, 8",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "2:",
                    "jmp rax",
                    TARGET = sym TARGET,
                    EXPORT = sym EXPORT,
                    resolve = sym resolve,
                )
            }
        )*
    };
}

include!("../../hooked.rs");
