//! Functions of the program that streams call.
#![expect(unsafe_code, reason = "calls functions of the program")]

use std::ffi::c_void;

use cudarc::driver::sys::{CUhostFn, CUresult, CUstream};

/// Function of `cuLaunchHostFunc` with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

impl HostCall {
    /// Function with its argument, or none for null.
    ///
    /// # Safety
    /// The function can be called with the argument from any thread, until it is dropped.
    pub(crate) unsafe fn new(function: CUhostFn, argument: *mut c_void) -> Option<Self> {
        Some(Self { function: function?, argument: argument.expose_provenance() })
    }

    /// Calls it.
    pub(crate) fn call(&self) {
        // SAFETY: by the contract of `new`.
        unsafe { (self.function)(std::ptr::with_exposed_provenance_mut(self.argument)) }
    }

    /// Function and argument, as given.
    pub(crate) fn parts(&self) -> (CUhostFn, *mut c_void) {
        (Some(self.function), std::ptr::with_exposed_provenance_mut(self.argument))
    }
}

type StreamFunction = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

/// Function of `cuStreamAddCallback` with its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: StreamFunction,
    stream: usize,
    argument: usize,
}

impl Callback {
    /// Function with its arguments, or none for null.
    ///
    /// # Safety
    /// As of [`HostCall::new`].
    pub(crate) unsafe fn new(
        function: Option<StreamFunction>,
        stream: CUstream,
        argument: *mut c_void,
    ) -> Option<Self> {
        Some(Self { function: function?, stream: stream.addr(), argument: argument.expose_provenance() })
    }

    /// Calls it with the state of the stream.
    pub(crate) fn call(&self, status: CUresult) {
        let stream = std::ptr::without_provenance_mut(self.stream);
        // SAFETY: by the contract of `new`.
        unsafe { (self.function)(stream, status, std::ptr::with_exposed_provenance_mut(self.argument)) }
    }
}
