//! What the process gives up before it reads its input.

use std::{collections::BTreeMap, fs, io, process::id};

use rustix::{
    process::{DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid, setrlimit},
    thread::{CapabilitySet, CapabilitySets},
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::Limits;
use crate::actor::{
    confinement::{ACTOR_ID, Failed, at, close_all_but},
    step::Step,
};

/// User and group of the process, for the reasons of [`ACTOR_ID`].
const USER_ID: u32 = ACTOR_ID + 1;
/// The process computes when no other wants to.
const NICE: i32 = 19;

/// Limits and confines this process.
pub(super) fn confine(limits: Limits) -> Result<(), Failed> {
    let threads = fs::read_dir("/proc/self/task").map_err(|error| (Step::BeAlone, error))?.count();
    if threads != 1 {
        return Err((Step::BeAlone, io::ErrorKind::Unsupported.into()));
    }
    close_all_but(&[0, 1, 2]).map_err(|error| (Step::CloseDescriptors, error))?;
    let parent = rustix::process::getppid();
    let _ = rustix::thread::set_name(c"uvmd-planner");
    rustix::process::setpriority_process(None, NICE).map_err(at(Step::LimitResources))?;
    let cpu_s = limits.cpu.as_secs().max(1);
    for (resource, limit) in [(Resource::Core, 0), (Resource::Data, limits.memory_bytes), (Resource::Cpu, cpu_s)] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).map_err(at(Step::LimitResources))?;
    }
    let privileges = || {
        let had = rustix::thread::capabilities(None)?;
        if had.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL) {
            let (user, group) = (Uid::from_raw(USER_ID), Gid::from_raw(USER_ID));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        rustix::thread::clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, nothing)?;
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
    };
    privileges().map_err(at(Step::DropPrivileges))?;
    // After the change of user, which resets it.
    let at_death = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    at_death.map_err(at(Step::FollowParent))?;
    if rustix::process::getppid() != parent {
        return Err((Step::FollowParent, io::Error::from_raw_os_error(libc::ESRCH)));
    }
    let filter = filter().map_err(|error| (Step::RestrictCalls, io::Error::other(error)))?;
    seccompiler::apply_filter(&filter).map_err(|error| (Step::RestrictCalls, io::Error::other(error)))
}

/// System calls of a computation: to read and write its pipes, for private memory that is not
/// executable, random numbers of hash tables and the clock; and to report a panic and abort.
fn filter() -> Result<BpfProgram, BackendError> {
    let is = |argument, value| SeccompCondition::new(argument, Length::Dword, SeccompCmpOp::Eq, value);
    let has =
        |argument, mask, value| SeccompCondition::new(argument, Length::Dword, SeccompCmpOp::MaskedEq(mask), value);
    let bits = |bits: libc::c_int| u64::from(bits.cast_unsigned());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
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
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    let is_private = has(3, bits(libc::MAP_TYPE | libc::MAP_ANONYMOUS), bits(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS))?;
    let is_no_code = has(2, bits(libc::PROT_EXEC), 0)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![is_private, is_no_code])?]);
    let abort = vec![is(0, u64::from(id()))?, is(2, bits(libc::SIGABRT))?];
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(abort)?]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}
