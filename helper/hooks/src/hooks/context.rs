//! Ends of contexts and modules: memory ends with its context, and handles of functions may be
//! reused.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{self, Recorder, enter_gate},
};

/// Devices whose primary context is known by its handle.
const DEVICES_MAX: usize = 64;
static PRIMARY_CONTEXTS: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY_CONTEXTS.get(usize::try_from(device).ok()?)
}

/// Forgets the parameter layouts of functions before the driver may reuse their handles. With the
/// layout of another function, the hook of a launch would read invalid memory.
fn invalidate_parameters() {
    if let Some(recorder) = recorder::current() {
        recorder.parameters.invalidate();
    }
}

/// Ends a context, after the part in progress, which may use it.
fn end_context(
    before: impl FnOnce(&'static Recorder),
    end: impl FnOnce() -> CuResult,
    after: impl FnOnce(&'static Recorder),
) -> CuResult {
    invalidate_parameters();
    let Some((recorder, _call)) = enter_gate() else { return end() };
    before(recorder);
    let result = end();
    if result.is_ok() {
        after(recorder);
    }
    result
}

/// Handles the end of a device's primary context.
fn on_primary_destroyed(recorder: &'static Recorder, device: i32) {
    recorder.stream.forget_device(device);
    recorder.plan.forget_device(device);
    let context = primary(device).map_or(0, |context| context.load(Ordering::Relaxed));
    // Unknown if it was never retained by `cuDevicePrimaryCtxRetain`.
    if context != 0 {
        recorder.on_context_destroyed(context);
    }
}

fn destroy_context(destroy: impl FnOnce() -> CuResult, context: Handle) -> CuResult {
    end_context(
        |recorder| recorder.plan.on_context_end(context),
        destroy,
        |recorder| recorder.on_context_destroyed(context),
    )
}

fn release_primary(release: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    end_context(
        |recorder| recorder.plan.on_device_end(device),
        release,
        |recorder| {
            if !driver::is_primary_context_active(device) {
                on_primary_destroyed(recorder, device);
            }
        },
    )
}

fn reset_primary(reset: impl FnOnce() -> CuResult, device: i32) -> CuResult {
    end_context(
        |recorder| recorder.plan.on_device_end(device),
        reset,
        |recorder| on_primary_destroyed(recorder, device),
    )
}

fn unload(real: impl FnOnce() -> CuResult) -> CuResult {
    invalidate_parameters();
    real()
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
        release_primary(real, device)
    }

    cuDevicePrimaryCtxRelease_v2 = fn(device: i32) |real, per_thread| {
        release_primary(real, device)
    }

    cuDevicePrimaryCtxReset = fn(device: i32) |real, per_thread| {
        reset_primary(real, device)
    }

    cuDevicePrimaryCtxReset_v2 = fn(device: i32) |real, per_thread| {
        reset_primary(real, device)
    }

    cuCtxDestroy = fn(context: Handle) |real, per_thread| {
        destroy_context(real, context)
    }

    cuCtxDestroy_v2 = fn(context: Handle) |real, per_thread| {
        destroy_context(real, context)
    }

    cuModuleUnload = fn(module: Handle) |real, per_thread| {
        unload(real)
    }

    cuLibraryUnload = fn(library: Handle) |real, per_thread| {
        unload(real)
    }
}
