//! Ends of contexts and modules: memory is gone, and handles of functions may be those of others.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{self, Recorder, after},
};

/// Devices whose primary context is known by its handle.
const DEVICES: usize = 64;
static PRIMARY: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

/// Forgets where parameters of functions lie, before the driver may give their handles to others:
/// a launch with the parameters of another function would read what is not there.
fn forget() {
    if let Some(recorder) = recorder::existing() {
        recorder.parameters.forget();
    }
}

fn ends(end: impl FnOnce() -> CuResult, context: Handle) -> CuResult {
    forget();
    after(end(), |recorder| recorder.context_ends(context))
}

/// The primary context of a device has ended.
fn primary_ends(recorder: &Recorder, device: i32) {
    let context = primary(device).map_or(0, |context| context.load(Ordering::Relaxed));
    // Unknown if it was never retained by this name.
    if context != 0 {
        recorder.context_ends(context);
    }
}

fn releases(release: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    forget();
    after(release(), |recorder| {
        if !driver::primary_is_active(device) {
            primary_ends(recorder, device);
        }
    })
}

fn resets(reset: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    forget();
    after(reset(), |recorder| primary_ends(recorder, device))
}

fn unloads(unload: impl FnOnce() -> CuResult) -> CuResult {
    forget();
    unload()
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
        releases(real, device)
    }

    cuDevicePrimaryCtxRelease_v2 = fn(device: i32) |real, per_thread| {
        releases(real, device)
    }

    cuDevicePrimaryCtxReset = fn(device: i32) |real, per_thread| {
        resets(real, device)
    }

    cuDevicePrimaryCtxReset_v2 = fn(device: i32) |real, per_thread| {
        resets(real, device)
    }

    cuCtxDestroy = fn(context: Handle) |real, per_thread| {
        ends(real, context)
    }

    cuCtxDestroy_v2 = fn(context: Handle) |real, per_thread| {
        ends(real, context)
    }

    cuModuleUnload = fn(module: Handle) |real, per_thread| {
        unloads(real)
    }

    cuLibraryUnload = fn(library: Handle) |real, per_thread| {
        unloads(real)
    }
}
