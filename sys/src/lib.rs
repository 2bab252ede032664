//! Everything that is read raw from the system: what this node's kernel and driver are, and what they lack.
//!
//! * [`roots`]: where /proc and /sys are; everything below them is read through it, so that tests can show other machines
//! * [`preconditions`]: what this node lacks to be watched
//! * [`kernel`] and [`capabilities`]: which kernels uvmd runs on, and what a process must be allowed to do
//! * [`driver`] and [`parameters`]: the loaded nvidia-uvm, and what it was told when it was loaded
//! * [`processes`]: what processes of a name may do, and when one began
//! * [`private`]: files that uvmd keeps for itself; [`cpu_time`]: how long a thread has been at work
//! * [`peer`]: who is at the other end of a Unix socket
//! * [`pidfd`]: another process, its end, and its open files
//! * [`uvm`]: nvidia-uvm's own calls, on another process's VA space
//! * [`actor`]: processes that make these calls, in the cgroup of whom they are about
//! * [`memory`]: what this process keeps of memory that it freed
//! * [`symbols`]: which of its functions can be probed
//! * [`families`] and [`btf`]: where that driver and this kernel keep what the probes read
//!
//! The service and the command line both use it, so that they say the same. Unsafe code is denied but for the sites that expect it.

pub mod actor;
pub mod btf;
pub mod capabilities;
pub mod cpu_time;
pub mod driver;
pub mod driver_types;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod families;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod kernel;
pub mod memory;
pub mod parameters;
pub mod peer;
pub mod pidfd;
pub mod preconditions;
pub mod private;
pub mod processes;
pub mod roots;
pub mod symbols;
pub mod uvm;

pub use roots::Roots;

/// Text of a system error, without Rust's "(os error N)".
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(_) => text.split(" (os error").next().unwrap_or(&text).to_lowercase(),
        None => text,
    }
}
