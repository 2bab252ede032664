//! The C library's own `dlsym`.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    ffi::{c_char, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::elf;

/// Type of `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`, or that of another library that `LD_PRELOAD` names behind this one.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds it. Before glibc 2.34 it is in a library that may be loaded later on.
pub(crate) extern "C" fn find_dlsym() -> *mut c_void {
    let found = elf::find_behind((&raw const DLSYM) as usize, c"dlsym");
    DLSYM.store(found, Ordering::Relaxed);
    found
}

/// The C library's `dlsym`.
pub(crate) fn dlsym() -> Option<Dlsym> {
    let mut address = DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        address = find_dlsym();
    }
    // SAFETY: the function of this name has this type.
    (!address.is_null()).then(|| unsafe { transmute::<*mut c_void, Dlsym>(address) })
}

/// Before the program begins, and has threads.
#[cfg(feature = "injected")]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        find_dlsym();
    }
    at_load
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dlsym_of_the_c_library_is_found_in_its_tables() {
        assert!(elf::find_behind(0, c"dlsym").is_null(), "no library is behind one that is not loaded");
        let own = (&raw const DLSYM) as usize;
        // SAFETY: null is the process itself.
        assert_eq!(elf::find_behind(own, c"dlsym"), unsafe { ::libc::dlsym(null_mut(), c"dlsym".as_ptr()) });
        assert!(elf::find_behind(own, c"no_such_function").is_null());
    }
}
