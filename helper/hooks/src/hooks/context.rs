//! Ends of contexts and modules: memory is gone, and handles of functions may be those of others.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::recording,
};

/// Devices whose primary context is known by its handle.
const DEVICES: usize = 64;
static PRIMARY: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

fn ends(result: CuResult, context: Handle) -> CuResult {
    if result.is_ok()
        && context != 0
        && let Some(recorder) = recording()
    {
        recorder.context_ends(context);
    }
    result
}

/// The primary context of a device may have ended.
fn primary_ends(result: CuResult, device: i32, is_active: impl FnOnce() -> bool) -> CuResult {
    if result.is_ok()
        && recording().is_some()
        && let Some(context) = primary(device)
        && !is_active()
    {
        ends(result, context.load(Ordering::Relaxed));
    }
    result
}

fn forgets_functions(result: CuResult) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        recorder.parameters.forget();
    }
    result
}

hooks! {
    cuDevicePrimaryCtxRetain = fn(context: *mut Handle, device: i32) |real, per_thread| {
        let result = real();
        if result.is_ok()
            && let (Some(context), Some(primary)) = (read(context), primary(device))
        {
            primary.store(context, Ordering::Relaxed);
        }
        result
    }

    cuDevicePrimaryCtxRelease = fn(device: i32) |real, per_thread| {
        primary_ends(real(), device, || driver::primary_is_active(device))
    }

    cuDevicePrimaryCtxRelease_v2 = fn(device: i32) |real, per_thread| {
        primary_ends(real(), device, || driver::primary_is_active(device))
    }

    cuDevicePrimaryCtxReset = fn(device: i32) |real, per_thread| {
        primary_ends(real(), device, || false)
    }

    cuDevicePrimaryCtxReset_v2 = fn(device: i32) |real, per_thread| {
        primary_ends(real(), device, || false)
    }

    cuCtxDestroy = fn(context: Handle) |real, per_thread| {
        ends(real(), context)
    }

    cuCtxDestroy_v2 = fn(context: Handle) |real, per_thread| {
        ends(real(), context)
    }

    cuModuleUnload = fn(module: Handle) |real, per_thread| {
        forgets_functions(real())
    }

    cuLibraryUnload = fn(library: Handle) |real, per_thread| {
        forgets_functions(real())
    }
}
