//! The CUDA driver among the loaded objects. It is kept loaded once it is seen where the loader's lock may be
//! taken. Until then its functions are looked for at each call, and nobody remembers them.

use core::{
    ffi::{CStr, c_int, c_void},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    elf::{self, Object},
    libc,
};

/// Name of the driver.
const NAME: &CStr = c"libcuda.so.1";
/// A function that the driver has, and no other library.
pub(crate) const FUNCTION: &CStr = c"cuDriverGetVersion";
/// Longest path of an object that is kept.
const PATH_BYTES_MAX: usize = 4096;

/// Base of the driver that is kept, or 0.
static DRIVER: AtomicUsize = AtomicUsize::new(0);
/// Base of a library that stands for the driver since the program began, or 0.
static STUB: AtomicUsize = AtomicUsize::new(0);
/// Objects that had been loaded at the last look for a driver to keep.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// The driver, if it is loaded.
pub(crate) fn find() -> Option<Object> {
    elf::named(NAME, FUNCTION, |driver| driver.symbol(FUNCTION).filter(|at| libc::is_loaded(*at)).map(|_| driver))
}

/// The driver's own function of a name, past the hooks.
pub(crate) fn function(name: &CStr) -> Option<*mut c_void> {
    find()?.symbol(name)
}

/// Whether an object stays loaded for the life of the process.
pub(crate) fn is_kept(object: &Object) -> bool {
    [&DRIVER, &STUB].iter().any(|base| base.load(Ordering::Acquire) == object.base())
}

/// Keeps the driver loaded for the life of the process, if it is loaded. Answers `true` once, when it is. Takes
/// the loader's lock, and where the loader is at work in another thread, waits for it.
pub(crate) fn keep() -> bool {
    if DRIVER.load(Ordering::Acquire) != 0 {
        return false;
    }
    let additions = elf::additions();
    // Noted before the search: a library that stands before the loader's functions may call dlsym in it.
    LOOKED.swap(additions, Ordering::AcqRel) != additions && find_and_keep()
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
