//! Interposed `dlsym`, between the program and the C library's `dlsym`.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

use crate::{
    driver,
    elf::{self, Object},
    exports,
    interposed::{DLSYM, Interposed, jump_to_next},
    libc::{self, Dlsym},
    second_stage::{self, Replacement},
};

/// `RTLD_NEXT`.
const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// `void *dlsym(void *handle, const char *name)`. With the handle of a library, the result may be a
/// hook. With `RTLD_DEFAULT` or `RTLD_NEXT`, it jumps to the C library's `dlsym`, which identifies
/// the caller by the return address. With `RTLD_DEFAULT`, a driver function that only this library
/// exports is reported as missing.
///
/// # Safety
/// As for the C library's `dlsym`.
#[unsafe(naked)]
#[cfg_attr(feature = "injected", unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        // RTLD_DEFAULT and RTLD_NEXT are 0 and -1.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "ja {dlsym_by_handle}",
        "mov rdx, [rsp]",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {is_sole_exporter}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "jnz {report_missing}",
        jump_to_next!(),
        dlsym_by_handle = sym dlsym_by_handle,
        is_sole_exporter = sym is_sole_exporter,
        report_missing = sym report_missing,
        find = sym Interposed::find,
        NEXT = sym DLSYM,
    )
}

/// Whether a search of the whole process by this caller would find a name only in this library.
unsafe extern "C" fn is_sole_exporter(handle: *mut c_void, name: *const c_char, caller: usize) -> bool {
    if !handle.is_null() {
        return false;
    }
    let Some(name) = libc::text(name) else { return false };
    prepare(handle, name);
    if !is_driver_name(name) || exports::address_of(name).is_none() {
        return false;
    }
    // A library may find the name among its own dependencies.
    exports::next(name).is_none() || (elf::is_in_program(caller) && !is_globally_defined(name))
}

/// Whether a search by this handle has found an export of this library, and would find the name in
/// no other.
fn is_sole_exporter_by_handle(handle: *mut c_void, found: *mut c_void, name: &CStr) -> bool {
    const LAZY_IF_LOADED: c_int = 1 | 4;
    if exports::address_of(name) != Some(found) {
        return false;
    }
    exports::next(name).is_none() || (libc::dlopen(c"", LAZY_IF_LOADED) == Some(handle) && !is_globally_defined(name))
}

/// Whether any other library in the global scope defines a name.
fn is_globally_defined(name: &CStr) -> bool {
    let Some(real) = libc::dlsym() else { return false };
    // SAFETY: takes any name. As the caller is this library, it searches the objects after it.
    let is_defined_after = !unsafe { real(RTLD_NEXT, name.as_ptr()) }.is_null();
    if !is_defined_after {
        libc::clear_error();
    }
    is_defined_after || elf::is_defined_before((&raw const DLSYM) as usize, name)
}

/// `dlsym` of a name that only this library exports: reports it as missing.
unsafe extern "C" fn report_missing(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the name is the program's. The call sets the error that `dlerror` returns.
    libc::dlsym().map_or(null_mut(), |real| unsafe { real(RTLD_NEXT, name) })
}

/// `dlsym` with the handle of a library: the hook, if the result is a function of the driver.
unsafe extern "C" fn dlsym_by_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(real) = libc::dlsym() else { return null_mut() };
    // SAFETY: the arguments are the program's.
    let found = unsafe { real(handle, name) };
    if found.is_null() {
        return found;
    }
    // SAFETY: `dlsym` has read the name as text, and found it.
    let name = unsafe { CStr::from_ptr(name) };
    prepare(handle, name);
    if !is_driver_name(name) {
        return found;
    }
    if is_sole_exporter_by_handle(handle, found, name) {
        let name = name.as_ptr();
        // SAFETY: `report_missing` ignores the handle, and `dlsym` has read the name as text.
        return unsafe { report_missing(handle, name) };
    }
    exports::prepare_early();
    match second_stage::replace(found, || driver_of(real, handle).filter(driver::pin_by_handle)) {
        Replacement::Function(function) => function,
        // The program may look the function up only once: the export resolves the hook when it is
        // called.
        Replacement::Starting => exports::address_of(name).unwrap_or(found),
    }
}

/// Pins the driver, if a function of this name is the driver's or may call it. A library that is
/// not itself linked to the driver is detected once it has called an export. Takes no lock in a
/// program without CUDA.
fn prepare(handle: *mut c_void, name: &CStr) {
    // SAFETY: the handle is null, or `dlsym` has found the name by it.
    let links_to_driver = || unsafe { elf::links_to(handle, driver::NAME) };
    if driver::is_unpinned() && (is_driver_name(name) || driver::has_unpinned_call() || links_to_driver()) {
        exports::prepare();
    }
}

/// Driver that the handle of a library leads to, if any.
fn driver_of(real: Dlsym, handle: *mut c_void) -> Option<Object> {
    // SAFETY: the handle is the program's, and `dlsym` has accepted it.
    let function = unsafe { real(handle, driver::FUNCTION.as_ptr()) };
    if function.is_null() {
        libc::clear_error();
        return None;
    }
    driver::find().or_else(|| elf::object_containing(function as usize))
}

/// Whether a name has the form of the driver's functions: `cuInit`, but not `cudaMalloc`.
pub(crate) fn is_driver_name(name: &CStr) -> bool {
    matches!(name.to_bytes(), [b'c', b'u', third, ..] if third.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_names_have_a_capital_letter_after_cu() {
        assert!([c"cuInit", c"cuGetProcAddress_v2"].into_iter().all(is_driver_name));
        assert!(![c"cudaMalloc", c"cu", c"curl_easy_init", c"", c"Cu"].into_iter().any(is_driver_name));
    }
}
