//! The CUDA driver among the loaded objects. It is kept loaded once the program asks for a function that is of it
//! or may call it, by a call that takes the loader's lock itself. Until then its functions are looked for at each
//! call, and nobody remembers them.

use core::{
    ffi::{CStr, c_int, c_void},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    elf::{self, Object},
    libc,
};

/// Name of the driver.
pub(crate) const NAME: &CStr = c"libcuda.so.1";
/// A function that the driver has, and no other library.
pub(crate) const FUNCTION: &CStr = c"cuDriverGetVersion";
/// Longest path of an object that is kept.
const PATH_BYTES_MAX: usize = 4096;

/// Base of the driver that is kept, or 0.
static DRIVER: AtomicUsize = AtomicUsize::new(0);
/// Base of a library that stands for the driver since the program began, or 0.
static STUB: AtomicUsize = AtomicUsize::new(0);
/// See [`is_called`].
static IS_CALLED: AtomicBool = AtomicBool::new(false);
/// Thread that looks for a driver to keep, or 0.
static KEEPER: AtomicUsize = AtomicUsize::new(0);

/// The driver, if it is loaded.
pub(crate) fn find() -> Option<Object> {
    elf::named(NAME, FUNCTION, |driver| driver.symbol(FUNCTION).filter(|at| libc::is_loaded(*at)).map(|_| driver))
}

/// The driver, if it is kept.
pub(crate) fn kept() -> Option<Object> {
    find().filter(is_kept)
}

/// The driver's own function of a name, past the hooks.
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    find()?.symbol(name)
}

/// Whether an object stays loaded for the life of the process.
pub(crate) fn is_kept(object: &Object) -> bool {
    [&DRIVER, &STUB].iter().any(|base| base.load(Ordering::Acquire) == object.base())
}

/// Notes that an export was called, and led to an object that is not kept.
pub(crate) fn note_call() {
    IS_CALLED.store(true, Ordering::Relaxed);
}

/// Whether an export was called since the last look for a driver to keep, and led to an object that is not kept.
pub(crate) fn is_called() -> bool {
    IS_CALLED.load(Ordering::Relaxed)
}

/// Whether no driver is kept yet.
pub(crate) fn is_to_keep() -> bool {
    DRIVER.load(Ordering::Acquire) == 0
}

/// Keeps the driver loaded for the life of the process, if it is loaded. Answers `true` once, when it is. Takes
/// the loader's lock, and where the loader is at work in another thread, waits for it.
pub(crate) fn keep() -> bool {
    if !is_to_keep() {
        return false;
    }
    IS_CALLED.store(false, Ordering::Relaxed);
    let thread = libc::own_thread().unwrap_or(0);
    // A library that stands before the loader's functions may call dlsym in them.
    if KEEPER.swap(thread, Ordering::Relaxed) == thread {
        return false;
    }
    let is_kept = find_and_keep();
    let _ = KEEPER.compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    is_kept
}

#[inline(never)]
fn find_and_keep() -> bool {
    let mut path = [0; PATH_BYTES_MAX];
    let driver = elf::named(NAME, FUNCTION, |driver| {
        let text = libc::text(driver.path())?.to_bytes_with_nul();
        path.get_mut(..text.len())?.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte);
        Some(driver)
    });
    let path = CStr::from_bytes_until_nul(&path);
    driver.zip(path.ok()).is_some_and(|(driver, path)| keep_object(&driver, path, &DRIVER))
}

/// Keeps a driver that the program has a handle of, whatever its name. Answers whether it is kept. Takes the loader's
/// lock.
pub(crate) fn keep_found(driver: &Object) -> bool {
    is_kept(driver) || libc::text(driver.path()).is_some_and(|path| keep_object(driver, path, &DRIVER))
}

/// Keeps an object of the program's beginning, which leads to the driver or is it.
pub(crate) fn keep_stub(object: &Object) {
    if let Some(path) = libc::text(object.path()) {
        keep_object(object, path, &STUB);
    }
}

fn keep_object(object: &Object, path: &CStr, base: &AtomicUsize) -> bool {
    const LAZY_IF_LOADED: c_int = 1 | 4;
    let is_open = libc::dlopen(path, LAZY_IF_LOADED).is_some();
    libc::forget_error();
    // What is open may be loaded since, elsewhere.
    let is_kept = is_open && elf::with_path(object.base(), path).is_some();
    if is_kept {
        base.store(object.base(), Ordering::Release);
    }
    is_kept
}
