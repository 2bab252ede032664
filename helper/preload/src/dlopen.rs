//! Interposed `dlopen`, for libraries that the program opens with `RTLD_DEEPBIND`. Such a library
//! looks its symbols up in its dependencies first, and so is bound to the C library's `dlsym` and to
//! the driver, as if this library were not there. Once it is open, its bindings are changed to those
//! of any other library.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    arch::naked_asm,
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

use crate::{
    dlsym::{dlsym, is_driver_name},
    driver,
    elf::{self, Binding},
    exports, libc, second_stage,
};

/// `RTLD_DEEPBIND`.
const RTLD_DEEPBIND: c_int = 8;
/// Files of the C library with `dlsym` and `dlopen`; the second one before glibc 2.34.
const C_LIBRARIES: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];

/// `void *dlopen(const char *path, int flags)`. It jumps to the C library's `dlopen`, which
/// identifies the caller by the return address. Only a path with `RTLD_DEEPBIND`, for which the
/// caller does not matter, is opened by a call.
///
/// # Safety
/// As for the C library's `dlopen`.
#[must_use]
#[unsafe(naked)]
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "test esi, {RTLD_DEEPBIND}",
        "jz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {should_rebind}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "jnz {open_and_rebind}",
        "2:",
        "mov rax, [rip + {DLOPEN}]",
        "test rax, rax",
        "jnz 3f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find_dlopen}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 3f",
        "ret",
        "3:",
        "jmp rax",
        RTLD_DEEPBIND = const RTLD_DEEPBIND,
        should_rebind = sym should_rebind,
        open_and_rebind = sym open_and_rebind,
        find_dlopen = sym libc::find_dlopen,
        DLOPEN = sym libc::DLOPEN,
    )
}

/// Whether a library is opened by its path, and the helper is enabled.
unsafe extern "C" fn should_rebind(path: *const c_char) -> bool {
    second_stage::is_loaded() && libc::text(path).is_some_and(|path| path.to_bytes().contains(&b'/'))
}

/// Opens a library, and changes its bindings.
unsafe extern "C" fn open_and_rebind(path: *const c_char, flags: c_int) -> *mut c_void {
    let Some(real) = libc::next_dlopen() else { return null_mut() };
    // SAFETY: the arguments are the program's.
    let handle = unsafe { real(path, flags) };
    if handle.is_null() {
        return handle;
    }
    let is_linked_to_driver = Cell::new(false);
    let replacement = |name: &CStr, binding| {
        let own = replacement(name, binding)?;
        is_linked_to_driver.set(is_linked_to_driver.get() || is_driver_name(name));
        Some(own as usize)
    };
    let is_relocated = |base| libc::reports_relocation() && libc::is_relocated(base);
    // SAFETY: the C library has just opened the handle, and the replacements have the types of the
    // functions of these names.
    unsafe { elf::rebind(handle, is_relocated, replacement) };
    if is_linked_to_driver.get() {
        exports::prepare();
    }
    handle
}

/// This library's function in place of one of the C library or of the driver.
fn replacement(name: &CStr, binding: Binding) -> Option<*mut c_void> {
    let own = match name.to_bytes() {
        b"dlsym" => dlsym as *mut c_void,
        b"dlopen" => dlopen as *mut c_void,
        _ if is_driver_name(name) => exports::address_of(name)?,
        _ => return None,
    };
    let is_replaced = |address| {
        let Some(object) = elf::object_containing(address) else { return false };
        if is_driver_name(name) {
            object.symbol(driver::FUNCTION).is_some()
        } else {
            C_LIBRARIES.into_iter().any(|library| object.is_named(library))
        }
    };
    // A library that stands between others and the driver keeps its place.
    let replaces = match binding {
        Binding::Lazy => true,
        Binding::To(address) => is_replaced(address),
    };
    replaces.then_some(own)
}
