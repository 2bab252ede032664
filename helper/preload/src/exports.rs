//! The driver's functions under their own names. A program that is linked to the driver is bound to
//! these instead. At its first call, each resolves the definition to which the program would be
//! bound without this library, or its hook if that is the driver's.

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
    second_stage::{self, Replacement},
};

/// Exported function. Its assembly entry reads the first field.
#[repr(C)]
struct Export {
    /// Target of calls; null until it is resolved to a pinned object.
    target: AtomicPtr<c_void>,
    name: &'static CStr,
}

/// Name as a C string. `name` ends with a NUL byte.
const fn text(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Returns `CUDA_ERROR_STUB_LIBRARY`, without a driver.
extern "C" fn no_driver() -> c_int {
    34
}

/// Maximum number of sleeps of a call while another thread starts the second stage, and the
/// duration of each: 1 s in all.
const START_POLLS_MAX: u32 = 20_000;
const START_POLL_NS: u64 = 50_000;

/// Resolves the target at the first calls of an export. Takes no lock that the loader holds while
/// constructors and destructors run, as one of those may wait for this call.
extern "C" fn resolve(export: &'static Export) -> *mut c_void {
    prepare_early();
    resolve_target(export).unwrap_or(no_driver as *mut c_void)
}

/// Resolves the target of an export. It is cached, and may be a hook, only if it is in a pinned
/// object. `None` for an object that is not relocated yet: only a weak reference leads there.
fn resolve_target(export: &Export) -> Option<*mut c_void> {
    let function = next(export.name).filter(|function| libc::is_relocated(*function))?;
    if !elf::object_containing(function as usize).is_some_and(|object| driver::is_pinned(&object)) {
        driver::record_unpinned_call();
        return Some(function);
    }
    let found = wait_for_hook(function);
    export.target.store(found, Ordering::Release);
    Some(found)
}

/// Hook of a function, or the function itself without one. Waits while another thread starts the
/// second stage.
fn wait_for_hook(function: *mut c_void) -> *mut c_void {
    for _ in 0..START_POLLS_MAX {
        match second_stage::replace(function, driver::pinned) {
            Replacement::Function(found) => return found,
            Replacement::Starting => futex::sleep(START_POLL_NS),
        }
    }
    second_stage::abandon_start();
    function
}

/// Pins the driver if it is loaded, and resolves all exports, so that no call has to. This starts
/// the second stage, and takes the loader's lock.
pub(crate) fn prepare() {
    if second_stage::is_initialised() && driver::pin() {
        resolve_all();
    }
}

/// Like [`prepare`], for the object that exports the driver's functions in a new process: the
/// driver, or a library in its place.
pub(crate) fn prepare_process() {
    let Some(first) = next(c"cuInit").and_then(|function| elf::object_containing(function as usize)) else { return };
    driver::pin_stub(&first);
    driver::pin();
    resolve_all();
}

/// Like [`prepare_process`], for a constructor that runs before the loader has initialised this
/// library.
pub(crate) fn prepare_early() {
    if second_stage::load_before_constructors() {
        prepare_process();
    }
}

fn resolve_all() {
    for (export, _) in EXPORTS {
        resolve_target(export);
    }
}

/// An address in this library.
fn own_address() -> usize {
    (&raw const EXPORTS) as usize
}

/// Definition of a name to which the program would be bound without this library.
pub(crate) fn next(name: &CStr) -> Option<*mut c_void> {
    elf::next_definition(own_address(), name).map(Next::address)
}

/// Number of exports.
pub(crate) const COUNT: usize = EXPORTS.len();

/// Names of all exports.
pub(crate) fn names() -> impl Iterator<Item = &'static CStr> {
    EXPORTS.iter().map(|(export, _)| export.name)
}

/// Address of the exported function of this name.
pub(crate) fn address_of(name: &CStr) -> Option<*mut c_void> {
    let (_, function) = EXPORTS.iter().find(|(export, _)| export.name == name)?;
    Some(*function as *mut c_void)
}

macro_rules! exports {
    ($($name:ident)*) => {
        /// All exports, with their functions.
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
            // A naked function does not accept `expect`.
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
