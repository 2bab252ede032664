//! Primary contexts.

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::{args::Out, device::index, functions};
use crate::{Error, Result, context::Primary, driver::Driver};

fn primary(driver: &Driver, device: CUdevice) -> Result<&Mutex<Primary>> {
    driver.primaries.get(index(driver, device)?).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)
}

functions! {
    driver(driver) fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) {
        if context.is_null() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let index = index(driver, device)?;
        let mut primary = primary(driver, device)?.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained += 1;
        let flags = primary.flags;
        let retained = Arc::clone(primary.context.get_or_insert_with(|| driver.create_context(index, flags)));
        context.set_handle(retained.handle)
    }

    driver(driver) fn cuDevicePrimaryCtxRelease_v2 [cuDevicePrimaryCtxRelease](device: CUdevice) {
        let mut primary = primary(driver, device)?.lock().unwrap_or_else(PoisonError::into_inner);
        primary.retained = primary.retained.checked_sub(1).ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)?;
        if primary.retained == 0
            && let Some(context) = primary.context.take()
        {
            driver.destroy_context(&context);
        }
        Ok(())
    }

    driver(driver) fn cuDevicePrimaryCtxReset_v2 [cuDevicePrimaryCtxReset](device: CUdevice) {
        let index = index(driver, device)?;
        let mut primary = primary(driver, device)?.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = primary.context.take() {
            driver.destroy_context(&context);
            if primary.retained > 0 {
                primary.context = Some(driver.create_context(index, primary.flags));
            }
        }
        Ok(())
    }

    driver(driver) fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        let primary = primary(driver, device)?.lock().unwrap_or_else(PoisonError::into_inner);
        flags.set(primary.flags)?;
        active.set(i32::from(primary.context.is_some()))
    }

    driver(driver) fn cuDevicePrimaryCtxSetFlags_v2 [cuDevicePrimaryCtxSetFlags](device: CUdevice, flags: u32) {
        let mut primary = primary(driver, device)?.lock().unwrap_or_else(PoisonError::into_inner);
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }
}
