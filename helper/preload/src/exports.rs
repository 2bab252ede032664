//! The driver's functions under their own names. A program that is linked to the driver finds these
//! first; each finds the definition that the program would have had without this library when it is first
//! called, and if that is the driver's, its hook.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use syscalls::futex;

use crate::{
    driver,
    elf::{self, Next, Object},
    epoch::Epoch,
    registers,
    stage::{self, Replaced},
};

/// Function that a program is linked to. The entry reads its first field.
#[repr(C)]
struct Export {
    /// What a call goes to; null until it is found.
    target: AtomicPtr<c_void>,
    name: &'static CStr,
    /// Whether the target stays, whatever the program unloads.
    is_permanent: AtomicBool,
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

/// Finds the function of an export, and remembers it until a library is closed. It takes no lock that the
/// loader holds while constructors and destructors run: one of them may wait for this call.
extern "C" fn resolve(export: &'static Export) -> *mut c_void {
    stage::load_before_constructors();
    let epoch = Epoch::now();
    let Some(function) = next(export.name) else { return no_driver as *mut c_void };
    let found = replaced(function);
    if let Some(epoch) = epoch {
        export.target.store(found, Ordering::SeqCst);
        if !epoch.lasts() {
            export.target.store(null_mut(), Ordering::SeqCst);
        }
    }
    found
}

/// Hook of a function, or the function itself without one. Waits for a thread that is starting the second
/// stage.
fn replaced(function: *mut c_void) -> *mut c_void {
    for _ in 0..TURNS_MAX {
        match stage::replace(function, driver::find) {
            Replaced::By(found) => return found,
            Replaced::Starting => futex::sleep(TURN_NS),
        }
    }
    stage::give_up();
    function
}

/// If the driver is already loaded, as in a program that is linked to it: keeps it loaded, starts the second
/// stage, and finds the functions of all exports, so that no call has to. Takes the loader's lock.
pub(crate) fn prepare() {
    if next(driver::FUNCTION).is_none() {
        return;
    }
    let Some(driver) = driver::find() else { return };
    driver::is_used(&driver);
    driver::pin();
    if driver::is_pinned() && is_next(&driver) {
        for (export, _) in EXPORTS {
            if let Some(function) = driver.symbol(export.name) {
                export.is_permanent.store(true, Ordering::Relaxed);
                export.target.store(replaced(function), Ordering::SeqCst);
            }
        }
    }
    replaced(null_mut());
}

/// Whether all exports lead to an object: none between this one and it has one of their names.
fn is_next(object: &Object) -> bool {
    let first = elf::after(own(), |other| {
        let has_export = EXPORTS.iter().any(|(export, _)| other.symbol(export.name).is_some());
        has_export.then_some(*other)
    });
    first.is_some_and(|first| first.path() == object.path())
}

/// Makes calls look up their functions again: a library is about to be closed.
pub(crate) fn forget() {
    for (export, _) in EXPORTS.iter().filter(|(export, _)| !export.is_permanent.load(Ordering::Relaxed)) {
        export.target.store(null_mut(), Ordering::SeqCst);
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
            use super::{AtomicBool, AtomicPtr, Export, null_mut, text};

            $(
                pub(super) static $name: Export = Export {
                    target: AtomicPtr::new(null_mut()),
                    name: text(concat!(stringify!($name), "\0")),
                    is_permanent: AtomicBool::new(false),
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
