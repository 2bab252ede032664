//! Contexts.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice, CUevent, CUlimit};

use super::{
    args::{Any, Out, size},
    device::index,
    functions,
};
use crate::{
    Error, Result,
    context::Context,
    current,
    driver::{self, Driver},
    handle::Handle,
    heap::HEAP_BYTES,
};

/// Context of a handle; null is the current one.
pub(super) fn of_handle(driver: &Driver, handle: CUcontext) -> Result<Arc<Context>> {
    if handle.is_null() {
        return driver.current();
    }
    driver.contexts.get(handle.addr()).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)
}

/// Handle of a context that there is.
fn known(driver: &Driver, handle: CUcontext) -> Result<Handle> {
    driver.contexts.get(handle.addr()).map(|context| context.handle).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)
}

fn create(driver: &Driver, context: Out<CUcontext>, flags: u32, device: CUdevice) -> Result<()> {
    if context.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let created = driver.create_context(index(driver, device)?, flags);
    current::push(created.handle)?;
    context.set_handle(created.handle)
}

/// Priorities from the least to the greatest.
pub(super) const PRIORITIES: (i32, i32) = (0, -5);

/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP: u32 = 2;

fn default_limit(limit: u32) -> Result<u64> {
    Ok(match limit {
        0 => 1024,
        1 => 1 << 20,
        HEAP => HEAP_BYTES,
        3 => 2,
        4 => 2048,
        5 => 64,
        6 => 0,
        _ => return Err(Error::CUDA_ERROR_UNSUPPORTED_LIMIT),
    })
}

functions! {
    driver(driver) fn cuCtxCreate_v2(context: Out<CUcontext>, flags: u32, device: CUdevice) {
        create(driver, context, flags, device)
    }

    driver(driver) fn cuCtxCreate_v3
        (context: Out<CUcontext>, _affinities: Any, count: i32, flags: u32, device: CUdevice)
    {
        if count != 0 {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        create(driver, context, flags, device)
    }

    driver(driver) fn cuCtxCreate_v4(context: Out<CUcontext>, parameters: Any, flags: u32, device: CUdevice) {
        if !parameters.pointer().is_null() {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        create(driver, context, flags, device)
    }

    driver(driver) fn cuCtxDestroy_v2 [cuCtxDestroy](context: CUcontext) {
        let destroyed = driver.contexts.get(context.addr()).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)?;
        driver.destroy_context(&destroyed);
        if current::top()? == destroyed.handle {
            current::pop()?;
        }
        Ok(())
    }

    driver(driver) fn cuCtxDetach(context: CUcontext) {
        let destroyed = driver.contexts.get(context.addr()).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)?;
        driver.destroy_context(&destroyed);
        Ok(())
    }

    driver(driver) fn cuCtxSetCurrent(context: CUcontext) {
        current::set_top(if context.is_null() { 0 } else { known(driver, context)? })
    }

    free() fn cuCtxGetCurrent(context: Out<CUcontext>) {
        driver::get()?;
        context.set_handle(current::top()?)
    }

    driver(driver) fn cuCtxPushCurrent_v2 [cuCtxPushCurrent](context: CUcontext) {
        current::push(known(driver, context)?)
    }

    driver(_) fn cuCtxPopCurrent_v2 [cuCtxPopCurrent](context: Out<CUcontext>) {
        let popped = current::pop()?;
        if !context.is_null() {
            context.set_handle(popped)?;
        }
        Ok(())
    }

    driver(driver) fn cuCtxGetDevice(device: Out<CUdevice>) {
        device.set(i32::try_from(driver.current()?.device).unwrap_or(0))
    }

    driver(driver) fn cuCtxGetId(context: CUcontext, id: Out<u64>) {
        id.set(of_handle(driver, context)?.id)
    }

    driver(driver) fn cuCtxGetApiVersion(context: CUcontext, version: Out<u32>) {
        of_handle(driver, context)?;
        version.set(3020)
    }

    driver(driver) fn cuCtxGetFlags(flags: Out<u32>) {
        flags.set(driver.current()?.flags.load(Ordering::Relaxed))
    }

    driver(driver) fn cuCtxSetFlags(flags: u32) {
        driver.current()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    context(driver, context) fn cuCtxSynchronize() {
        context.synchronize()?;
        driver.machine.log.write("sync", 0, || serde_json::json!({ "what": "context" }));
        Ok(())
    }

    context(_, context) fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let set = context.limits.lock().unwrap_or_else(PoisonError::into_inner).get(&limit).copied();
        value.set(size(set.map_or_else(|| default_limit(limit), Ok)?))
    }

    context(_, context) fn cuCtxSetLimit(limit: u32, value: usize) {
        default_limit(limit)?;
        if limit >= CUlimit::CU_LIMIT_MAX as u32 {
            return Err(Error::CUDA_ERROR_UNSUPPORTED_LIMIT);
        }
        if limit == HEAP {
            context.heap().set_bytes(value as u64)?;
        }
        context.limits.lock().unwrap_or_else(PoisonError::into_inner).insert(limit, value as u64);
        Ok(())
    }

    context(_, _) fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.set_if_any(PRIORITIES.0);
        greatest.set_if_any(PRIORITIES.1);
        Ok(())
    }

    context(_, _) fn cuCtxGetCacheConfig(config: Out<u32>) { config.set(0) }

    context(_, _) fn cuCtxSetCacheConfig(_config: u32) { Ok(()) }

    context(_, _) fn cuCtxGetSharedMemConfig(config: Out<u32>) { config.set(1) }

    context(_, _) fn cuCtxSetSharedMemConfig(_config: u32) { Ok(()) }

    context(_, _) fn cuCtxResetPersistingL2Cache() { Ok(()) }

    context(_, _) fn cuCtxEnablePeerAccess(_peer: CUcontext, _flags: u32) {
        Err(Error::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    }

    context(_, _) fn cuCtxDisablePeerAccess(_peer: CUcontext) { Err(Error::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }

    driver(driver) fn cuCtxWaitEvent(context: CUcontext, event: CUevent) {
        let context = of_handle(driver, context)?;
        let event = driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)?;
        context.wait_for(&event, context.legacy());
        Ok(())
    }
}
