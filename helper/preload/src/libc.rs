//! Functions of the C library, found by name in the tables of the loaded objects.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::{transmute, transmute_copy},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    elf,
    interposed::{DLOPEN, DLSYM},
};

/// Type of `dlsym`.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Type of `dlopen`.
pub(crate) type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// `_dl_find_object` of glibc 2.35 and later; null elsewhere.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `dlsym` of the C library, or of another library that `LD_PRELOAD` names after this one.
pub(crate) fn dlsym() -> Option<Dlsym> {
    let next = DLSYM.next();
    // SAFETY: the function of this name has this type.
    (!next.is_null()).then(|| unsafe { transmute::<*mut c_void, Dlsym>(next) })
}

/// `dlopen`, likewise.
pub(crate) fn next_dlopen() -> Option<Dlopen> {
    let next = DLOPEN.next();
    // SAFETY: the function of this name has this type.
    (!next.is_null()).then(|| unsafe { transmute::<*mut c_void, Dlopen>(next) })
}

/// Function of the process by name, found without a lock that the loader holds while constructors
/// and destructors run.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
unsafe fn named<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
    let function = elf::first_definition((&raw const DLSYM) as usize, name)?;
    // SAFETY: the caller guarantees that `F` is the function's type.
    Some(unsafe { transmute_copy(&function) })
}

/// Opens a library; `None` if that fails. Only for libraries that are already loaded, or run no
/// code when loaded. Takes the loader's lock, which a driver call must not do.
pub(crate) fn dlopen(path: &CStr, flags: c_int) -> Option<*mut c_void> {
    let dlopen = next_dlopen()?;
    // SAFETY: the path ends with a zero.
    let library = unsafe { dlopen(path.as_ptr(), flags) };
    (!library.is_null()).then_some(library)
}

/// Finds `_dl_find_object`.
pub(crate) fn find_dl_find_object() {
    let found = elf::first_definition((&raw const FIND_OBJECT) as usize, c"_dl_find_object").unwrap_or(null_mut());
    FIND_OBJECT.store(found, Ordering::Relaxed);
}

/// Whether the object of an address is relocated, so that its `dlopen` can no longer fail;
/// constructors may not have run. Takes no lock. True if the C library does not report it.
pub(crate) fn is_relocated(address: *mut c_void) -> bool {
    type Search = unsafe extern "C" fn(*mut c_void, *mut [usize; RESULT_WORDS]) -> c_int;
    /// `struct dl_find_object` has 12 words.
    const RESULT_WORDS: usize = 32;
    let search = FIND_OBJECT.load(Ordering::Relaxed);
    if search.is_null() {
        return true;
    }
    // SAFETY: the type is that of dlfcn.h.
    let search = unsafe { transmute::<*mut c_void, Search>(search) };
    let mut result = [0; RESULT_WORDS];
    // SAFETY: takes any address, and the result has room.
    unsafe { search(address, &raw mut result) == 0 }
}

/// Clears the error of a search by the helper, so that `dlerror` reports none to the program.
pub(crate) fn clear_error() {
    type Dlerror = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the type is that of dlfcn.h.
    if let Some(dlerror) = unsafe { named::<Dlerror>(c"dlerror") } {
        // SAFETY: takes no arguments.
        unsafe { dlerror() };
    }
}

/// The calling thread, as a `pthread_t`.
pub(crate) fn current_thread() -> Option<usize> {
    type Own = unsafe extern "C" fn() -> usize;
    // SAFETY: the type is that of pthread.h.
    let own: Own = unsafe { named(c"pthread_self") }?;
    // SAFETY: takes no arguments.
    Some(unsafe { own() })
}

/// Value of an environment variable.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    // SAFETY: the type is that of stdlib.h.
    let getenv: Getenv = unsafe { named(c"getenv") }?;
    // SAFETY: the name ends with a zero.
    let value = unsafe { getenv(name.as_ptr()) };
    text(value)
}

/// Text from the C library or the loader; `None` if null.
pub(crate) fn text(text: *const c_char) -> Option<&'static CStr> {
    // SAFETY: it is not null, and ends with a zero.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Next;

    #[test]
    fn definition_before_the_own_object_is_found_if_none_follows() {
        // SAFETY: null is the process itself.
        let dlsym = unsafe { ::libc::dlsym(null_mut(), c"dlsym".as_ptr()) };
        assert_eq!(elf::next_definition(0, c"dlsym"), Some(Next::Before(dlsym)), "an object that is not loaded");
        assert_eq!(elf::next_definition(dlsym as usize, c"dlsym"), None, "the only definition is its own");
    }

    #[test]
    fn dlsym_of_the_c_library_is_found_in_its_tables() {
        let own = (&raw const DLSYM) as usize;
        // SAFETY: null is the process itself.
        let dlsym = unsafe { ::libc::dlsym(null_mut(), c"dlsym".as_ptr()) };
        assert_eq!(elf::next_definition(own, c"dlsym"), Some(Next::After(dlsym)));
        assert_eq!(elf::next_definition(own, c"no_such_function"), None);
    }
}
