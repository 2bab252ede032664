//! Functions of the C library that this library interposes, and their next definitions: those that
//! programs would call without it.

use core::{
    ffi::{CStr, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::elf::{self, Next};

/// Interposed function. [`jump_to_next`] reads the first field.
#[repr(C)]
pub(crate) struct Interposed {
    /// Next definition; null until it is found.
    next: AtomicPtr<c_void>,
    name: &'static CStr,
}

/// `dlsym`.
pub(crate) static DLSYM: Interposed = Interposed::new(c"dlsym");
/// `dlopen`.
pub(crate) static DLOPEN: Interposed = Interposed::new(c"dlopen");

impl Interposed {
    const fn new(name: &'static CStr) -> Self {
        Self { next: AtomicPtr::new(null_mut()), name }
    }

    /// Definition by the next object after this library, or else by the first before it.
    pub(crate) fn definition(&self) -> Option<Next> {
        elf::next_definition((&raw const DLSYM) as usize, self.name)
    }

    /// Finds the next definition; null without one. Before glibc 2.34 it is in a library that may be
    /// loaded later.
    pub(crate) extern "C" fn find(&self) -> *mut c_void {
        let found = self.definition().map_or(null_mut(), Next::address);
        self.next.store(found, Ordering::Relaxed);
        found
    }

    /// Address of the next definition; null without one.
    pub(crate) fn next(&self) -> *mut c_void {
        let next = self.next.load(Ordering::Relaxed);
        if next.is_null() { self.find() } else { next }
    }
}

/// Assembly: jumps to the next definition of `NEXT`, an [`Interposed`] function of at most two
/// arguments; returns null without one. `find` is [`Interposed::find`].
macro_rules! jump_to_next {
    () => {
        "mov rax, [rip + {NEXT}]
         test rax, rax
         jnz 9f
         push rdi
         push rsi
         sub rsp, 8
         lea rdi, [rip + {NEXT}]
         call {find}
         add rsp, 8
         pop rsi
         pop rdi
         test rax, rax
         jnz 9f
         ret
         9:
         jmp rax"
    };
}
pub(crate) use jump_to_next;
