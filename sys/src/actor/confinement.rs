//! Privileges that a spawner and its actors drop.

use std::{collections::BTreeMap, fs, io};

use rustix::{
    process::{DumpableBehavior, Gid, Pid, Resource, Rlimit, Signal, Uid},
    thread::{CapabilitySet, CapabilitySets},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::step::Step;
use crate::uvm::call::Call;

/// User and group of actors. Any process of the same user may stop, kill, renice and limit an
/// actor, so no other process may have this id. It is therefore not 65534, as which many daemons
/// run, but one of 2147483648 to 4294967294, which systemd's table of ids leaves unassigned.
/// Container engines that assign these to user namespaces begin at the lower end.
pub(crate) const ACTOR_ID: u32 = 4_000_000_019;
/// OOM score of the first victim in a cgroup, or of the node.
const KILLED_FIRST: &str = "1000";
/// Signals that request an exit. A spawner ignores them: it exits with its socket, and uvmd needs
/// it while it stops.
const REQUESTS_TO_END: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
/// Capabilities of a spawner: to enter cgroups of other users, to change the user of its children,
/// and to kill them afterwards.
const OF_SPAWNER: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::SETUID).union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// Step that failed, and its error.
pub(crate) type Failed = (Step, io::Error);

pub(crate) fn at(step: Step) -> impl Fn(rustix::io::Errno) -> Failed {
    move |error| (step, error.into())
}

/// Drops all privileges that a spawner does not need. Returns whether actors can run as another
/// user.
pub(super) fn of_spawner() -> Result<bool, Failed> {
    let threads = fs::read_dir("/proc/self/task").map_err(|error| (Step::BeAlone, error))?.count();
    if threads != 1 {
        return Err((Step::BeAlone, io::ErrorKind::Unsupported.into()));
    }
    close_all_but(&[0]).map_err(|error| (Step::CloseDescriptors, error))?;
    let at_death = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    at_death.map_err(at(Step::FollowParent))?;
    // Signals of a terminal or service manager to the whole session are not meant for the spawner.
    let _ = rustix::process::setsid();
    set_requests_to_end(libc::SIG_IGN);
    let _ = rustix::thread::set_name(c"uvmd-spawner");
    let no_core = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, no_core).map_err(at(Step::DropPrivileges))?;
    // A large page would be copied whole, at the target's expense. An actor inherits this.
    rustix::thread::disable_transparent_huge_pages(true).map_err(at(Step::DisableHugePages))?;
    let privileges = || {
        let had = rustix::thread::capabilities(None)?;
        let effective = had.effective & OF_SPAWNER;
        let permitted = had.permitted & OF_SPAWNER;
        rustix::thread::clear_ambient_capability_set()?;
        let inheritable = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let to_change_user = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
        Ok(effective.contains(to_change_user))
    };
    privileges().map_err(at(Step::DropPrivileges))
}

/// Confinement of an actor for its target.
pub(super) struct OfActor<'a> {
    /// Parent, which must still exist.
    pub(super) spawner: Pid,
    pub(super) may_change_user: bool,
    /// Whether the actor is in its target's cgroup, and not in uvmd's.
    pub(super) in_target_cgroup: bool,
    pub(super) filter: &'a BpfProgram,
}

/// Drops all privileges and descriptors that an actor does not need, except these descriptors.
pub(super) fn of_actor(
    open_fds: &mut [i32],
    &OfActor { spawner, may_change_user, in_target_cgroup, filter }: &OfActor<'_>,
) -> Result<(), Failed> {
    if in_target_cgroup {
        // The actor shall be killed before the target. In uvmd's own cgroup that would be at uvmd's
        // cost: with `memory.oom.group`, which Kubernetes sets, the whole cgroup is killed with the
        // victim.
        fs::write("/proc/self/oom_score_adj", KILLED_FIRST).map_err(|error| (Step::RaiseOomScore, error))?;
    }
    open_fds.sort_unstable();
    close_all_but(open_fds).map_err(|error| (Step::CloseDescriptors, error))?;
    let _ = rustix::thread::set_name(c"uvmd-actor");
    set_requests_to_end(libc::SIG_DFL);
    let privileges = || {
        if may_change_user {
            let (user, group) = (Uid::from_raw(ACTOR_ID), Gid::from_raw(ACTOR_ID));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, nothing)?;
        // Other processes of the user may not inspect the actor.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
    };
    privileges().map_err(at(Step::DropPrivileges))?;
    // After the change of user, which resets it.
    let at_death = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    at_death.map_err(at(Step::FollowParent))?;
    if rustix::process::getppid() != Some(spawner) {
        return Err((Step::FollowParent, io::Error::from_raw_os_error(libc::ESRCH)));
    }
    seccompiler::apply_filter(filter).map_err(|error| (Step::RestrictCalls, io::Error::other(error)))
}

/// System calls of an actor: to receive, call the driver, wait while that is suspended, send and
/// exit; and those of memory and the clock.
pub(super) fn filter() -> Result<BpfProgram, Failed> {
    let make = || {
        let number = |request: u64| {
            // The kernel ignores the bits above 32.
            let is_it = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?;
            SeccompRule::new(vec![is_it])
        };
        let driver = Call::NUMBERS.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
            libc::SYS_recvmsg,
            libc::SYS_sendmsg,
            libc::SYS_clock_gettime,
            libc::SYS_clock_nanosleep,
            libc::SYS_nanosleep,
            libc::SYS_restart_syscall,
            libc::SYS_rt_sigreturn,
            libc::SYS_brk,
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_close,
            libc::SYS_exit_group,
        ]
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
        rules.insert(libc::SYS_ioctl, driver);
        let arch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
    };
    make().map_err(|error: seccompiler::BackendError| (Step::RestrictCalls, io::Error::other(error)))
}

/// Closes all descriptors except these, which are sorted.
#[expect(unsafe_code, reason = "other owners of these descriptors must not use them any more")]
pub(crate) fn close_all_but(open_fds: &[i32]) -> io::Result<()> {
    let close = |first: u32, last: u32| {
        if first > last {
            return Ok(());
        }
        // SAFETY: takes three numbers, touches no memory. No owner of one of these descriptors uses
        // it again: this is the start of a process, which has none of its parent's objects.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let mut next = 0;
    for fd in open_fds.iter().map(|fd| fd.cast_unsigned()) {
        if fd > next {
            close(next, fd - 1)?;
        }
        next = fd + 1;
    }
    close(next, u32::MAX)
}

#[expect(unsafe_code, reason = "how a process takes signals")]
fn set_requests_to_end(action: libc::sighandler_t) {
    for signal in REQUESTS_TO_END {
        // SAFETY: neither action is a function.
        unsafe { libc::signal(signal, action) };
    }
}
