//! The driver's own functions, and the hooks in their place.

use core::{
    ffi::{CStr, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::libc::{Dlsym, find};

/// Address of a function that was found by name.
#[derive(Debug)]
pub(crate) struct Real(AtomicPtr<c_void>);

impl Real {
    pub(crate) const fn unresolved() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Address; null if not found.
    pub(crate) fn address(&self) -> *mut c_void {
        self.0.load(Ordering::Relaxed)
    }

    /// The function.
    ///
    /// # Safety
    /// It was found, and `F` is the type of a pointer to it.
    #[expect(unsafe_code, reason = "a function by its address")]
    pub(crate) unsafe fn function<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
        // SAFETY: the caller guarantees that it was found, and that `F` is its type.
        unsafe { core::mem::transmute_copy(&self.address()) }
    }

    /// Finds the function in the driver.
    pub(crate) fn find(&self, dlsym: Dlsym, driver: *mut c_void, name: &CStr) {
        self.0.store(find(dlsym, driver, name), Ordering::Relaxed);
    }
}

/// Hook of a function.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Name that the driver exports.
    pub(crate) name: &'static CStr,
    /// The driver's function.
    pub(crate) real: &'static Real,
    /// Address of the hook.
    pub(crate) address: *const c_void,
}

#[expect(unsafe_code, reason = "an address of code is the same for all threads")]
// SAFETY: the pointer is the address of code, which is immutable and valid in all threads.
unsafe impl Sync for Hook {}

/// Functions of the driver that are called but not hooked.
macro_rules! driver_functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            #[expect(non_snake_case, reason = "the name of the driver")]
            fn $name($($argument: $type),*) -> Option<$crate::cuda::CuResult> {
                type Function = unsafe extern "C" fn($($type),*) -> $crate::cuda::CuResult;
                if reals::$name.address().is_null() {
                    return None;
                }
                // SAFETY: cuda.h gives the driver's function of this name this type.
                let function = unsafe { reals::$name.function::<Function>() };
                // SAFETY: the callers pass addresses of their own variables, or null where the driver
                // admits it, and handles and names of the program's call.
                Some(unsafe { function($($argument),*) })
            }
        )*

        #[expect(non_upper_case_globals, reason = "the names of the driver")]
        mod reals {
            $(pub(super) static $name: $crate::real::Real = $crate::real::Real::unresolved();)*
        }

        /// Finds all of them.
        pub(crate) fn find(dlsym: $crate::libc::Dlsym, driver: *mut core::ffi::c_void) {
            $(
                let name = concat!(stringify!($name), "\0");
                if let Ok(name) = core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                    reals::$name.find(dlsym, driver, name);
                }
            )*
        }
    };
}
pub(crate) use driver_functions;

/// Defines hooks, and the list of them:
/// `NAME / NAME = fn(ARGUMENTS) |real, is_per_thread| { BODY }`.
/// The body calls the driver's function as `real()`. A second name is that of the form whose
/// stream 0 is the thread's own.
macro_rules! hooks {
    ($($($name:ident)/+ = fn $arguments:tt |$real:ident, $per_thread:ident| $body:block)*) => {
        $(hooks!(@hooks ($($name)/+) $arguments |$real, $per_thread| $body);)*

        /// Hooks of this module.
        pub(crate) static HOOKS: &[$crate::real::Hook] = &[$($(hooks!(@row $name),)+)*];

        #[expect(non_upper_case_globals, reason = "the names of the driver")]
        mod reals {
            $($(pub(super) static $name: $crate::real::Real = $crate::real::Real::unresolved();)+)*
        }
    };
    (@hooks ($name:ident) $arguments:tt |$real:ident, $per_thread:ident| $body:block) => {
        hooks!(@hook $name $arguments |$real, $per_thread| false, $body);
    };
    (@hooks ($name:ident / $second:ident) $arguments:tt |$real:ident, $per_thread:ident| $body:block) => {
        hooks!(@hook $name $arguments |$real, $per_thread| false, $body);
        hooks!(@hook $second $arguments |$real, $per_thread| true, $body);
    };
    (@row $name:ident) => {
        $crate::real::Hook {
            name: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            real: &reals::$name,
            address: $name as *const core::ffi::c_void,
        }
    };
    (@hook $name:ident ($($argument:ident: $type:ty),* $(,)?) |$real:ident, $per_thread:ident| $is:literal, $body:block) => {
        #[expect(non_snake_case, reason = "the name of the driver")]
        #[allow(clippy::too_many_arguments, unused_variables, reason = "signature of the driver")]
        extern "C" fn $name($($argument: $type),*) -> $crate::cuda::CuResult {
            let $per_thread = $is;
            let $real = || {
                type Function = unsafe extern "C" fn($($type),*) -> $crate::cuda::CuResult;
                // SAFETY: a hook is handed out only in place of its function, to which cuda.h gives
                // this type.
                let function = unsafe { reals::$name.function::<Function>() };
                // SAFETY: the arguments are those that the program passes to the function.
                unsafe { function($($argument),*) }
            };
            $body
        }
    };
}
pub(crate) use hooks;
