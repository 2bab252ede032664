//! Hooks: each calls the driver's function, and records the call if it succeeded.

mod allocation;
mod capture;
mod context;
mod copy;
mod fill;
#[cfg(test)]
mod functions;
mod graph;
mod hint;
mod launch;
mod module;
mod proc_address;
mod sync;

use core::ffi::c_void;

use crate::{libc::Dlsym, real::Hook};

/// All hooks.
pub(crate) fn all() -> impl Iterator<Item = &'static Hook> {
    [
        allocation::HOOKS,
        capture::HOOKS,
        context::HOOKS,
        copy::HOOKS,
        fill::HOOKS,
        graph::HOOKS,
        hint::HOOKS,
        launch::HOOKS,
        module::HOOKS,
        proc_address::HOOKS,
        sync::HOOKS,
    ]
    .into_iter()
    .flatten()
}

/// Finds the functions of the driver.
pub(crate) fn find(dlsym: Dlsym, driver: *mut c_void) {
    for hook in all() {
        hook.real.find(dlsym, driver, hook.name);
    }
}

/// Hook in place of a function; the function itself if it has none.
pub(crate) fn hook_for(function: *mut c_void) -> *mut c_void {
    let hook = all().find(|hook| hook.real.address() == function);
    hook.filter(|_| !function.is_null()).map_or(function, |hook| hook.address.cast_mut())
}
