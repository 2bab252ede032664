//! Raw reads from the system: kernel and driver of this node, and what they lack.
//!
//! * [`roots`]: root folders of /proc and /sys, through which all reads below them go, so that
//!   tests can provide other machines
//! * [`preconditions`]: missing preconditions of this node
//! * [`kernel`] and [`capabilities`]: supported kernels, and the permissions that a process needs
//! * [`driver`] and [`parameters`]: the loaded nvidia-uvm and its module parameters; [`fatal_error`]:
//!   whether it refuses new programs
//! * [`processes`]: permissions of processes by name, and start times; [`process_reads`]: reads that a
//!   process can make hang; [`sysfs`]: those of /sys; `readers`: threads for both
//! * [`private`]: private files of uvmd; [`private_proc`]: a /proc of its own; [`clock`]: time that processes share
//! * [`cpu_time`]: processor time of a thread; [`cpu_budget`]: limits of the processor time spent for a tenant
//! * [`peer`]: the peer of a Unix socket
//! * [`pidfd`]: another process, its exit, and its open files
//! * [`uvm`]: calls of nvidia-uvm on another process's VA space
//! * [`actor`]: processes that make these calls, in the target's cgroup
//! * [`trackers`]: trackers of the driver's tools interface; `holder`: processes that hold them
//! * `server`: start and end of the servers among these; `packets` and `messages`: messages between uvmd and these and other processes
//! * [`record_queue`]: records of one VA space, in a queue of this process
//! * [`sandbox`]: computations in a process that can do nothing else; `confinement`: privileges that these and
//!   actors drop
//! * [`host_memory`]: memory of the node; [`memory`]: return of freed memory to the kernel
//! * [`executable`]: program files, and whether libraries are preloaded into them; [`seccomp`]: filters of
//!   system calls
//! * [`shared_memory`]: shared memory that a process made for uvmd; `accessor`: processes that access it;
//!   [`futex`]: wake-ups of waiters for its words
//! * [`code`]: modules and functions of instructions of a process
//! * [`symbols`]: functions of the driver that can be probed; [`bpf`]: programs on them without kprobes
//! * [`families`] and [`btf`]: offsets of the fields that the probes read, in this driver and
//!   kernel
//!
//! Service and command line both use it, so that they report the same. Unsafe code is denied except
//! at the sites that expect it.

mod accessor;
pub mod actor;
pub mod bpf;
pub mod btf;
pub mod capabilities;
pub mod cgroup_namespace;
pub mod clock;
pub mod code;
mod confinement;
pub mod cpu_budget;
pub mod cpu_time;
pub mod driver;
pub mod driver_types;
pub mod executable;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod families;
pub mod fatal_error;
pub mod futex;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod holder;
pub mod host_memory;
pub mod kernel;
mod mappings;
pub mod memory;
mod messages;
mod packets;
pub mod parameters;
pub mod peer;
pub mod pidfd;
pub mod preconditions;
pub mod private;
pub mod private_proc;
pub mod process_reads;
mod process_status;
mod process_users;
pub mod processes;
mod readers;
pub mod record_queue;
pub mod roots;
pub mod sandbox;
pub mod seccomp;
mod server;
pub mod shared_memory;
pub mod symbols;
pub mod sysfs;
pub mod trackers;
pub mod uvm;

pub use roots::Roots;

/// Text of an error with its causes, without causes that it has already: some errors have the text of their source.
#[must_use]
pub fn message<'a>(chain: impl IntoIterator<Item = &'a (dyn std::error::Error + 'static)>) -> String {
    let mut message = String::new();
    for error in chain {
        let text = error.downcast_ref().map_or_else(|| error.to_string(), reason);
        if message.is_empty() {
            message = text;
        } else if !message.to_lowercase().contains(&text.to_lowercase()) {
            message = format!("{message}: {text}");
        }
    }
    message
}

/// Text of a system error, without Rust's "(os error N)".
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(_) => text.split(" (os error").next().unwrap_or(&text).to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read /x: {}", super::reason(source))]
    struct Unreadable {
        source: io::Error,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("no configuration")]
    struct Missing(#[source] Unreadable);

    #[test]
    fn a_cause_that_is_part_of_the_message_is_not_repeated() {
        let error = Missing(Unreadable { source: io::Error::from_raw_os_error(libc::ENOENT) });
        let chain = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
        assert_eq!(super::message(chain), "no configuration: cannot read /x: no such file or directory");
    }
}
