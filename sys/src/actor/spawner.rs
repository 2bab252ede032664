//! Process that starts actors, with one thread and no other task.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    process::ExitCode,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SocketType, sockopt::socket_type},
    process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, getpid, waitid},
};
use seccompiler::BpfProgram;

use super::{
    Ending, SPAWNER_ARGUMENT,
    confinement::{self, OfActor},
    server,
    wire::{Order, Report, Server},
};
use crate::{
    accessor,
    confinement::Failed,
    holder,
    messages::{receive, send},
    server::Start,
    uvm::target::SPACES_MAX,
};

/// Maximum of live actors. There is more than one only if some hang.
const ACTORS_MAX: usize = 65;
/// Maximum of live servers: more than users have recordings and VA spaces, and those that hang.
const SERVERS_MAX: usize = 1024;
/// Time that an actor has to exit after its channel closes.
const END: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Runs a spawner, if this process was started as one, and returns its exit status. To be called
/// first in main: there must be no other thread.
#[must_use]
pub fn run_if_spawner() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != OsStr::new(SPAWNER_ARGUMENT) || words.next().is_some() {
        return None;
    }
    let input = io::stdin();
    if !socket_type(&input).is_ok_and(|kind| kind == SocketType::SEQPACKET) {
        let _ = writeln!(io::stderr(), "{SPAWNER_ARGUMENT} is for uvmd itself, which starts it with a socket");
        return Some(ExitCode::from(2));
    }
    Some(if serve(input.as_fd()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut spawner = match Spawner::confined() {
        Ok(spawner) => spawner,
        Err((step, error)) => {
            let errno = error.raw_os_error().unwrap_or(libc::EPERM);
            return send(socket, &Report::NotReady { step, errno }, &[]);
        }
    };
    send(socket, &Report::Ready, &[])?;
    while let Some((order, files)) = receive(socket)? {
        match order {
            Order::Start { has_cgroup } => match spawner.start(has_cgroup, files) {
                Ok(pid) => send(socket, &Report::Started { pid }, &[])?,
                Err(error) => send(socket, &not_started(&error), &[])?,
            },
            Order::Serve(server) => match spawner.start_server(server, files) {
                Ok(pid) => send(socket, &Report::Started { pid }, &[])?,
                Err(error) => send(socket, &not_started(&error), &[])?,
            },
            Order::Reap { pid } => send(socket, &spawner.reap(pid), &[])?,
        }
    }
    Ok(())
}

fn not_started(error: &io::Error) -> Report {
    Report::NotStarted { errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}

struct Spawner {
    own: Pid,
    may_change_user: bool,
    filter: BpfProgram,
    accessor_filter: BpfProgram,
    holder_filter: BpfProgram,
    /// Live actors or servers.
    children: Vec<(u32, OwnedFd)>,
}

impl Spawner {
    fn confined() -> Result<Self, Failed> {
        // Looked up once: an actor may not read it.
        let _ = procfs::page_size();
        let filter = confinement::filter()?;
        let (accessor_filter, holder_filter) = (accessor::confinement::filter()?, holder::confinement::filter()?);
        let may_change_user = confinement::of_spawner()?;
        Ok(Self { own: getpid(), may_change_user, filter, accessor_filter, holder_filter, children: Vec::new() })
    }

    /// Starts an actor with the channel, the VA spaces, and the cgroup.
    fn start(&mut self, has_cgroup: bool, mut files: Vec<OwnedFd>) -> io::Result<u32> {
        self.reap_exited(ACTORS_MAX)?;
        let cgroup = if has_cgroup { files.pop() } else { None };
        if !(2..=1 + SPACES_MAX).contains(&files.len()) || has_cgroup != cgroup.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let channel = files.remove(0);
        // SAFETY: this process has one thread, as confinement::of_spawner checked, and nothing here
        // starts another.
        #[expect(unsafe_code, reason = "the child continues in this program")]
        let cloned = unsafe { clone(cgroup.as_ref().map(AsFd::as_fd)) }?;
        match cloned {
            Cloned::Child => server::run(&server::Start {
                channel,
                spaces: files,
                confinement: OfActor {
                    spawner: self.own,
                    may_change_user: self.may_change_user,
                    in_target_cgroup: has_cgroup,
                    filter: &self.filter,
                },
            }),
            Cloned::Parent { pid, pidfd } => {
                self.children.push((pid, pidfd));
                Ok(pid)
            }
        }
    }

    /// Starts a server with its channel, in the cgroup of this process.
    fn start_server(&mut self, server: Server, mut files: Vec<OwnedFd>) -> io::Result<u32> {
        self.reap_exited(SERVERS_MAX)?;
        let (Some(channel), true) = (files.pop(), files.is_empty()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: this process has one thread, as confinement::of_spawner checked, and nothing here
        // starts another.
        #[expect(unsafe_code, reason = "the child continues in this program")]
        let cloned = unsafe { clone(None) }?;
        match cloned {
            Cloned::Child => {
                let start =
                    |filter| Start { channel, spawner: self.own, may_change_user: self.may_change_user, filter };
                match server {
                    Server::Accessor => accessor::server::run(&start(&self.accessor_filter)),
                    Server::Holder => holder::server::run(&start(&self.holder_filter)),
                }
            }
            Cloned::Parent { pid, pidfd } => {
                self.children.push((pid, pidfd));
                Ok(pid)
            }
        }
    }

    /// Reaps children that have exited. An error if there are as many others as this.
    fn reap_exited(&mut self, max: usize) -> io::Result<()> {
        self.children.retain(|(_, pidfd)| ending(pidfd.as_fd()).is_none());
        if self.children.len() < max { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBUSY)) }
    }

    /// Waits a moment for the exit of a child.
    fn reap(&mut self, pid: u32) -> Report {
        let Some(at) = self.children.iter().position(|(other, _)| *other == pid) else {
            return Report::Ended(Ending::Unknown);
        };
        let Some((_, pidfd)) = self.children.get(at) else { return Report::Ended(Ending::Unknown) };
        // An error is no exit.
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&END));
        match ending(pidfd.as_fd()) {
            Some(ending) => {
                self.children.swap_remove(at);
                Report::Ended(ending)
            }
            None => Report::StillThere,
        }
    }
}

/// Exit of this child; its status is reaped.
fn ending(pidfd: BorrowedFd<'_>) -> Option<Ending> {
    let of_status = |status: WaitIdStatus| match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Ending::Exited(status),
        (_, Some(signal)) => Ending::Killed(signal),
        _ => Ending::Unknown,
    };
    match waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(status) => status.map(of_status),
        // Not a child of this process.
        Err(_) => Some(Ending::Unknown),
    }
}

/// Flag of linux/sched.h; the type of libc's constant is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

enum Cloned {
    Parent { pid: u32, pidfd: OwnedFd },
    Child,
}

/// Clones this process, into a cgroup if there is one, as fork does: the child continues here.
///
/// # Safety
/// The process has no other thread.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
unsafe fn clone(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    const FLAGS: libc::c_long = (libc::CLONE_PIDFD | libc::SIGCHLD) as libc::c_long;
    const UNSET: libc::c_long = 0;
    let mut pidfd: libc::c_int = -1;
    let pid = match cgroup {
        // SAFETY: the caller ensures what both require.
        Some(cgroup) => unsafe { clone_into(cgroup, &mut pidfd) },
        // Not clone3, which service managers forbid, as their filters cannot read its flags.
        // SAFETY: without a stack and without CLONE_VM, the child has a copy of all memory and continues here; the
        // caller ensures its other requirements. The kernel writes one descriptor to the given address.
        None => unsafe { libc::syscall(libc::SYS_clone, FLAGS, UNSET, &raw mut pidfd, UNSET, UNSET) },
    };
    match u32::try_from(pid) {
        Ok(0) => Ok(Cloned::Child),
        // SAFETY: the kernel just created the descriptor for this process, so there is no other
        // owner.
        Ok(pid) => Ok(Cloned::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// System call clone3 into a cgroup, as [`clone`] needs it.
///
/// # Safety
/// As [`clone`].
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
unsafe fn clone_into(cgroup: BorrowedFd<'_>, pidfd: &mut libc::c_int) -> libc::c_long {
    // SAFETY: integers only, for which 0 means unset.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(libc::CLONE_PIDFD.cast_unsigned()) | CLONE_INTO_CGROUP;
    arguments.pidfd = std::ptr::from_mut(pidfd).expose_provenance() as u64;
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    // SAFETY: as in `clone`, whose requirements the caller ensures; the arguments live until the call returns.
    unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) }
}
