//! Functions by name: the driver's answer, with hooks in place of hooked functions. They are
//! matched by address, which covers all versions and forms of a name.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use core::ffi::c_void;

use crate::{
    program::{overwrite, read},
    real::hooks,
};

fn substitute_hook(function: *mut *mut c_void) {
    if let Some(found) = read(function) {
        overwrite(function, super::hook_for(found));
    }
}

hooks! {
    cuGetProcAddress = fn(name: *const u8, function: *mut *mut c_void, version: i32, flags: u64) |real, per_thread| {
        let result = real();
        if result.is_ok() {
            substitute_hook(function);
        }
        result
    }

    cuGetProcAddress_v2 = fn(
        name: *const u8, function: *mut *mut c_void, version: i32, flags: u64, status: *mut u32,
    ) |real, per_thread| {
        let result = real();
        if result.is_ok() {
            substitute_hook(function);
        }
        result
    }
}
