//! Ends of contexts and modules: memory ends with its context, and handles of functions may be
//! reused.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{self, Recorder, at_gate},
};

/// Devices whose primary context is known by its handle.
const DEVICES: usize = 64;
static PRIMARY: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

/// Forgets the parameter layouts of functions before the driver may reuse their handles. With the
/// layout of another function, the hook of a launch would read invalid memory.
fn forget() {
    if let Some(recorder) = recorder::existing() {
        recorder.parameters.forget();
    }
}

/// Ends a context, after the part in progress, which may use it.
fn ends(
    before: impl FnOnce(&'static Recorder),
    end: impl FnOnce() -> CuResult,
    ended: impl FnOnce(&'static Recorder),
) -> CuResult {
    forget();
    let Some((recorder, _call)) = at_gate() else { return end() };
    before(recorder);
    let result = end();
    if result.is_ok() {
        ended(recorder);
    }
    result
}

/// Handles the end of a device's primary context.
fn primary_ends(recorder: &'static Recorder, device: i32) {
    recorder.stream.forget_device(device);
    recorder.plan.forget_device(device);
    let context = primary(device).map_or(0, |context| context.load(Ordering::Relaxed));
    // Unknown if it was never retained by `cuDevicePrimaryCtxRetain`.
    if context != 0 {
        recorder.context_ends(context);
    }
}

fn destroys(destroy: impl FnOnce() -> CuResult, context: Handle) -> CuResult {
    ends(|recorder| recorder.plan.on_context_end(context), destroy, |recorder| recorder.context_ends(context))
}

fn releases(release: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    ends(
        |recorder| recorder.plan.on_device_end(device),
        release,
        |recorder| {
            if !driver::primary_is_active(device) {
                primary_ends(recorder, device);
            }
        },
    )
}

fn resets(reset: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    ends(|recorder| recorder.plan.on_device_end(device), reset, |recorder| primary_ends(recorder, device))
}

fn unloads(unload: impl FnOnce() -> CuResult) -> CuResult {
    forget();
    unload()
}

hooks! {
    // A program whose library is linked to the driver starts the helper here. The driver opens
    // files in this call, too; the program may forbid that later.
    cuInit = fn(flags: u32) |real, per_thread| {
        // Before the driver opens its device files: uvmd looks for the ring from then on.
        recorder::start_in_child();
        real()
    }

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
        destroys(real, context)
    }

    cuCtxDestroy_v2 = fn(context: Handle) |real, per_thread| {
        destroys(real, context)
    }

    cuModuleUnload = fn(module: Handle) |real, per_thread| {
        unloads(real)
    }

    cuLibraryUnload = fn(library: Handle) |real, per_thread| {
        unloads(real)
    }
}
