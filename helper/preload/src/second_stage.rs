//! The second stage: loaded into a process together with this library, and started once the process
//! finds the CUDA driver. The start takes no lock that the loader holds while constructors and
//! destructors run.

#![expect(unsafe_code, reason = "loads a library and calls it")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::{from_ref, null_mut},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
};

use crate::{
    elf::{self, Next, Object},
    interposed::DLSYM,
    libc::{self, Dlsym},
    permission, sandbox, startup,
};

/// File of the second stage, in the folder of the first.
const FILE: &CStr = c"libuvmd_helper_cuda.so";
/// Function that starts the second stage.
const FUNCTION: &CStr = c"uvmd_helper_start";
/// Environment variable that enables the helper, and its value.
const VARIABLE: &CStr = c"UVMD_HELPER";
/// See [`VARIABLE`].
const RECORD: &CStr = c"record";
/// Limit of the second stage's path.
const PATH_BYTES_MAX: usize = 4096;

type Replace = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Start = unsafe extern "C" fn(Dlsym, *mut c_void, usize, &'static AtomicBool) -> Replace;

/// Whether the loader has initialised this library, and the second stage is loaded, if enabled.
static IS_INITIALISED: AtomicBool = AtomicBool::new(false);
/// `Start`, or null without the second stage.
static START: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// [`NOT_STARTED`], [`FINISHED`], or the id of the process that is starting the second stage.
static STATE: AtomicU64 = AtomicU64::new(NOT_STARTED);
const NOT_STARTED: u64 = 0;
const FINISHED: u64 = u64::MAX;
/// `Replace`, or null if the second stage was not started.
static REPLACE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Replacement of a function of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The hook, or the function itself without one.
    Function(*mut c_void),
    /// Unknown: another thread is starting the second stage.
    Starting,
}

/// Hook of a driver function, or the function itself without one. Starts the second stage, once, if
/// a driver is pinned, as the second stage caches that driver's functions.
pub(crate) fn replace(function: *mut c_void, driver: impl FnOnce() -> Option<Object>) -> Replacement {
    let start = START.load(Ordering::Acquire);
    if start.is_null() {
        return Replacement::Function(function);
    }
    let state = STATE.load(Ordering::Acquire);
    if state == NOT_STARTED || is_start_of_parent(state) {
        let Some(driver) = driver() else { return Replacement::Function(function) };
        begin(state, start, &driver);
    }
    if STATE.load(Ordering::Acquire) != FINISHED {
        return Replacement::Starting;
    }
    let replace = REPLACE.load(Ordering::Acquire);
    if replace.is_null() {
        return Replacement::Function(function);
    }
    // SAFETY: the second stage returned it as a `Replace`.
    let replace = unsafe { transmute::<*mut c_void, Replace>(replace) };
    // SAFETY: takes any address.
    Replacement::Function(unsafe { replace(function) })
}

/// Whether another thread forked while the second stage was being started, so that the thread that
/// starts it exists only in the parent.
fn is_start_of_parent(state: u64) -> bool {
    // A filter of the program may forbid the system call in `process_id`.
    state != FINISHED && !sandbox::IS_FILTER_REQUESTED.load(Ordering::Relaxed) && state != process_id()
}

/// Gives up waiting for the start of the second stage: no function is replaced unless the start
/// completes after all.
pub(crate) fn abandon_start() {
    let state = STATE.load(Ordering::Acquire);
    let _ = STATE.compare_exchange(state, FINISHED, Ordering::AcqRel, Ordering::Relaxed);
}

fn begin(state: u64, start: *mut c_void, driver: &Object) {
    let is_permitted = permission::is_granted();
    // Without permission, a filter may forbid the system call of `process_id`.
    let next = if is_permitted { process_id() } else { FINISHED };
    if STATE.compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed).is_err() || !is_permitted {
        return;
    }
    // SAFETY: the second stage defines it as a `Start`.
    let start = unsafe { transmute::<*mut c_void, Start>(start) };
    let handle = from_ref(driver).cast_mut().cast();
    // SAFETY: `find` takes null and this handle, and the thread is 0 or one of `pthread_self`.
    let replace = unsafe { start(find, handle, startup::first_thread(), &sandbox::IS_FILTER_REQUESTED) };
    REPLACE.store(replace as *mut c_void, Ordering::Release);
    STATE.store(FINISHED, Ordering::Release);
}

/// Function of an object by name, or of the process if `object` is null. Called by the second
/// stage.
unsafe extern "C" fn find(object: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(name) = libc::text(name) else { return null_mut() };
    // SAFETY: null, or the driver that `begin` passes.
    let found = match unsafe { object.cast::<Object>().as_ref() } {
        Some(object) => object.symbol(name),
        None => elf::first_definition((&raw const STATE) as usize, name),
    };
    found.unwrap_or(null_mut())
}

/// Id of this process.
fn process_id() -> u64 {
    const GETPID: usize = 39;
    // SAFETY: takes no arguments.
    unsafe { syscalls::call(GETPID, [0; 6]) }.map_or(NOT_STARTED, |process| process as u64)
}

/// Whether the calling thread is the process's first.
fn is_first_thread() -> bool {
    const GETTID: usize = 186;
    // SAFETY: takes no arguments.
    unsafe { syscalls::call(GETTID, [0; 6]) }.is_ok_and(|thread| thread as u64 == process_id())
}

/// Loads the second stage, if the helper is enabled and permitted. In a new process, the current
/// filters are recorded as inherited ones. Takes the loader's lock.
pub(crate) fn load(is_process_new: bool) {
    if should_load(is_process_new) {
        load_file();
    }
    IS_INITIALISED.store(true, Ordering::Release);
}

/// Whether the loader has initialised this library, and the second stage is loaded, if enabled.
pub(crate) fn is_initialised() -> bool {
    IS_INITIALISED.load(Ordering::Acquire)
}

/// Whether the second stage is loaded: the helper is enabled.
pub(crate) fn is_loaded() -> bool {
    !START.load(Ordering::Acquire).is_null()
}

/// Loads the second stage for a constructor that looks for the driver before the loader has
/// initialised this library. Only in the first thread of a new process, whose loader is about to do
/// so. Returns whether it was loaded.
pub(crate) fn load_before_constructors() -> bool {
    let is_early = !is_initialised() && matches!(DLSYM.definition(), Some(Next::After(_)));
    let is_loaded = is_early && should_load(true) && is_first_thread();
    if is_loaded {
        load_file();
    }
    is_loaded
}

fn should_load(is_process_new: bool) -> bool {
    !is_loaded() && libc::environment(VARIABLE) == Some(RECORD) && permission::is_granted_at_load(is_process_new)
}

fn load_file() {
    const NOW_AND_NODELETE: c_int = 2 | 0x1000;
    let start = || {
        let dlsym = libc::dlsym()?;
        let first = libc::text(elf::object_containing((&raw const STATE) as usize)?.path())?;
        let mut path = [0; PATH_BYTES_MAX];
        let library = libc::dlopen(sibling(first, &mut path)?, NOW_AND_NODELETE)?;
        // SAFETY: the handle is of `dlopen`, and the name ends with a zero.
        Some(unsafe { dlsym(library, FUNCTION.as_ptr()) })
    };
    let start = start().unwrap_or(null_mut());
    libc::clear_error();
    START.store(start, Ordering::Release);
}

/// Path of the second stage: the folder of the first, with another file name.
fn sibling<'a>(first: &CStr, path: &'a mut [u8; PATH_BYTES_MAX]) -> Option<&'a CStr> {
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
    fn second_stage_is_in_the_folder_of_the_first() {
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(sibling(c"/a/b/libuvmd_helper.so", &mut path), Some(c"/a/b/libuvmd_helper_cuda.so"));
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(sibling(c"libuvmd_helper.so", &mut path), Some(FILE));
        let long = [[b'a'; PATH_BYTES_MAX].as_slice(), b"/x\0"].concat();
        let mut path = [0; PATH_BYTES_MAX];
        assert_eq!(sibling(CStr::from_bytes_with_nul(&long).unwrap(), &mut path), None);
    }
    static HOOK: u8 = 0;
    static STARTS: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn replace_all(_: *mut c_void) -> *mut c_void {
        (&raw const HOOK).cast_mut().cast()
    }

    unsafe extern "C" fn start(_: Dlsym, _: *mut c_void, _: usize, _: &'static AtomicBool) -> Replace {
        STARTS.fetch_add(1, Ordering::Relaxed);
        replace_all
    }

    /// A single test, as there is a single second stage.
    #[test]
    fn start_in_progress_is_awaited_only_in_its_own_process() {
        let (function, hook) = (null_mut(), Replacement::Function((&raw const HOOK).cast_mut().cast()));
        let any = || elf::object_containing((&raw const HOOK) as usize);
        START.store(start as *mut c_void, Ordering::Relaxed);
        assert_eq!(replace(function, || None), Replacement::Function(function), "no driver is loaded");
        STATE.store(process_id(), Ordering::Relaxed);
        assert_eq!(replace(function, any), Replacement::Starting);
        assert_eq!(STARTS.load(Ordering::Relaxed), 0);
        // As in a child that was forked while another thread started the second stage.
        STATE.store(process_id() + 1, Ordering::Relaxed);
        assert_eq!(replace(function, any), hook);
        assert_eq!(replace(function, any), hook);
        assert_eq!(STARTS.load(Ordering::Relaxed), 1);
        // The wait for a start that does not complete is given up once, for all calls.
        REPLACE.store(null_mut(), Ordering::Relaxed);
        STATE.store(process_id(), Ordering::Relaxed);
        abandon_start();
        assert_eq!(replace(function, any), Replacement::Function(function));
    }
}
