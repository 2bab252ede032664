//! Functions of the C library, found by name in the process, so that the helper requires no version
//! of it.

#![expect(unsafe_code, reason = "calls functions found by name")]

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem::transmute_copy,
    ptr::null_mut,
};

/// Function of the first stage with the type of `dlsym`. It finds functions of the process, or of
/// the driver by its handle, without a lock that the loader holds while constructors and
/// destructors run.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

#[cfg(test)]
unsafe extern "C" {
    /// `dlsym` of the C library that the tests are linked to.
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Functions of the C library for thread-local data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Libc {
    get: unsafe extern "C" fn(c_uint) -> *mut c_void,
    set: unsafe extern "C" fn(c_uint, *const c_void) -> c_int,
    create: unsafe extern "C" fn(*mut c_uint, Option<Destructor>) -> c_int,
}

/// Address of a function by name, in the process or in the library of `handle`; null if not found.
pub(crate) fn find(dlsym: Dlsym, handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero; null is the process itself.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Function of the process by name; `None` if not found.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(crate) unsafe fn symbol<F: Copy>(dlsym: Dlsym, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
    let function = find(dlsym, null_mut(), name);
    // SAFETY: the caller guarantees that `F` is the function's type.
    (!function.is_null()).then(|| unsafe { transmute_copy(&function) })
}

impl Libc {
    /// Finds the functions; `None` if one is not found, as in a process without a thread library.
    pub(crate) fn find(dlsym: Dlsym) -> Option<Self> {
        Some(Self {
            // SAFETY: the type is that of pthread.h.
            get: unsafe { symbol(dlsym, c"pthread_getspecific") }?,
            // SAFETY: the type is that of pthread.h.
            set: unsafe { symbol(dlsym, c"pthread_setspecific") }?,
            // SAFETY: the type is that of pthread.h.
            create: unsafe { symbol(dlsym, c"pthread_key_create") }?,
        })
    }

    /// Creates a thread-local slot with a destructor.
    pub(crate) fn thread_key(&self, destructor: Destructor) -> Option<ThreadKey> {
        let mut key = 0;
        // SAFETY: writes a key.
        let result = unsafe { (self.create)(&raw mut key, Some(destructor)) };
        (result == 0).then_some(ThreadKey { libc: *self, key })
    }
}

/// Thread-local slot for a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadKey {
    libc: Libc,
    key: c_uint,
}

impl ThreadKey {
    /// Value of the calling thread; 0 initially.
    pub(crate) fn get(&self) -> usize {
        // SAFETY: the key is never deleted.
        (unsafe { (self.libc.get)(self.key) }) as usize
    }

    /// Sets the value; false if memory for it is lacking.
    pub(crate) fn set(&self, value: usize) -> bool {
        // SAFETY: the key is never deleted, and the value is never dereferenced.
        (unsafe { (self.libc.set)(self.key, value as *const c_void) }) == 0
    }
}
