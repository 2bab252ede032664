//! Privileges that a holder drops.

use rustix::process::{Pid, Resource, Rlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen as Length, SeccompCmpOp, SeccompCondition, SeccompRule, apply_filter,
};

use crate::{
    confinement::{self, Failed, HOLDER_ID, at_filter, close_all_but, drop_privileges, follow},
    uvm::tracker,
};

/// Drops all privileges and descriptors that a holder does not need, except its channel.
pub(crate) fn confine(channel: i32, spawner: Pid, may_change_user: bool, filter: &BpfProgram) -> Result<(), Failed> {
    close_all_but(&[channel])?;
    let _ = rustix::thread::set_name(c"uvmd-holder");
    // It has several descriptors for each VA space.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    drop_privileges(may_change_user.then_some(HOLDER_ID))?;
    follow(Some(spawner))?;
    apply_filter(filter).map_err(at_filter)
}

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
    let argument = |value: u64| {
        // The kernel ignores the bits above 32.
        SeccompCondition::new(1, Length::Dword, SeccompCmpOp::Eq, value).and_then(|is| SeccompRule::new(vec![is]))
    };
    let make = || {
        let of_trackers = tracker::NUMBERS.into_iter().map(argument).collect::<Result<_, BackendError>>()?;
        // The standard library queries a descriptor before it closes it, in builds with assertions.
        let queries = vec![argument(u64::from(libc::F_GETFD.cast_unsigned()))?];
        confinement::filter(&calls, [(libc::SYS_ioctl, of_trackers), (libc::SYS_fcntl, queries)])
    };
    make().map_err(at_filter)
}
