//! Threads created by the C library: the driver needs its thread-local data, which a thread made by
//! a bare system call lacks.

#![expect(unsafe_code, reason = "calls functions found by name")]

use core::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};

use crate::{
    libc::{Dlsym, symbol},
    system::SignalMask,
};

/// Stack of the helper's thread. Calls of the lab's CUDA use some 10 KiB, and the rest is never
/// touched; NVIDIA's CUDA is not measured. A program that locks all its memory (`mlockall`) pays
/// for the whole stack, of 8 MiB by default.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// `pthread_attr_t`, which has 56 bytes on x86-64.
type Attributes = [u64; 16];
/// Main function of a thread.
type Run = extern "C" fn(*mut c_void) -> *mut c_void;

/// Functions of the C library for threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    create: unsafe extern "C" fn(*mut usize, *const Attributes, Run, *mut c_void) -> c_int,
    init_attributes: unsafe extern "C" fn(*mut Attributes) -> c_int,
    set_stack_bytes: unsafe extern "C" fn(*mut Attributes, usize) -> c_int,
    set_detached: unsafe extern "C" fn(*mut Attributes, c_int) -> c_int,
    destroy_attributes: unsafe extern "C" fn(*mut Attributes) -> c_int,
    at_exit: unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int,
}

impl Threads {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(dlsym: Dlsym) -> Option<Self> {
        Some(Self {
            // SAFETY: the type is that of pthread.h.
            create: unsafe { symbol(dlsym, c"pthread_create") }?,
            // SAFETY: the type is that of pthread.h.
            init_attributes: unsafe { symbol(dlsym, c"pthread_attr_init") }?,
            // SAFETY: the type is that of pthread.h.
            set_stack_bytes: unsafe { symbol(dlsym, c"pthread_attr_setstacksize") }?,
            // SAFETY: the type is that of pthread.h.
            set_detached: unsafe { symbol(dlsym, c"pthread_attr_setdetachstate") }?,
            // SAFETY: the type is that of pthread.h.
            destroy_attributes: unsafe { symbol(dlsym, c"pthread_attr_destroy") }?,
            // SAFETY: the type is that of the C++ ABI, which C libraries implement.
            at_exit: unsafe { symbol(dlsym, c"__cxa_atexit") }?,
        })
    }

    /// Registers a function for the process's exit. It runs before those that were registered
    /// earlier.
    pub(crate) fn at_exit(&self, function: extern "C" fn(*mut c_void), argument: *mut c_void) -> bool {
        // SAFETY: the function stays loaded, since the library is linked with -z nodelete.
        (unsafe { (self.at_exit)(function, argument, null_mut()) }) == 0
    }

    /// Starts a detached thread with all signals blocked; false if that fails.
    pub(crate) fn start(&self, run: Run, argument: *mut c_void) -> bool {
        let mut attributes: Attributes = [0; 16];
        // SAFETY: the address is writable, with room for the attributes.
        if unsafe { (self.init_attributes)(&raw mut attributes) } != 0 {
            return false;
        }
        let is_started = self.set_attributes(&mut attributes) && self.create_thread(&attributes, run, argument);
        // SAFETY: the attributes were initialised.
        unsafe { (self.destroy_attributes)(&raw mut attributes) };
        is_started
    }

    fn set_attributes(&self, attributes: &mut Attributes) -> bool {
        const DETACHED: c_int = 1;
        // SAFETY: changes attributes that were initialised.
        let has_stack = unsafe { (self.set_stack_bytes)(&raw mut *attributes, STACK_BYTES) } == 0;
        // SAFETY: changes attributes that were initialised.
        has_stack && unsafe { (self.set_detached)(&raw mut *attributes, DETACHED) } == 0
    }

    fn create_thread(&self, attributes: &Attributes, run: Run, argument: *mut c_void) -> bool {
        // A thread inherits the signal mask of its creator: from its first instruction on, no
        // signal handler of the program runs in it.
        let Ok(former) = SignalMask::ALL.set() else { return false };
        let mut thread = 0;
        // SAFETY: room for the thread, attributes that were initialised, and a function that stays
        // loaded.
        let result = unsafe { (self.create)(&raw mut thread, &raw const *attributes, run, argument) };
        let _ = former.set();
        result == 0
    }
}
