//! The CUDA driver among the loaded objects.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use crate::{
    elf::{self, Object},
    libc,
};

/// Name of the driver.
const NAME: &CStr = c"libcuda.so.1";
/// A function that the driver has, and no other library.
pub(crate) const FUNCTION: &CStr = c"cuDriverGetVersion";

/// Path of a driver that hooks call and that the program may unload; null without one.
static UNPINNED: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static IS_PINNED: AtomicBool = AtomicBool::new(false);

/// The driver, if it is loaded.
pub(crate) fn find() -> Option<Object> {
    elf::named(NAME, FUNCTION)
}

/// The driver's own function of a name, past the hooks.
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    find()?.symbol(name)
}

/// Notes that hooks call a driver: the next [`pin`], which comes before it can be unloaded, keeps it loaded.
pub(crate) fn is_used(driver: &Object) {
    if !is_pinned() {
        UNPINNED.store(driver.path().cast_mut(), Ordering::Release);
    }
}

/// Keeps the driver in use loaded. Takes the loader's lock.
pub(crate) fn pin() {
    const LAZY_IF_LOADED: c_int = 1 | 4;
    if UNPINNED.load(Ordering::Relaxed).is_null() {
        return;
    }
    if let Some(path) = libc::text(UNPINNED.swap(null_mut(), Ordering::AcqRel)) {
        if libc::dlopen(path, LAZY_IF_LOADED).is_some() {
            IS_PINNED.store(true, Ordering::Release);
        }
        libc::forget_error();
    }
}

/// Whether the driver stays loaded.
pub(crate) fn is_pinned() -> bool {
    IS_PINNED.load(Ordering::Acquire)
}
