//! Functions of the C library, found by name: its own `dlsym`, and by that the others.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::{transmute, transmute_copy},
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

/// Function of the process by name.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
unsafe fn named<F: Copy>(dlsym: Dlsym, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
    // SAFETY: null is the process itself.
    let function = unsafe { dlsym(null_mut(), name.as_ptr()) };
    // SAFETY: the caller's promise.
    (!function.is_null()).then(|| unsafe { transmute_copy(&function) })
}

/// Opens a library; `None` if that fails. For libraries that run nothing when they are loaded, or
/// are loaded already.
pub(crate) fn dlopen(dlsym: Dlsym, path: &CStr, flags: c_int) -> Option<*mut c_void> {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: of dlfcn.h.
    let dlopen: Dlopen = unsafe { named(dlsym, c"dlopen") }?;
    // SAFETY: a path that ends with a zero.
    let library = unsafe { dlopen(path.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

/// Forgets the error of a search of ours: the program's own succeeded, and `dlerror` must say so.
pub(crate) fn forget_error(dlsym: Dlsym) {
    type Dlerror = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: of dlfcn.h.
    if let Some(dlerror) = unsafe { named::<Dlerror>(dlsym, c"dlerror") } {
        // SAFETY: takes no arguments.
        unsafe { dlerror() };
    }
}

/// Variable of the environment.
pub(crate) fn environment(dlsym: Dlsym, name: &CStr) -> Option<&'static CStr> {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    // SAFETY: of stdlib.h.
    let getenv: Getenv = unsafe { named(dlsym, c"getenv") }?;
    // SAFETY: a name that ends with a zero.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: a text that ends with a zero, if it is there.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Path of the library that an address is in, as it was loaded.
pub(crate) fn library_of(dlsym: Dlsym, address: *const c_void) -> Option<&'static CStr> {
    /// `Dl_info`.
    #[repr(C)]
    struct Info {
        path: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut Info) -> c_int;
    // SAFETY: of dlfcn.h.
    let dladdr: Dladdr = unsafe { named(dlsym, c"dladdr") }?;
    let mut info = Info { path: core::ptr::null(), base: null_mut(), symbol: core::ptr::null(), address: null_mut() };
    // SAFETY: room for the answer.
    let found = unsafe { dladdr(address, &raw mut info) };
    // SAFETY: a text that ends with a zero.
    (found != 0 && !info.path.is_null()).then(|| unsafe { CStr::from_ptr(info.path) })
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
