//! The second stage, loaded once into a process that finds the CUDA driver.

#![expect(unsafe_code, reason = "loads a library and calls it")]

use core::{
    ffi::{CStr, c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering},
};

use crate::{
    libc::{self, Dlsym},
    origin, permission, sandbox,
};

/// File of the second stage, beside that of the first.
const FILE: &CStr = c"libuvmd_helper_cuda.so";
/// Function of the second stage that starts it.
const START: &CStr = c"uvmd_helper_start";
/// Name of the driver.
const DRIVER: &CStr = c"libcuda.so.1";
/// A function that the driver has, and no other library.
pub(crate) const OF_DRIVER: &CStr = c"cuDriverGetVersion";
/// Variable of the environment that switches the helper on, and its value.
const VARIABLE: &CStr = c"UVMD_HELPER";
/// See [`VARIABLE`].
const RECORD: &CStr = c"record";
/// Longest path of the second stage.
const PATH_BYTES_MAX: usize = 4096;

type Replace = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Start = unsafe extern "C" fn(Dlsym, *mut c_void, usize, &'static AtomicBool) -> Replace;

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
            libc::forget_error(dlsym);
            return Replaced::By(function);
        }
        if STATE.compare_exchange(NONE, LOADING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if let Some(replace) = load(dlsym, handle) {
                REPLACE.store(replace as *mut c_void, Ordering::Release);
            }
            libc::forget_error(dlsym);
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

fn load(dlsym: Dlsym, driver: *mut c_void) -> Option<Replace> {
    const NOW_AND_FOR_EVER: c_int = 2 | 0x1000;
    const LAZY_IF_LOADED: c_int = 1 | 4;
    if libc::environment(dlsym, VARIABLE) != Some(RECORD) || !permission::is_given(dlsym) {
        return None;
    }
    let mut path = [0; PATH_BYTES_MAX];
    let path = beside(libc::library_of(dlsym, (&raw const STATE).cast())?, &mut path)?;
    let library = libc::dlopen(dlsym, path, NOW_AND_FOR_EVER)?;
    // SAFETY: a handle of dlopen.
    let start = unsafe { dlsym(library, START.as_ptr()) };
    if start.is_null() {
        return None;
    }
    // A handle of the driver alone: that of the program may be of the whole process, in which this
    // library's own names come first. It is not closed, so that the hooks' functions stay.
    let driver = libc::dlopen(dlsym, DRIVER, LAZY_IF_LOADED).unwrap_or(driver);
    // SAFETY: the second stage has it as this.
    let start = unsafe { transmute::<*mut c_void, Start>(start) };
    // SAFETY: the real dlsym, a handle of the driver, and a thread.
    Some(unsafe { start(dlsym, driver, origin::first_thread(), &sandbox::IS_REQUESTED) })
}

/// Path of the second stage: that of the first, with another file.
fn beside<'a>(first: &CStr, path: &'a mut [u8; PATH_BYTES_MAX]) -> Option<&'a CStr> {
    let first = first.to_bytes();
    let folder = first.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    for (at, byte) in first.iter().take(folder).chain(FILE.to_bytes_with_nul()).enumerate() {
        *path.get_mut(at)? = *byte;
    }
    CStr::from_bytes_until_nul(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_stage_lies_beside_the_first() {
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(beside(c"/a/b/libuvmd_helper.so", &mut path), Some(c"/a/b/libuvmd_helper_cuda.so"));
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(beside(c"libuvmd_helper.so", &mut path), Some(FILE));
        let long = [[b'a'; PATH_BYTES_MAX].as_slice(), b"/x\0"].concat();
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(beside(CStr::from_bytes_with_nul(&long).unwrap(), &mut path), None);
    }
}
