//! Interposed `dlopen`, for libraries that the program opens with `RTLD_DEEPBIND`. Such a library
//! looks its symbols up in its dependencies first, and so is bound to the C library's `dlsym` and to
//! the driver, as if this library were not there. Once it is open, its calls of these are rebound to
//! this library, as are those of any other one.

#![expect(unsafe_code, reason = "a function of the C library's ABI")]

use core::{
    arch::naked_asm,
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::Ordering,
};

use crate::{
    dlsym::{dlsym, is_driver_name},
    elf::{self, Binding},
    exports,
    interposed::{DLOPEN, DLSYM, Interposed, jump_to_next},
    libc, sandbox, second_stage,
};

/// `RTLD_NOLOAD` and `RTLD_DEEPBIND`.
const RTLD_NOLOAD: c_int = 4;
const RTLD_DEEPBIND: c_int = 8;

/// `void *dlopen(const char *path, int flags)`. It jumps to the C library's `dlopen`, which
/// identifies the caller by the return address. Only with `RTLD_DEEPBIND` and a path that does not
/// depend on the caller, it is called instead.
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
        jump_to_next!(),
        RTLD_DEEPBIND = const RTLD_DEEPBIND,
        should_rebind = sym should_rebind,
        open_and_rebind = sym open_and_rebind,
        find = sym Interposed::find,
        NEXT = sym DLOPEN,
    )
}

/// Whether a library is opened by its path, without parts that the loader expands for the caller,
/// and the helper is enabled. A system call filter may forbid what rebinding takes.
unsafe extern "C" fn should_rebind(path: *const c_char, flags: c_int) -> bool {
    let is_plain = |path: &CStr| path.to_bytes().contains(&b'/') && !path.to_bytes().contains(&b'$');
    flags & RTLD_NOLOAD == 0
        && second_stage::is_loaded()
        && !sandbox::IS_FILTER_REQUESTED.load(Ordering::Relaxed)
        && libc::text(path).is_some_and(is_plain)
}

/// Opens a library, and changes its bindings.
unsafe extern "C" fn open_and_rebind(path: *const c_char, flags: c_int) -> *mut c_void {
    let Some(real) = libc::next_dlopen() else { return null_mut() };
    // SAFETY: the arguments are the program's.
    let handle = unsafe { real(path, flags) };
    if !handle.is_null() {
        rebind(handle);
    }
    handle
}

/// Rebinds calls of interposed functions, by a library and those that it is linked to. Only calls
/// that lead to what the interposed function would call: a library that stands between others and
/// the driver keeps its place, and so does another driver.
fn rebind(handle: *mut c_void) {
    let is_bound_to_driver = Cell::new(false);
    let scope = Scope::of(handle);
    let replacement = |name: &CStr, binding| {
        let (own, next) = match name.to_bytes() {
            b"dlsym" => (dlsym as *mut c_void, DLSYM.next()),
            b"dlopen" => (dlopen as *mut c_void, DLOPEN.next()),
            _ if is_driver_name(name) => (exports::address_of(name)?, exports::next(name)?),
            _ => return None,
        };
        let target = match binding {
            Binding::To(address) => address as *mut c_void,
            Binding::Lazy => scope.definition(name)?,
        };
        let is_replaced = target == next && !next.is_null();
        is_bound_to_driver.set(is_bound_to_driver.get() || (is_replaced && is_driver_name(name)));
        is_replaced.then_some(own as usize)
    };
    // SAFETY: the C library has just opened the handle, and the replacements have the types of the
    // functions of these names.
    unsafe { elf::rebind(handle, replacement) };
    if is_bound_to_driver.get() {
        exports::prepare();
    }
}

/// Definitions to which the lazy slots of a library lead: of `dlsym` and `dlopen`, and of the
/// exports in their order. Null without a definition. Found before the loader's list is locked.
struct Scope {
    dlsym: *mut c_void,
    dlopen: *mut c_void,
    exports: [*mut c_void; exports::COUNT],
}

impl Scope {
    fn of(handle: *mut c_void) -> Self {
        let definition = |name: &CStr| {
            // SAFETY: the handle is open, and the name ends with a zero.
            libc::dlsym().map_or(null_mut(), |real| unsafe { real(handle, name.as_ptr()) })
        };
        let mut scope =
            Self { dlsym: definition(c"dlsym"), dlopen: definition(c"dlopen"), exports: [null_mut(); exports::COUNT] };
        if exports::next(c"cuInit").is_some() {
            scope.exports.iter_mut().zip(exports::names()).for_each(|(to, name)| *to = definition(name));
        }
        libc::clear_error();
        scope
    }

    fn definition(&self, name: &CStr) -> Option<*mut c_void> {
        match name.to_bytes() {
            b"dlsym" => Some(self.dlsym),
            b"dlopen" => Some(self.dlopen),
            _ => self.exports.iter().zip(exports::names()).find(|(_, export)| *export == name).map(|(to, _)| *to),
        }
    }
}
