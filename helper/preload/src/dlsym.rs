//! `dlsym` between the program and the C library's.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_char, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    elf, exports,
    stage::{self, Replaced},
};

/// `dlsym`'s type.
pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`, or that of another library that `LD_PRELOAD` names behind this one.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds the real `dlsym`. Before glibc 2.34 it is in a library that may be loaded later on.
extern "C" fn find_real() -> *mut c_void {
    let found = elf::find_behind((&raw const REAL) as usize, c"dlsym");
    REAL.store(found, Ordering::Relaxed);
    found
}

/// The real `dlsym`.
pub(crate) fn real() -> Option<Dlsym> {
    let mut address = REAL.load(Ordering::Relaxed);
    if address.is_null() {
        address = find_real();
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
        find_real();
    }
    at_load
};

/// `void *dlsym(void *handle, const char *name)`. With the handle of a library, the answer may be a
/// hook. Else this jumps to the C library's, which tells by the return address who asks.
///
/// # Safety
/// As of `dlsym`.
#[unsafe(naked)]
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        // RTLD_DEFAULT and RTLD_NEXT are 0 and -1.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "ja {of_handle}",
        "mov rax, [rip + {REAL}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find_real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "ret",
        "2:",
        "jmp rax",
        of_handle = sym of_handle,
        find_real = sym find_real,
        REAL = sym REAL,
    )
}

/// `dlsym` with the handle of a library.
unsafe extern "C" fn of_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(real) = real() else { return null_mut() };
    // SAFETY: what the program passes.
    let found = unsafe { real(handle, name) };
    if found.is_null() {
        return found;
    }
    // SAFETY: dlsym has read it as a text, and found it.
    let name = unsafe { CStr::from_ptr(name) };
    if !is_of_driver(name) {
        return found;
    }
    match stage::replace(real, handle, found) {
        Replaced::By(function) => function,
        // The program asks but once: what it gets finds the hook when it is called.
        Replaced::Loading => exports::named(name).unwrap_or(found),
    }
}

/// Whether a name is like those of the driver's functions: `cuInit`, but not `cudaMalloc`.
fn is_of_driver(name: &CStr) -> bool {
    matches!(name.to_bytes(), [b'c', b'u', third, ..] if third.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_driver_are_those_with_a_capital_behind_cu() {
        assert!([c"cuInit", c"cuGetProcAddress_v2"].into_iter().all(is_of_driver));
        assert!(![c"cudaMalloc", c"cu", c"curl_easy_init", c"", c"Cu"].into_iter().any(is_of_driver));
    }

    #[test]
    fn dlsym_of_the_c_library_is_found_in_its_tables() {
        let found = elf::find_behind(0, c"dlsym");
        assert!(found.is_null(), "no library is behind one that is not loaded");
        let own = (&raw const REAL) as usize;
        let real = elf::find_behind(own, c"dlsym");
        // SAFETY: null is the process itself.
        assert_eq!(real, unsafe { libc::dlsym(null_mut(), c"dlsym".as_ptr()) });
        assert!(elf::find_behind(own, c"no_such_function").is_null());
    }
}
