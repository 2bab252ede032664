//! Privileges that an accessor drops.

use rustix::process::Pid;
use seccompiler::{BpfProgram, SeccompCmpArgLen as Length, SeccompCmpOp, SeccompCondition, SeccompRule, apply_filter};

use crate::confinement::{self, ACCESSOR_ID, Failed, at_filter, close_all_but, drop_privileges, follow};

/// Drops all privileges and descriptors that an accessor does not need, except its channel.
pub(crate) fn confine(channel: i32, spawner: Pid, may_change_user: bool, filter: &BpfProgram) -> Result<(), Failed> {
    close_all_but(&[channel])?;
    let _ = rustix::thread::set_name(c"uvmd-accessor");
    drop_privileges(may_change_user.then_some(ACCESSOR_ID))?;
    follow(Some(spawner))?;
    apply_filter(filter).map_err(at_filter)
}

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
    // The standard library queries a descriptor before it closes it, in builds with assertions.
    let is_query = SeccompCondition::new(1, Length::Dword, SeccompCmpOp::Eq, u64::from(libc::F_GETFD.cast_unsigned()));
    let queries = is_query.and_then(|is_query| SeccompRule::new(vec![is_query])).map_err(at_filter)?;
    confinement::filter(&calls, [(libc::SYS_fcntl, vec![queries])]).map_err(at_filter)
}
