//! System calls of a holder.

use seccompiler::{BackendError, BpfProgram};

use crate::{
    confinement::{self, Failed, QUERY_BEFORE_CLOSE, argument, at_filter},
    uvm::tracker,
};

/// System calls of a holder: to wait, receive, map memory, attach trackers, send, close and exit;
/// and those of its own memory.
pub(crate) fn filter() -> Result<BpfProgram, Failed> {
    let calls = [
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_ppoll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigreturn,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_close,
        libc::SYS_exit_group,
    ];
    let make = || {
        let of_trackers = tracker::NUMBERS.into_iter().map(argument).collect::<Result<_, BackendError>>()?;
        let queries = vec![argument(QUERY_BEFORE_CLOSE)?];
        confinement::filter(&calls, [(libc::SYS_ioctl, of_trackers), (libc::SYS_fcntl, queries)])
    };
    make().map_err(at_filter)
}
