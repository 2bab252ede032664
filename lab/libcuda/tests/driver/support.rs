//! Calls of the driver, and a context for a test.

use std::{ffi::c_void, process::Command, ptr};

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUresult, CUstream};

/// Result of a call.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the test passes what the function's documentation asks for.
        unsafe { cudarc::driver::sys::$function($($argument),*) }
    }};
}
pub(crate) use call;

/// Call that succeeds.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::support::call!($function($($argument),*)), cudarc::driver::sys::CUresult::CUDA_SUCCESS, stringify!($function))
    };
}
pub(crate) use ok;

/// Context of a test's own, current to its thread.
pub(crate) struct Context(CUcontext);

impl Context {
    pub(crate) fn new() -> Self {
        let mut context = ptr::null_mut();
        ok!(cuInit(0));
        ok!(cuCtxCreate_v2(&raw mut context, 0, 0));
        Self(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        call!(cuCtxDestroy_v2(self.0));
    }
}

pub(crate) fn device_memory(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, bytes));
    address
}

pub(crate) fn managed(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocManaged(&raw mut address, bytes, 1));
    address
}

/// Managed memory as words of the program.
pub(crate) fn words(address: CUdeviceptr, count: usize) -> &'static mut [u32] {
    // SAFETY: managed memory of this size, which no operation accesses at the moment.
    unsafe {
        std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap()), count)
    }
}

pub(crate) fn stream(flags: u32) -> CUstream {
    let mut stream = ptr::null_mut();
    ok!(cuStreamCreate(&raw mut stream, flags));
    stream
}

pub(crate) fn event() -> sys::CUevent {
    let mut event = ptr::null_mut();
    ok!(cuEventCreate(&raw mut event, 0));
    event
}

/// Address of something of the program.
pub(crate) fn host<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

/// Runs one ignored test of this program in a process of its own, with settings.
pub(crate) fn in_process(test: &str, settings: &[(&str, &str)]) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(settings.iter().copied()).output().unwrap()
}

pub(crate) fn succeeds(test: &str, settings: &[(&str, &str)]) {
    let output = in_process(test, settings);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// Size that no other test allocates, so that none is given a freed address of this one. Freed
/// addresses go to allocations of as many granules; of each kind of memory one test uses it.
pub(crate) const OWN_BYTES: usize = 7 * 65536 + 100;

pub(crate) const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
