//! The CUDA driver among the loaded objects. It is pinned once the program looks up a function that
//! is the driver's or may call it, as that call takes the loader's lock anyway. Until then,
//! functions are looked up at each call, and not cached.

use core::{
    ffi::{CStr, c_int, c_void},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    elf::{self, Object},
    libc,
};

/// Library name of the driver.
pub(crate) const NAME: &CStr = c"libcuda.so.1";
/// A function that only the driver has.
pub(crate) const FUNCTION: &CStr = c"cuDriverGetVersion";
/// Maximum length of the path of a pinned object.
const PATH_BYTES_MAX: usize = 4096;

/// Base address of the pinned driver, or 0.
static DRIVER: AtomicUsize = AtomicUsize::new(0);
/// Base address of the pinned library that has exported the driver's functions since the program
/// began, or 0.
static STUB: AtomicUsize = AtomicUsize::new(0);
/// See [`has_unpinned_call`].
static HAS_UNPINNED_CALL: AtomicBool = AtomicBool::new(false);
/// Thread that is looking for a driver to pin, or 0.
static PINNER: AtomicUsize = AtomicUsize::new(0);

/// The driver, if it is loaded.
pub(crate) fn find() -> Option<Object> {
    elf::find_named(NAME, FUNCTION, |driver| {
        driver.symbol(FUNCTION).filter(|at| libc::is_relocated(*at)).map(|_| driver)
    })
}

/// The driver, if it is pinned.
pub(crate) fn pinned() -> Option<Object> {
    find().filter(is_pinned)
}

/// The driver's own function of a name, without its hook.
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    find()?.symbol(name)
}

/// Whether an object is pinned: it stays loaded for the life of the process.
pub(crate) fn is_pinned(object: &Object) -> bool {
    [&DRIVER, &STUB].iter().any(|base| base.load(Ordering::Acquire) == object.base())
}

/// Notes that an export was called whose target is in an object that is not pinned.
pub(crate) fn record_unpinned_call() {
    HAS_UNPINNED_CALL.store(true, Ordering::Relaxed);
}

/// Whether an export without a pinned target was called since the last search for a driver to pin.
pub(crate) fn has_unpinned_call() -> bool {
    HAS_UNPINNED_CALL.load(Ordering::Relaxed)
}

/// Whether no driver is pinned yet.
pub(crate) fn is_unpinned() -> bool {
    DRIVER.load(Ordering::Acquire) == 0
}

/// Pins the driver for the life of the process, if it is loaded. Returns true only for the call
/// that pins it. Takes the loader's lock, and so waits for a `dlopen` in another thread.
pub(crate) fn pin() -> bool {
    if !is_unpinned() {
        return false;
    }
    HAS_UNPINNED_CALL.store(false, Ordering::Relaxed);
    let thread = libc::current_thread().unwrap_or(0);
    // Recursion: a library that interposes functions of the loader may call `dlsym` in them.
    if PINNER.swap(thread, Ordering::Relaxed) == thread {
        return false;
    }
    let is_pinned = find_and_pin();
    let _ = PINNER.compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    is_pinned
}

#[inline(never)]
fn find_and_pin() -> bool {
    let mut path = [0; PATH_BYTES_MAX];
    let driver = elf::find_named(NAME, FUNCTION, |driver| {
        let text = libc::text(driver.path())?.to_bytes_with_nul();
        path.get_mut(..text.len())?.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte);
        Some(driver)
    });
    let path = CStr::from_bytes_until_nul(&path);
    driver.zip(path.ok()).is_some_and(|(driver, path)| pin_object(&driver, path, &DRIVER))
}

/// Pins a driver to which the program has a handle, whatever its name. Returns whether it is
/// pinned. Takes the loader's lock.
pub(crate) fn pin_by_handle(driver: &Object) -> bool {
    is_pinned(driver) || libc::text(driver.path()).is_some_and(|path| pin_object(driver, path, &DRIVER))
}

/// Pins an object that the program started with: the driver, or a library that leads to it.
pub(crate) fn pin_stub(object: &Object) {
    if let Some(path) = libc::text(object.path()) {
        pin_object(object, path, &STUB);
    }
}

fn pin_object(object: &Object, path: &CStr, base: &AtomicUsize) -> bool {
    const LAZY_IF_LOADED: c_int = 1 | 4;
    let is_open = libc::dlopen(path, LAZY_IF_LOADED).is_some();
    libc::clear_error();
    // The path may be of another object by now, loaded at another address.
    let is_pinned = is_open && elf::with_path(object.base(), path).is_some();
    if is_pinned {
        base.store(object.base(), Ordering::Release);
    }
    is_pinned
}
