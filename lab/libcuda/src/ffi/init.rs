//! Start, version, names of errors.

use std::ffi::c_char;

use super::{
    args::{Out, text},
    functions,
};
use crate::{Error, driver, errors, settings};

functions! {
    free() fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        driver::start().map(|_| ())
    }

    free() fn cuDriverGetVersion(version: Out<i32>) {
        version.set(settings::version())
    }

    free() fn cuGetErrorName(error: u32, name: Out<*const c_char>) {
        let known = errors::name(error);
        name.set(known.map_or(std::ptr::null(), text))?;
        known.map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    free() fn cuGetErrorString(error: u32, description: Out<*const c_char>) {
        let known = errors::description(error);
        description.set(known.map_or(std::ptr::null(), text))?;
        known.map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    driver(_) fn cuProfilerStart() { Ok(()) }

    driver(_) fn cuProfilerStop() { Ok(()) }
}
