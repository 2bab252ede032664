//! Kernels of modules.

use std::{
    ffi::c_char,
    sync::{Arc, atomic::Ordering},
};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as A, CUmodule};
use ptx::Kernel;

use super::{
    args::{Out, size, text},
    functions,
};
use crate::{
    Error, Result,
    context::Context,
    driver::Driver,
    module::{Function, FunctionSettings, SHARED_BYTES_MAX},
};

fn of_handle(driver: &Driver, context: &Context, function: CUfunction) -> Result<Arc<Function>> {
    driver.function(context, function.addr())
}

/// Attribute of a kernel.
pub(super) fn attribute(driver: &Driver, kernel: &Kernel, settings: &FunctionSettings, name: u32) -> Result<i32> {
    let signed = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let is = |known: A| known as u32 == name;
    let (major, minor) = driver.machine.settings.capability;
    if name >= A::CU_FUNC_ATTRIBUTE_MAX as u32 + 10 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(if is(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
        signed(kernel.max_threads())
    } else if is(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) {
        signed(kernel.shared_bytes())
    } else if is(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) {
        signed(kernel.local_bytes())
    } else if is(A::CU_FUNC_ATTRIBUTE_NUM_REGS) {
        signed(kernel.registers()).clamp(1, 255)
    } else if is(A::CU_FUNC_ATTRIBUTE_PTX_VERSION) || is(A::CU_FUNC_ATTRIBUTE_BINARY_VERSION) {
        major * 10 + minor
    } else if is(A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        settings.dynamic_shared_bytes.load(Ordering::Relaxed)
    } else if is(A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        settings.carveout.load(Ordering::Relaxed)
    } else {
        0
    })
}

/// Sets an attribute of a kernel.
pub(super) fn set_attribute(kernel: &Kernel, settings: &FunctionSettings, name: u32, value: i32) -> Result<()> {
    if name == A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32 {
        let room = SHARED_BYTES_MAX - i32::try_from(kernel.shared_bytes()).unwrap_or(i32::MAX).min(SHARED_BYTES_MAX);
        if !(0..=room).contains(&value) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        settings.dynamic_shared_bytes.store(value, Ordering::Relaxed);
    } else if name == A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as u32 {
        settings.carveout.store(value, Ordering::Relaxed);
    } else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// Writes offset and size of a parameter.
pub(super) fn parameter(kernel: &Kernel, at: usize, offset: Out<usize>, bytes: Out<usize>) -> Result<()> {
    let parameter = kernel.parameters().get(at).ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
    offset.set(size(parameter.offset_bytes.into()))?;
    bytes.set_if_any(size(parameter.bytes.into()));
    Ok(())
}

functions! {
    context(driver, context) fn cuFuncGetAttribute(value: Out<i32>, name: u32, function: CUfunction) {
        let function = of_handle(driver, &context, function)?;
        value.set(attribute(driver, &function.kernel, &function.settings, name)?)
    }

    context(driver, context) fn cuFuncSetAttribute(function: CUfunction, name: u32, value: i32) {
        let function = of_handle(driver, &context, function)?;
        set_attribute(&function.kernel, &function.settings, name, value)
    }

    context(driver, context) fn cuFuncGetParamInfo
        (function: CUfunction, at: usize, offset: Out<usize>, bytes: Out<usize>)
    {
        parameter(&of_handle(driver, &context, function)?.kernel, at, offset, bytes)
    }

    context(driver, context) fn cuFuncGetName(name: Out<*const c_char>, function: CUfunction) {
        name.set(text(&of_handle(driver, &context, function)?.name))
    }

    context(driver, context) fn cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) {
        module.set_handle(of_handle(driver, &context, function)?.module)
    }

    context(driver, context) fn cuFuncIsLoaded(state: Out<u32>, function: CUfunction) {
        of_handle(driver, &context, function)?;
        state.set(1)
    }

    context(driver, context) fn cuFuncLoad(function: CUfunction) { of_handle(driver, &context, function).map(|_| ()) }

    context(driver, context) fn cuFuncSetCacheConfig(function: CUfunction, _config: u32) {
        of_handle(driver, &context, function).map(|_| ())
    }

    context(driver, context) fn cuFuncSetSharedMemConfig(function: CUfunction, _config: u32) {
        of_handle(driver, &context, function).map(|_| ())
    }
}
