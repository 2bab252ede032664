//! The second stage, loaded once into a process that finds the CUDA driver.

#![expect(unsafe_code, reason = "loads a library and calls it")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU8, Ordering},
};

use crate::libc::Dlsym;

/// File of the second stage, beside that of the first.
const FILE: &CStr = c"libuvmd_helper_cuda.so";
/// Function of the second stage that starts it.
const START: &CStr = c"uvmd_helper_start";
/// A function that the driver has, and no other library.
const OF_DRIVER: &CStr = c"cuDriverGetVersion";
/// Longest path of the second stage.
const PATH_BYTES_MAX: usize = 4096;

type Replace = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Start = unsafe extern "C" fn(Dlsym, *mut c_void) -> Replace;

static STATE: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const LOADING: u8 = 1;
const DONE: u8 = 2;
/// `Replace`, or null if there is no second stage.
static REPLACE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What stands in place of a function of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// This: the hook, or the function itself if it has none.
    By(*mut c_void),
    /// Not known yet: another thread is loading the second stage. Waiting for it could be for ever,
    /// if this thread is within a `dlopen` of its own.
    Loading,
}

/// What stands in place of a function of the driver. Loads the second stage, if nobody has.
pub(crate) fn replace(dlsym: Dlsym, handle: *mut c_void, function: *mut c_void) -> Replaced {
    if STATE.load(Ordering::Acquire) == NONE {
        // SAFETY: the handle is the program's, and has answered.
        if unsafe { dlsym(handle, OF_DRIVER.as_ptr()) }.is_null() {
            forget_error(dlsym);
            return Replaced::By(function);
        }
        if STATE.compare_exchange(NONE, LOADING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if let Some(replace) = load(dlsym, handle) {
                REPLACE.store(replace as *mut c_void, Ordering::Release);
            }
            forget_error(dlsym);
            STATE.store(DONE, Ordering::Release);
        }
    }
    if STATE.load(Ordering::Acquire) != DONE {
        return Replaced::Loading;
    }
    let replace = REPLACE.load(Ordering::Acquire);
    if replace.is_null() {
        return Replaced::By(function);
    }
    // SAFETY: the second stage gave it out as this.
    let replace = unsafe { transmute::<*mut c_void, Replace>(replace) };
    // SAFETY: takes any address.
    Replaced::By(unsafe { replace(function) })
}

/// Forgets the error of a search of ours: the program's own succeeded, and `dlerror` must say so.
pub(crate) fn forget_error(dlsym: Dlsym) {
    type Dlerror = unsafe extern "C" fn() -> *const c_char;
    let dlerror = find(dlsym, c"dlerror");
    if !dlerror.is_null() {
        // SAFETY: the function of this name has this type.
        let dlerror = unsafe { transmute::<*mut c_void, Dlerror>(dlerror) };
        // SAFETY: takes no arguments.
        unsafe { dlerror() };
    }
}

/// Function of the process by name.
fn find(dlsym: Dlsym, name: &CStr) -> *mut c_void {
    // SAFETY: null is the process itself.
    unsafe { dlsym(null_mut(), name.as_ptr()) }
}

fn load(dlsym: Dlsym, driver: *mut c_void) -> Option<Replace> {
    const NOW_AND_FOR_EVER: c_int = 2 | 0x1000;
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    if !is_asked_for(dlsym) {
        return None;
    }
    let mut path = [0; PATH_BYTES_MAX];
    let path = beside_own_file(dlsym, &mut path)?;
    let dlopen = find(dlsym, c"dlopen");
    if dlopen.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this type.
    let dlopen = unsafe { transmute::<*mut c_void, Dlopen>(dlopen) };
    // SAFETY: a path that ends with a zero. The library runs nothing when it is loaded.
    let library = unsafe { dlopen(path.as_ptr(), NOW_AND_FOR_EVER) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a handle of dlopen.
    let start = unsafe { dlsym(library, START.as_ptr()) };
    if start.is_null() {
        return None;
    }
    // SAFETY: the second stage has it as this.
    let start = unsafe { transmute::<*mut c_void, Start>(start) };
    // SAFETY: the real dlsym, and a handle of the driver.
    Some(unsafe { start(dlsym, driver) })
}

/// Whether the environment has `UVMD_HELPER=record`.
fn is_asked_for(dlsym: Dlsym) -> bool {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
    let getenv = find(dlsym, c"getenv");
    if getenv.is_null() {
        return false;
    }
    // SAFETY: the function of this name has this type.
    let getenv = unsafe { transmute::<*mut c_void, Getenv>(getenv) };
    // SAFETY: a name that ends with a zero.
    let value = unsafe { getenv(c"UVMD_HELPER".as_ptr()) };
    // SAFETY: a text that ends with a zero, if it is there.
    !value.is_null() && unsafe { CStr::from_ptr(value) } == c"record"
}

/// Path of the second stage: this library's own, with another file.
fn beside_own_file(dlsym: Dlsym, path: &mut [u8; PATH_BYTES_MAX]) -> Option<&CStr> {
    /// `Dl_info`.
    #[repr(C)]
    struct Info {
        path: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut Info) -> c_int;
    let dladdr = find(dlsym, c"dladdr");
    if dladdr.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this type.
    let dladdr = unsafe { transmute::<*mut c_void, Dladdr>(dladdr) };
    let mut info = Info { path: core::ptr::null(), base: null_mut(), symbol: core::ptr::null(), address: null_mut() };
    // SAFETY: an address of this library, and room for the answer.
    let found = unsafe { dladdr((&raw const STATE).cast(), &raw mut info) };
    if found == 0 || info.path.is_null() {
        return None;
    }
    // SAFETY: a text that ends with a zero.
    let own = unsafe { CStr::from_ptr(info.path) }.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let file = own.iter().take(folder).chain(FILE.to_bytes_with_nul());
    if folder + FILE.count_bytes() >= PATH_BYTES_MAX {
        return None;
    }
    path.iter_mut().zip(file).for_each(|(to, from)| *to = *from);
    CStr::from_bytes_until_nul(path).ok()
}
