//! Functions of the ABI, by subject. Each checks its arguments and calls safe code.
#![expect(unsafe_code, reason = "symbols are exported by name")]

mod advise;
mod allocation;
mod args;
mod context;
mod copying;
mod device;
mod enter;
mod event;
mod fill;
mod function;
mod graph;
mod graph_nodes;
mod graph_parameters;
mod image;
mod init;
mod launch;
mod library;
mod link;
mod module;
mod occupancy;
mod pointer;
mod pool;
mod primary;
mod proc_address;
mod stream;
mod stream_value;

/// Defines functions of the ABI, each with the names under which it is exported.
///
/// `free` functions work before `cuInit`. `driver` ones are given the driver, `context` ones the
/// current context too. Names in `[…]`
/// are further names of the function, those in `<…>` take the default stream to be the thread's.
macro_rules! functions {
    ($(
        $gate:ident($($given:pat),*) fn $name:ident $([$($alias:ident),+])? $(<$($per_thread:ident),+>)?
            ($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        $($crate::ffi::functions! { @one $gate($($given),*) $name ($($argument: $type),*) $body
            { $($($alias)+)? } { $($($per_thread)+)? } })*
    };
    (@one $gate:ident($($given:pat),*) $name:ident $arguments:tt $body:block
        { $($alias:ident)* } { $($per_thread:ident)* }) => {
        $crate::ffi::functions! { @define $gate($($given),*) $name $arguments $body }
        $($crate::ffi::functions! { @forward $alias $name false $arguments })*
        $($crate::ffi::functions! { @forward $per_thread $name true $arguments })*
    };
    (@define $gate:ident($($given:pat),*) $name:ident ($($argument:ident: $type:ty),*) $body:block) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $type),*) -> cudarc::driver::sys::CUresult {
            $crate::ffi::enter::$gate(stringify!($name), move |$($given),*| $body)
        }
    };
    (@forward $alias:ident $name:ident $per_thread:literal ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $alias($($argument: $type),*) -> cudarc::driver::sys::CUresult {
            $crate::ffi::enter::with_default_stream($per_thread, move || $name($($argument),*))
        }
    };
}
use functions;
