//! Confinement of the process before it reads its input.

use std::{ffi::CStr, process::id};

use rustix::{
    process::{Resource, Rlimit, getppid, setpriority_process, setrlimit},
    thread::set_name,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen as Length, SeccompCmpOp, SeccompCondition, SeccompRule, apply_filter,
};

use super::Limits;
use crate::confinement::{
    self, Failed, SANDBOX_ID, Step, TO_CHANGE_USER, at, at_filter, be_alone, close_all_but, drop_privileges, follow,
};

/// The process computes when no other wants to.
const NICE: i32 = 19;

/// Limits and confines this process, and names it.
pub(super) fn confine(name: &CStr, limits: Limits) -> Result<(), Failed> {
    be_alone()?;
    close_all_but(&[0, 1, 2])?;
    let parent = getppid();
    let _ = set_name(name);
    setpriority_process(None, NICE).map_err(at(Step::LimitResources))?;
    let cpu_s = limits.cpu.as_secs().max(1);
    for (resource, limit) in [(Resource::Core, 0), (Resource::Data, limits.memory_bytes), (Resource::Cpu, cpu_s)] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).map_err(at(Step::LimitResources))?;
    }
    let had = rustix::thread::capabilities(None).map_err(at(Step::DropPrivileges))?;
    drop_privileges(had.effective.contains(TO_CHANGE_USER).then_some(SANDBOX_ID))?;
    follow(parent)?;
    apply_filter(&filter().map_err(at_filter)?).map_err(at_filter)
}

/// System calls of a computation: to read and write its pipes, for private memory that is not
/// executable, random numbers of hash tables and the clock; and to report a panic and abort.
fn filter() -> Result<BpfProgram, BackendError> {
    let is = |argument, value| SeccompCondition::new(argument, Length::Dword, SeccompCmpOp::Eq, value);
    let has =
        |argument, mask, value| SeccompCondition::new(argument, Length::Dword, SeccompCmpOp::MaskedEq(mask), value);
    let bits = |bits: libc::c_int| u64::from(bits.cast_unsigned());
    let calls = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_exit_group,
    ];
    let is_private = has(3, bits(libc::MAP_TYPE | libc::MAP_ANONYMOUS), bits(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS))?;
    let is_no_code = has(2, bits(libc::PROT_EXEC), 0)?;
    let memory = SeccompRule::new(vec![is_private, is_no_code])?;
    let abort = SeccompRule::new(vec![is(0, u64::from(id()))?, is(2, bits(libc::SIGABRT))?])?;
    confinement::filter(&calls, [(libc::SYS_mmap, vec![memory]), (libc::SYS_tgkill, vec![abort])])
}
