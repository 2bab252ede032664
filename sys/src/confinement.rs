//! Confinement of uvmd's processes before they work for others: drop of descriptors, privileges and
//! system calls.

mod step;

use std::{collections::BTreeMap, fs, io};

use rustix::{
    process::{DumpableBehavior, Gid, Pid, Signal, Uid},
    thread::{CapabilitySet, CapabilitySets},
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
pub(crate) use step::Step;

/// User and group of actors. Any process of the same user may stop, kill, renice and limit an
/// actor, so no other process may have this id. It is therefore not 65534, as which many daemons
/// run, but one of 2147483648 to 4294967294, which systemd's table of ids leaves unassigned.
/// Container engines that assign these to user namespaces begin at the lower end.
pub(crate) const ACTOR_ID: u32 = 4_000_000_019;
/// The same of computations in a sandbox.
pub(crate) const SANDBOX_ID: u32 = ACTOR_ID + 1;
/// The same of accessors.
pub(crate) const ACCESSOR_ID: u32 = ACTOR_ID + 2;
/// The same of holders.
pub(crate) const HOLDER_ID: u32 = ACTOR_ID + 3;
/// Capabilities for children of another user: to change their user, and to kill them afterwards.
pub(crate) const TO_CHANGE_USER: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// Step that failed, and its error.
pub(crate) type Failed = (Step, io::Error);

pub(crate) fn at(step: Step) -> impl Fn(rustix::io::Errno) -> Failed {
    move |error| (step, error.into())
}

/// Checks that this process has one thread.
pub(crate) fn be_alone() -> Result<(), Failed> {
    match fs::read_dir("/proc/self/task").map_err(|error| (Step::BeAlone, error))?.count() {
        1 => Ok(()),
        _ => Err((Step::BeAlone, io::ErrorKind::Unsupported.into())),
    }
}

/// Drops all capabilities and groups, and takes this user and group, if any.
pub(crate) fn drop_privileges(id: Option<u32>) -> Result<(), Failed> {
    let drop = || {
        if let Some(id) = id {
            let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        rustix::thread::clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, nothing)?;
        rustix::thread::set_no_new_privs(true)?;
        // Other processes of the user may not inspect this one.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
    };
    drop().map_err(at(Step::DropPrivileges))
}

/// Lets the kernel kill this process when its parent's thread ends. Called after a change of user, which
/// resets that.
pub(crate) fn follow(parent: Option<Pid>) -> Result<(), Failed> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(Step::FollowParent))?;
    if rustix::process::getppid() == parent {
        Ok(())
    } else {
        Err((Step::FollowParent, io::Error::from_raw_os_error(libc::ESRCH)))
    }
}

/// Filter that permits these system calls, and those that match one of their rules; any other kills
/// the process.
pub(crate) fn filter(
    calls: &[i64],
    restricted: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
) -> Result<BpfProgram, BackendError> {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).chain(restricted).collect();
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}

/// Query by which the standard library checks a descriptor before it closes it, in builds with
/// assertions: second argument of `fcntl`.
pub(crate) const QUERY_BEFORE_CLOSE: u64 = libc::F_GETFD as u64;

/// Rule that the second argument of a call, of which the kernel ignores the bits above 32, is this.
pub(crate) fn argument(value: u64) -> Result<SeccompRule, BackendError> {
    let is_it = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![is_it])
}

/// Error of a filter.
pub(crate) fn at_filter(error: impl std::error::Error + Send + Sync + 'static) -> Failed {
    (Step::RestrictCalls, io::Error::other(error))
}

/// Closes all descriptors except these, which are sorted.
#[expect(unsafe_code, reason = "other owners of these descriptors must not use them any more")]
pub(crate) fn close_all_but(open_fds: &[i32]) -> Result<(), Failed> {
    let close = |first: u32, last: u32| {
        if first > last {
            return Ok(());
        }
        // SAFETY: takes three numbers, touches no memory. No owner of one of these descriptors uses
        // it again: this is the start of a process, which has none of its parent's objects.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
            0 => Ok(()),
            _ => Err((Step::CloseDescriptors, io::Error::last_os_error())),
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
