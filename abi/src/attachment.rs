//! Calls of functions of the kernel by probes that are attached by fentry.
//!
//! The programs have a helper's number in their place, which no kernel has. The loader replaces it
//! by the function's type id, which depends on the kernel.

/// Number in place of `bpf_preempt_disable`.
pub const PREEMPT_DISABLE: usize = 0x7576_0001;
/// Number in place of `bpf_preempt_enable`.
pub const PREEMPT_ENABLE: usize = 0x7576_0002;

/// Numbers and the functions that they stand for.
pub const KERNEL_FUNCTIONS: [(usize, &str); 2] =
    [(PREEMPT_DISABLE, "bpf_preempt_disable"), (PREEMPT_ENABLE, "bpf_preempt_enable")];
