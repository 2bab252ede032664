//! The driver's functions under their own names. A program that is linked to the driver finds these
//! first; each finds the definition that the program would have had without this library when it is first
//! called, and if that is the driver's, its hook.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use syscalls::futex;

use crate::{
    elf::{self, Next},
    libc::{self, Dlsym},
    registers,
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

/// Turns in which a call lets other threads run while one of them loads the second stage, and the time
/// of each.
const TURNS_MAX: u32 = 20_000;
const TURN_NS: u64 = 50_000;

/// Finds the function of an export, and remembers it unless a driver that is loaded later changes it.
extern "C" fn resolve(export: &'static Export) -> *mut c_void {
    let next = next(export.name);
    let Some((dlsym, driver)) = driver() else {
        if let Some(dlsym) = libc::dlsym() {
            libc::forget_error(dlsym);
        }
        return next.unwrap_or(no_driver as *mut c_void);
    };
    // SAFETY: a handle of dlopen.
    let function = next.unwrap_or_else(|| unsafe { dlsym(driver, export.name.as_ptr()) });
    if function.is_null() {
        libc::forget_error(dlsym);
        return no_driver as *mut c_void;
    }
    for _ in 0..TURNS_MAX {
        match stage::replace(dlsym, driver, function) {
            Replaced::By(found) => {
                export.target.store(found, Ordering::Relaxed);
                return found;
            }
            Replaced::Loading => futex::sleep(TURN_NS),
        }
    }
    // Within a dlopen for which the loading waits. The next call looks again.
    function
}

/// Loads the second stage if the driver is loaded, and has it start.
pub(crate) fn prepare() {
    if next(stage::OF_DRIVER).is_none() {
        return;
    }
    if let Some((dlsym, driver)) = driver() {
        stage::replace(dlsym, driver, null_mut());
    }
}

/// Definition of a name that the program has without this library.
pub(crate) fn next(name: &CStr) -> Option<*mut c_void> {
    elf::next((&raw const EXPORTS) as usize, name).map(Next::address)
}

/// The real `dlsym`, and the driver if it is loaded.
fn driver() -> Option<(Dlsym, *mut c_void)> {
    const LAZY_AND_LOADED_ALREADY: c_int = 1 | 4;
    let dlsym = libc::dlsym()?;
    Some((dlsym, libc::dlopen(dlsym, c"libcuda.so.1", LAZY_AND_LOADED_ALREADY)?))
}

/// The driver's own function of a name, past the hooks.
pub(crate) fn of_driver(name: &CStr) -> Option<*mut c_void> {
    let (dlsym, driver) = driver()?;
    // SAFETY: a handle of dlopen.
    let function = unsafe { dlsym(driver, name.as_ptr()) };
    (!function.is_null()).then_some(function)
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
                    registers::save!(),
                    "lea rdi, [rip + {EXPORT}]",
                    "call {resolve}",
                    registers::restore!(),
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
