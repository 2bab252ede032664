//! `dlclose` between the program and the C library's: the driver stays loaded.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::exports;

/// The C library's. Looked for once: a fork during a search leaves a lock of the loader held in the child.
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds it.
pub(crate) fn find() -> *mut c_void {
    let found = exports::next(c"dlclose").unwrap_or(null_mut());
    DLCLOSE.store(found, Ordering::Relaxed);
    found
}

/// `int dlclose(void *handle)`. It takes the lock of the loader, and so may what is done here before.
///
/// # Safety
/// As of `dlclose`.
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
    let mut real = DLCLOSE.load(Ordering::Relaxed);
    if real.is_null() {
        real = find();
    }
    if real.is_null() {
        return -1;
    }
    // SAFETY: of dlfcn.h.
    let real = unsafe { transmute::<*mut c_void, Dlclose>(real) };
    exports::prepare();
    // SAFETY: what the program passes.
    unsafe { real(handle) }
}
