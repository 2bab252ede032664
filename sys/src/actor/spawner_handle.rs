//! Handle of a spawner.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{self, Command, Stdio},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    Actor, ActorError, Ending, SPAWNER_ARGUMENT,
    wire::{Order, Report, Server},
};
use crate::{
    executable::Program,
    messages::{Wire, receive, send},
    packets::pair,
    pidfd::PidFd,
};

/// Time limit of a spawner's reply, which is immediate unless the machine is very busy; the spawner
/// waits a second for an actor's exit.
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// Time that the spawner has to exit.
const END: Duration = Duration::from_secs(1);

/// Server that was started.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) process: PidFd,
    pub(crate) channel: OwnedFd,
}

/// Handle of the spawner process. The spawner exits on drop and with the thread that started it;
/// its actors exit with it.
#[derive(Debug)]
pub struct Spawner {
    /// Socket; `None` once the spawner shall exit.
    socket: Option<OwnedFd>,
    process: process::Child,
}

impl Spawner {
    /// Starts a spawner, and waits until it is ready: an execution of a program whose main function
    /// calls [`run_if_spawner`](super::run_if_spawner) first. It inherits only this process's user,
    /// capabilities and cgroup.
    ///
    /// # Errors
    /// If it cannot be started, or cannot drop its privileges.
    pub fn start(program: &Program) -> Result<Self, ActorError> {
        let (socket, other_end) = pair().map_err(ActorError::NoSpawner)?;
        let mut command = Command::new(program.path());
        command.arg(SPAWNER_ARGUMENT).env_clear().current_dir("/");
        command.stdin(other_end).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(ActorError::NoSpawner)?;
        // The command holds the other end, which this process must not keep.
        drop(command);
        let spawner = Self { socket: Some(socket), process };
        match spawner.receive_report().map_err(ActorError::NoSpawner)? {
            (Report::Ready, _) => Ok(spawner),
            (Report::NotReady { step, errno }, _) => {
                Err(ActorError::NotConfined { step, source: io::Error::from_raw_os_error(errno) })
            }
            _ => Err(ActorError::NoSpawner(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Process id of the spawner.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Starts an actor with these [VA spaces](crate::uvm::target::VaSpace), in this cgroup (its
    /// folder), or in this process's own. The actor has its own descriptors of them.
    ///
    /// # Errors
    /// If the spawner has exited ([`ActorError::SpawnerGone`]: it is unusable), or the kernel
    /// cannot start the actor.
    pub fn start_actor(&mut self, spaces: &[impl AsFd], cgroup: Option<BorrowedFd<'_>>) -> Result<Actor, ActorError> {
        let (channel, other_end) = pair().map_err(ActorError::NotStarted)?;
        let files: Vec<BorrowedFd<'_>> =
            [other_end.as_fd()].into_iter().chain(spaces.iter().map(AsFd::as_fd)).chain(cgroup).collect();
        match self.ask(Order::Start { has_cgroup: cgroup.is_some() }, &files)? {
            (Report::Started { pid }, _) => Ok(Actor::new(child(pid)?, channel)),
            (Report::NotStarted { errno }, _) => Err(ActorError::NotStarted(io::Error::from_raw_os_error(errno))),
            _ => Err(ActorError::SpawnerGone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Starts an accessor, in this process's cgroup.
    ///
    /// # Errors
    /// As [`Self::start_actor`].
    pub(crate) fn start_accessor(&mut self) -> Result<Child, ActorError> {
        self.start_server(Server::Accessor)
    }

    /// Starts a holder, in this process's cgroup.
    ///
    /// # Errors
    /// As [`Self::start_actor`].
    pub(crate) fn start_holder(&mut self) -> Result<Child, ActorError> {
        self.start_server(Server::Holder)
    }

    fn start_server(&mut self, server: Server) -> Result<Child, ActorError> {
        let (channel, other_end) = pair().map_err(ActorError::NotStarted)?;
        match self.ask(Order::Serve(server), &[other_end.as_fd()])? {
            (Report::Started { pid }, _) => Ok(Child { process: child(pid)?, channel }),
            (Report::NotStarted { errno }, _) => Err(ActorError::NotStarted(io::Error::from_raw_os_error(errno))),
            _ => Err(ActorError::SpawnerGone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Reaps a server that has exited.
    pub(crate) fn reap(&mut self, pid: u32) {
        // Without a spawner, init reaps it.
        let _ = self.ask(Order::Reap { pid }, &[]);
    }

    /// Lets an actor exit, waits a moment for it, and returns its exit. If it is in a call, or does
    /// not exit, it is killed.
    ///
    /// # Errors
    /// If it has not exited even so. The error is a handle of the process, to wait for its exit
    /// later.
    pub fn end(&mut self, mut actor: Actor) -> Result<Ending, PidFd> {
        actor.dismiss();
        for _ in 0..2 {
            match self.ask(Order::Reap { pid: actor.pid() }, &[]) {
                Ok((Report::Ended(ending), _)) => return Ok(ending),
                // Without a spawner the actor has been killed.
                Ok(_) | Err(_) => actor.kill(),
            }
        }
        // A process without a handle cannot be waited for; it is killed all the same.
        actor.held().map_or(Ok(Ending::Unknown), Err)
    }

    fn ask(&mut self, order: Order, files: &[BorrowedFd<'_>]) -> Result<(Report, Vec<OwnedFd>), ActorError> {
        let socket = self.socket.as_ref().ok_or_else(|| ActorError::SpawnerGone(io::ErrorKind::NotConnected.into()))?;
        let receive_report = match send(socket.as_fd(), &order, files) {
            // The same user has too many descriptors in flight elsewhere: nothing was sent.
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => {
                return Err(ActorError::NotStarted(error));
            }
            sent => sent.and_then(|()| self.receive_report()),
        };
        receive_report.map_err(|error| {
            // A late report would be taken for that of another order.
            self.socket = None;
            ActorError::SpawnerGone(error)
        })
    }

    fn receive_report(&self) -> io::Result<(Report, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        within(socket.as_fd(), REPLY_LIMIT)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.socket = None;
        let has_exited =
            |process: &process::Child| PidFd::open(process.id()).and_then(|process| process.wait_for_exit(END));
        if !has_exited(&self.process).unwrap_or_default() {
            let _ = self.process.kill();
            let _ = has_exited(&self.process);
        }
        // If it hangs even now, no process waits for it.
        let _ = self.process.try_wait();
    }
}

/// Child of the spawner, which reaps it only after this: no other process can have its id. The spawner sends no
/// descriptor, as those that the same user has in flight elsewhere could exceed its limit.
fn child(pid: u32) -> Result<PidFd, ActorError> {
    PidFd::open(pid).map_err(|error| ActorError::NotStarted(io::Error::other(error)))
}

/// Receives a message within a time.
fn within<M: Wire>(socket: BorrowedFd<'_>, at_most: Duration) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let at_most = Timespec::try_from(at_most).map_err(io::Error::other)?;
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&at_most)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return receive(socket),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
