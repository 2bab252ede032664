//! Ends of contexts and modules: memory is gone, and handles of functions may be those of others.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{Recorder, after},
};

/// Devices whose primary context is known by its handle.
const DEVICES: usize = 64;
static PRIMARY: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

fn ends(result: CuResult, context: Handle) -> CuResult {
    after(result, |recorder| recorder.context_ends(context))
}

/// The primary context of a device has ended.
fn primary_ends(recorder: &Recorder, device: i32) {
    let context = primary(device).map_or(0, |context| context.load(Ordering::Relaxed));
    // Unknown if it was never retained by this name.
    if context != 0 {
        recorder.context_ends(context);
    }
}

fn releases(result: CuResult, device: i32) -> CuResult {
    after(result, |recorder| {
        if !driver::primary_is_active(device) {
            primary_ends(recorder, device);
        }
    })
}

fn resets(result: CuResult, device: i32) -> CuResult {
    after(result, |recorder| primary_ends(recorder, device))
}

fn forgets_functions(result: CuResult) -> CuResult {
    after(result, |recorder| recorder.parameters.forget())
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
        releases(real(), device)
    }

    cuDevicePrimaryCtxRelease_v2 = fn(device: i32) |real, per_thread| {
        releases(real(), device)
    }

    cuDevicePrimaryCtxReset = fn(device: i32) |real, per_thread| {
        resets(real(), device)
    }

    cuDevicePrimaryCtxReset_v2 = fn(device: i32) |real, per_thread| {
        resets(real(), device)
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
