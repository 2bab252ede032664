//! Ends of contexts: memory ends with its context, and handles of functions may be reused.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::plan::Reason;

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{self, Recorder, enter_gate},
};

/// Maximum number of devices whose primary context is stored.
const DEVICES_MAX: usize = 64;
static PRIMARY_CONTEXTS: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

fn primary(device: i32) -> Option<&'static AtomicU64> {
    PRIMARY_CONTEXTS.get(usize::try_from(device).ok()?)
}

/// Handle of a device's primary context; 0 if unknown.
fn primary_context(device: i32) -> Handle {
    primary(device).map_or(0, |context| context.load(Ordering::Relaxed))
}

/// Invalidates the cached parameter layouts of all functions. Called before the driver may reuse
/// function handles: by a stale layout, the launch hook would read invalid memory.
pub(super) fn invalidate_parameters() {
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

/// Forgets the helper's streams and events on a device.
fn forget_device(recorder: &Recorder, device: i32) {
    recorder.stream.forget_device(device);
    recorder.plan.forget_device(device);
}

/// Handles the end of a device's primary context.
fn on_primary_destroyed(recorder: &'static Recorder, device: i32) {
    forget_device(recorder, device);
    let context = primary_context(device);
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

/// Releases a reference to a context, which ends with the last one.
fn detach(detach: impl FnOnce() -> CuResult, context: Handle) -> CuResult {
    let Some(recorder) = recorder::current().filter(|recorder| recorder.references.remove(context)) else {
        return destroy_context(detach, context);
    };
    // It may be the last one nevertheless: the hooks miss calls that reach the driver without them.
    invalidate_parameters();
    let result = detach();
    if !result.is_ok() {
        recorder.references.add(context);
    }
    result
}

/// Destroys a green context, and releases the primary context of its device. Streams and events in
/// it end; its memory is that of the primary context.
fn destroy_green(destroy: impl FnOnce() -> CuResult, green: Handle) -> CuResult {
    let Some(context) = driver::context_of_green(green) else { return end_context(|_| {}, destroy, |_| {}) };
    let device = driver::device_of(context).or_else(driver::only_device);
    end_context(
        // The plan may be in it, or in the primary context, which may end.
        |recorder| recorder.plan.stop(Reason::ContextEnded),
        destroy,
        |recorder| on_green_destroyed(recorder, context, device),
    )
}

/// Handles the end of a green context. `device`: `None` if unknown.
fn on_green_destroyed(recorder: &'static Recorder, context: Handle, device: Option<i32>) {
    if let Some(device) = device.filter(|device| !driver::is_primary_context_active(*device)) {
        recorder.on_context_destroyed(context);
        on_primary_destroyed(recorder, device);
        return;
    }
    if device.is_none() {
        // The primary context may have ended, too. A stream that is forgotten in a living context is
        // not destroyed, which does no harm.
        (0..).take(DEVICES_MAX).for_each(|device| forget_device(recorder, device));
    }
    recorder.forget_context(context);
    // If the primary context is unknown, the helper queries the context of a block from the driver
    // before it enters that context.
    recorder.reassign(context, device.map_or(0, primary_context));
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

    cuCtxAttach = fn(context: *mut Handle, flags: u32) |real, per_thread| {
        let result = real();
        if result.is_ok()
            && let Some(context) = read(context)
            && let Some(recorder) = recorder::current()
        {
            recorder.references.add(context);
        }
        result
    }

    cuCtxDetach = fn(context: Handle) |real, per_thread| {
        detach(real, context)
    }

    cuGreenCtxDestroy = fn(green: Handle) |real, per_thread| {
        destroy_green(real, green)
    }
}
