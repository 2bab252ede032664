//! What every function of the ABI begins and ends with.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use cudarc::driver::sys::CUresult;

use crate::{
    Error, Result,
    context::Context,
    driver::{self, Driver},
    errors::complain,
};

thread_local! {
    /// The function was called under a name that takes the default stream to be the thread's.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the default stream of the call at work is the thread's.
pub(super) fn is_per_thread() -> bool {
    PER_THREAD.try_with(Cell::get).unwrap_or(false)
}

/// Calls a function under another of its names.
pub(super) fn with_default_stream(per_thread: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    let before = PER_THREAD.try_with(|flag| flag.replace(per_thread)).unwrap_or(false);
    let result = call();
    let _ = PER_THREAD.try_with(|flag| flag.set(before));
    result
}

fn finish(name: &str, body: impl FnOnce() -> Result<()>) -> CUresult {
    let result = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::CUDA_ERROR_UNKNOWN));
    let Err(error) = result else { return CUresult::CUDA_SUCCESS };
    if error != Error::CUDA_ERROR_NOT_READY && crate::settings::debug() {
        complain(&format!("{name}: {error:?}"));
    }
    error
}

/// Function that needs nothing.
pub(super) fn free(name: &str, body: impl FnOnce() -> Result<()>) -> CUresult {
    finish(name, body)
}

/// Function that needs the driver.
pub(super) fn driver(name: &str, body: impl FnOnce(&'static Driver) -> Result<()>) -> CUresult {
    finish(name, || body(driver::get()?))
}

/// Function that needs a context that no error ended.
pub(super) fn context(name: &str, body: impl FnOnce(&'static Driver, Arc<Context>) -> Result<()>) -> CUresult {
    finish(name, || {
        let driver = driver::get()?;
        let context = driver.current()?;
        context.check()?;
        body(driver, context)
    })
}
