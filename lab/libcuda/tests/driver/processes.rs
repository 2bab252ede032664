//! Forks, and ends of processes.

use std::{ffi::c_void, ptr, time::Duration};

use cudarc::driver::sys::CUresult;

use crate::support::{Context, call, in_process, ok, stream, succeeds};

#[test]
#[ignore = "run by another test in a process of its own"]
fn a_fork() {
    let _context = Context::new();
    // SAFETY: the child calls the driver and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut count = 0;
        let failed = call!(cuDeviceGetCount(&raw mut count)) == CUresult::CUDA_ERROR_NOT_INITIALIZED
            && call!(cuCtxSynchronize()) == CUresult::CUDA_ERROR_NOT_INITIALIZED
            && call!(cuInit(0)) != CUresult::CUDA_SUCCESS;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!failed)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn an_exit_while_a_stream_works() {
    extern "C" fn forever(_: *mut c_void) {
        loop {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::mem::forget(Context::new());
    ok!(cuLaunchHostFunc(stream(1), Some(forever), ptr::null_mut()));
    std::process::exit(42);
}

#[test]
fn a_fork_gets_errors() {
    succeeds("processes::a_fork", &[]);
}

#[test]
fn a_process_ends_while_streams_work() {
    let output = in_process("processes::an_exit_while_a_stream_works", &[("CUDA_LAB_STATS", "1")]);
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("0 kernels"), "{output:?}");
}
