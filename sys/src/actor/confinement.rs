//! Privileges that a spawner and its actors drop.

use std::fs;

use rustix::{
    process::{DumpableBehavior, Pid, Resource, Rlimit, Signal},
    thread::{CapabilitySet, CapabilitySets},
};
use seccompiler::{BackendError, BpfProgram, apply_filter};

use crate::{
    confinement::{
        self, ACTOR_ID, Failed, Step, TO_CHANGE_USER, argument, at, at_filter, be_alone, close_all_but,
        drop_privileges, follow,
    },
    uvm::call::Call,
};

/// OOM score of the first victim in a cgroup, or of the node.
const KILLED_FIRST: &str = "1000";
/// Signals that request an exit. A spawner ignores them: it exits with its socket, and uvmd needs
/// it while it stops.
const REQUESTS_TO_END: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
/// Capabilities of a spawner: to enter cgroups of other users, and to change the user of its children.
const OF_SPAWNER: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(TO_CHANGE_USER);

/// Drops all privileges that a spawner does not need. Returns whether actors can run as another
/// user.
pub(super) fn of_spawner() -> Result<bool, Failed> {
    be_alone()?;
    close_all_but(&[0])?;
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
        Ok(effective.contains(TO_CHANGE_USER))
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
    close_all_but(open_fds)?;
    let _ = rustix::thread::set_name(c"uvmd-actor");
    set_requests_to_end(libc::SIG_DFL);
    drop_privileges(may_change_user.then_some(ACTOR_ID))?;
    follow(Some(spawner))?;
    apply_filter(filter).map_err(at_filter)
}

/// System calls of an actor: to receive, call the driver, wait while that is suspended, send and
/// exit; and those of memory and the clock.
pub(super) fn filter() -> Result<BpfProgram, Failed> {
    let calls = [
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
    ];
    let make = || {
        let driver = Call::NUMBERS.into_iter().map(argument).collect::<Result<_, BackendError>>()?;
        confinement::filter(&calls, [(libc::SYS_ioctl, driver)])
    };
    make().map_err(at_filter)
}

#[expect(unsafe_code, reason = "how a process takes signals")]
fn set_requests_to_end(action: libc::sighandler_t) {
    for signal in REQUESTS_TO_END {
        // SAFETY: neither action is a function.
        unsafe { libc::signal(signal, action) };
    }
}
