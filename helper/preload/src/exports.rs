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
    driver,
    elf::{self, Next},
    libc, registers,
    stage::{self, Replaced},
};

/// Function that a program is linked to. The entry reads its first field.
#[repr(C)]
struct Export {
    /// What a call goes to; null until it is found in an object that is kept.
    target: AtomicPtr<c_void>,
    name: &'static CStr,
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

/// Turns in which a call lets other threads run while one of them starts the second stage, and the time
/// of each.
const TURNS_MAX: u32 = 20_000;
const TURN_NS: u64 = 50_000;

/// Target of the first calls of an export. Takes no lock that the loader holds while constructors and
/// destructors run: one of them may wait for this call.
extern "C" fn resolve(export: &'static Export) -> *mut c_void {
    prepare_early();
    find(export).unwrap_or(no_driver as *mut c_void)
}

/// Finds what a call of an export goes to. Only if that is of an object that stays loaded, it is remembered, and may
/// be a hook. Of one that is not relocated yet, nothing is called: only a weak reference leads there.
fn find(export: &Export) -> Option<*mut c_void> {
    let function = next(export.name).filter(|function| libc::is_loaded(*function))?;
    if !elf::object_of(function as usize).is_some_and(|object| driver::is_kept(&object)) {
        driver::note_call();
        return Some(function);
    }
    let found = replaced(function);
    export.target.store(found, Ordering::Release);
    Some(found)
}

/// Hook of a function, or the function itself without one. Waits for a thread that is starting the second
/// stage.
fn replaced(function: *mut c_void) -> *mut c_void {
    for _ in 0..TURNS_MAX {
        match stage::replace(function, driver::kept) {
            Replaced::By(found) => return found,
            Replaced::Starting => futex::sleep(TURN_NS),
        }
    }
    stage::give_up();
    function
}

/// Once the driver is loaded: keeps it loaded, and finds what all exports go to, so that no call has to. That
/// starts the second stage. Takes the loader's lock.
pub(crate) fn prepare() {
    if stage::is_at_load() && driver::keep() {
        find_all();
    }
}

/// As [`prepare`], for what a new process begins with: the driver, or a library that stands for it.
pub(crate) fn prepare_process() {
    let Some(first) = next(c"cuInit").and_then(|function| elf::object_of(function as usize)) else { return };
    driver::keep_stub(&first);
    driver::keep();
    find_all();
}

/// As [`prepare_process`], for a constructor that comes before the loader has called this library.
pub(crate) fn prepare_early() {
    if stage::load_before_constructors() {
        prepare_process();
    }
}

fn find_all() {
    for (export, _) in EXPORTS {
        find(export);
    }
}

/// An address of this library.
fn own() -> usize {
    (&raw const EXPORTS) as usize
}

/// Definition of a name that the program has without this library.
pub(crate) fn next(name: &CStr) -> Option<*mut c_void> {
    elf::next(own(), name).map(Next::address)
}

/// Export of a name.
pub(crate) fn named(name: &CStr) -> Option<*mut c_void> {
    let (_, export) = EXPORTS.iter().find(|(export, _)| export.name == name)?;
    Some(*export as *mut c_void)
}

macro_rules! exports {
    ($($name:ident)*) => {
        /// All of them, by name.
        static EXPORTS: &[(&Export, unsafe extern "C" fn())] = &[$((&exported::$name, $name)),*];

        #[expect(non_upper_case_globals, reason = "the names of the driver")]
        mod exported {
            use super::{AtomicPtr, Export, null_mut, text};

            $(
                pub(super) static $name: Export = Export {
                    target: AtomicPtr::new(null_mut()),
                    name: text(concat!(stringify!($name), "\0")),
                };
            )*
        }

        $(
            // expect cannot stand at a naked function.
            #[allow(non_snake_case, reason = "the name of the driver")]
            #[doc = concat!("`", stringify!($name), "` of cuda.h.\n\n# Safety\nAs the driver's.")]
            #[unsafe(naked)]
            #[cfg_attr(feature = "injected", unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    "mov rax, [rip + {EXPORT}]",
                    "test rax, rax",
                    "jnz 2f",
                    registers::save!(),
                    "lea rdi, [rip + {EXPORT}]",
                    "call {resolve}",
                    registers::restore!(),
                    "2:",
                    "jmp rax",
                    EXPORT = sym exported::$name,
                    resolve = sym resolve,
                )
            }
        )*
    };
}

include!("../../hooked.rs");
