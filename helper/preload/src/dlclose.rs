//! `dlclose` between the program and the C library's: what the exports have found may be unloaded.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
};

use crate::{driver, epoch, exports};

/// `int dlclose(void *handle)`. It takes the lock of the loader, and so may what is done here before.
///
/// # Safety
/// As of `dlclose`.
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
    let Some(real) = exports::next(c"dlclose") else { return -1 };
    // SAFETY: of dlfcn.h.
    let real = unsafe { transmute::<*mut c_void, Dlclose>(real) };
    driver::pin();
    epoch::closing_begins();
    exports::forget();
    // SAFETY: what the program passes.
    let result = unsafe { real(handle) };
    epoch::closing_ends();
    result
}
