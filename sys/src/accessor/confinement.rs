//! System calls of an accessor.

use seccompiler::BpfProgram;

use crate::confinement::{self, Failed, QUERY_BEFORE_CLOSE, argument, at_filter};

/// System calls of an accessor: to receive, read and map memory, wake a helper, send and exit; and those of its own
/// memory and the clock.
pub(crate) fn filter() -> Result<BpfProgram, Failed> {
    let calls = [
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_pread64,
        libc::SYS_fstat,
        libc::SYS_statx,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigreturn,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_close,
        libc::SYS_exit_group,
    ];
    let make = || confinement::filter(&calls, [(libc::SYS_fcntl, vec![argument(QUERY_BEFORE_CLOSE)?])]);
    make().map_err(at_filter)
}
