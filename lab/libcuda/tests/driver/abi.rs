//! Start, devices, contexts, names.

use std::{ffi::CStr, ptr};

use cudarc::driver::sys::{CUdevice_attribute as A, CUresult};

use crate::support::{Context, SUCCESS, call, ok, succeeds};

#[test]
#[ignore = "run by another test in a process of its own"]
fn nothing_works_before_the_start() {
    let mut count = 0;
    assert_eq!(call!(cuDeviceGetCount(&raw mut count)), CUresult::CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(call!(cuCtxSynchronize()), CUresult::CUDA_ERROR_NOT_INITIALIZED);
    let mut version = 0;
    ok!(cuDriverGetVersion(&raw mut version));
    assert_eq!(version, 12090);
    assert_eq!(call!(cuInit(1)), CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuInit(0));
    assert_eq!(call!(cuCtxSynchronize()), CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn there_is_no_device() {
    assert_eq!(call!(cuInit(0)), CUresult::CUDA_ERROR_NO_DEVICE);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn two_small_volta_devices() {
    ok!(cuInit(0));
    let (mut count, mut major, mut bytes) = (0, 0, 0);
    ok!(cuDeviceGetCount(&raw mut count));
    ok!(cuDeviceGetAttribute(&raw mut major, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1));
    ok!(cuDeviceTotalMem_v2(&raw mut bytes, 1));
    assert_eq!((count, major, bytes), (2, 0, 16 << 20));
    assert_eq!(call!(cuDeviceTotalMem_v2(&raw mut bytes, 2)), CUresult::CUDA_ERROR_INVALID_DEVICE);
    let _context = Context::new();
    let mut address = 0;
    assert_eq!(call!(cuMemAlloc_v2(&raw mut address, 17 << 20)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cuMemAlloc_v2(&raw mut address, 12 << 20));
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    assert_eq!((free, total), (4 << 20, 16 << 20));
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn an_ampere_device() {
    ok!(cuInit(0));
    let (mut major, mut minor) = (0, 0);
    ok!(cuDeviceComputeCapability(&raw mut major, &raw mut minor, 0));
    assert_eq!((major, minor), (8, 0));
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn a_driver_of_cuda_13() {
    let mut version = 0;
    ok!(cuDriverGetVersion(&raw mut version));
    assert_eq!(version, 13000);
}

#[test]
fn settings_decide_about_devices() {
    succeeds("abi::nothing_works_before_the_start", &[]);
    succeeds("abi::there_is_no_device", &[("CUDA_LAB_DEVICES", "0")]);
    let small = [("CUDA_LAB_DEVICES", "2"), ("CUDA_LAB_MEMORY_MIB", "16"), ("CUDA_LAB_ARCHITECTURE", "volta")];
    succeeds("abi::two_small_volta_devices", &small);
    succeeds("abi::a_driver_of_cuda_13", &[("CUDA_LAB_VERSION", "13.0")]);
    succeeds("abi::an_ampere_device", &[("CUDA_LAB_ARCHITECTURE", "ampere")]);
}

#[test]
fn a_device_has_a_name_and_errors_have_names() {
    ok!(cuInit(0));
    let mut name = [0; 64];
    ok!(cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    // SAFETY: the driver wrote a text with its end.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    assert_eq!(name, c"Lab GPU");
    let mut text = ptr::null();
    ok!(cuGetErrorName(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &raw mut text));
    // SAFETY: the driver set the pointer to a text with its end, which is never freed.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text, c"CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn contexts_are_a_stack_of_each_thread() {
    let first = Context::new();
    let (mut current, mut popped) = (ptr::null_mut(), ptr::null_mut());
    ok!(cuCtxGetCurrent(&raw mut current));
    let second = Context::new();
    ok!(cuCtxPopCurrent_v2(&raw mut popped));
    let mut again = ptr::null_mut();
    ok!(cuCtxGetCurrent(&raw mut again));
    assert_eq!(again, current);
    std::thread::spawn(|| {
        let mut current = ptr::null_mut();
        ok!(cuCtxGetCurrent(&raw mut current));
        assert!(current.is_null());
    })
    .join()
    .unwrap();
    drop(second);
    assert_eq!(call!(cuCtxSetCurrent(popped)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    drop(first);
}

#[test]
fn a_primary_context_is_retained_and_released() {
    ok!(cuInit(0));
    let (mut first, mut second, mut flags, mut active) = (ptr::null_mut(), ptr::null_mut(), 0, 0);
    ok!(cuDevicePrimaryCtxRetain(&raw mut first, 0));
    ok!(cuDevicePrimaryCtxRetain(&raw mut second, 0));
    assert_eq!(first, second);
    ok!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
    assert_eq!(active, 1);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
    assert_eq!(active, 0);
    assert_eq!(call!(cuDevicePrimaryCtxRelease_v2(0)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn functions_are_found_by_name_and_version() {
    let find = |name: &CStr, version| {
        let (mut function, mut status) =
            (ptr::null_mut(), cudarc::driver::sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
        let result = call!(cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, 0, &raw mut status));
        (result, function.is_null(), status as u32)
    };
    assert_eq!(find(c"cuMemAlloc", 3020), (SUCCESS, false, 0));
    assert_eq!(find(c"cuLaunchKernelEx", 11000), (SUCCESS, true, 2));
    assert_eq!(find(c"cuNothing", 12090), (SUCCESS, true, 1));
    let mut table = ptr::null();
    let id = cudarc::driver::sys::CUuuid { bytes: [0; 16] };
    assert_eq!(call!(cuGetExportTable(&raw mut table, &raw const id)), CUresult::CUDA_ERROR_NOT_FOUND);
}

#[test]
fn absent_functions_say_so() {
    let mut handle = 0;
    // SAFETY: a stub that looks at nothing.
    let result = unsafe { cudarc::driver::sys::cuMemCreate(&raw mut handle, 0, ptr::null(), 0) };
    assert_eq!(result, CUresult::CUDA_ERROR_NOT_SUPPORTED);
}
