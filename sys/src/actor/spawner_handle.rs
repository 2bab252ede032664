//! The handle of a spawner.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
};

use super::{
    Actor, ActorError, Ending, SPAWNER_ARGUMENT,
    wire::{Order, Report, Wire, receive, send},
};
use crate::pidfd::PidFd;

/// Time limit of a spawner's reply, which is immediate unless the machine is very busy; to the end of an actor it waits a second.
const ANSWER: Duration = Duration::from_secs(10);
/// Time that the spawner has to exit.
const END: Duration = Duration::from_secs(1);

/// Executable of a spawner: a program whose main function calls [`run_if_spawner`](super::run_if_spawner) first.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Executable of this process, also when its file was replaced.
    #[must_use]
    pub fn this() -> Self {
        Self("/proc/self/exe".into())
    }

    /// Another one.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

/// Handle of the spawner process. It ends when this is dropped, and with the thread that started it; its actors end with it.
#[derive(Debug)]
pub struct Spawner {
    /// Taken away when it is to end.
    socket: Option<OwnedFd>,
    process: Child,
}

impl Spawner {
    /// Start one, and wait until it is ready. Nothing of this process comes with it but its user, its capabilities and its cgroup.
    ///
    /// # Errors
    /// If it cannot be started, or cannot give up what it is not to have.
    pub fn start(program: &Program) -> Result<Self, ActorError> {
        let (socket, its_end) = pair().map_err(ActorError::NoSpawner)?;
        let mut command = Command::new(&program.0);
        command.arg(SPAWNER_ARGUMENT).env_clear().current_dir("/");
        command.stdin(its_end).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(ActorError::NoSpawner)?;
        // The other end, which this process must not hold, goes with the command.
        drop(command);
        let spawner = Self { socket: Some(socket), process };
        match spawner.answer().map_err(ActorError::NoSpawner)? {
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

    /// Start an actor with these VA spaces, which [are](crate::uvm::target::VaSpace) some, in this cgroup (its folder), or in this process's own. It has
    /// descriptors of its own for them then.
    ///
    /// # Errors
    /// If the spawner is gone ([`ActorError::SpawnerGone`]: it is of no more use), or the kernel does not want it.
    pub fn start_actor(&mut self, spaces: &[impl AsFd], cgroup: Option<BorrowedFd<'_>>) -> Result<Actor, ActorError> {
        let (channel, its_end) = pair().map_err(ActorError::NotStarted)?;
        let files: Vec<BorrowedFd<'_>> =
            [its_end.as_fd()].into_iter().chain(spaces.iter().map(AsFd::as_fd)).chain(cgroup).collect();
        match self.ask(Order::Start { has_cgroup: cgroup.is_some() }, &files)? {
            (Report::Started { pid }, mut pidfd) => match pidfd.pop() {
                Some(pidfd) => Ok(Actor::new(pid, pidfd, channel)),
                None => Err(ActorError::SpawnerGone(io::ErrorKind::InvalidData.into())),
            },
            (Report::NotStarted { errno }, _) => Err(ActorError::NotStarted(io::Error::from_raw_os_error(errno))),
            _ => Err(ActorError::SpawnerGone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Lets an actor exit, waits a moment until it has, and returns how. If it is in a call, or does not end, it is killed.
    ///
    /// # Errors
    /// If it has not ended even so: the process, to see later whether it has.
    pub fn end(&mut self, mut actor: Actor) -> Result<Ending, PidFd> {
        actor.dismiss();
        for _ in 0..2 {
            match self.ask(Order::Reap { pid: actor.pid() }, &[]) {
                Ok((Report::Ended(ending), _)) => return Ok(ending),
                // With the spawner it has been killed.
                Ok(_) | Err(_) => actor.kill(),
            }
        }
        // What cannot be held cannot be waited for; it is killed all the same.
        actor.held().map_or(Ok(Ending::Unknown), Err)
    }

    fn ask(&mut self, order: Order, files: &[BorrowedFd<'_>]) -> Result<(Report, Vec<OwnedFd>), ActorError> {
        let socket = self.socket.as_ref().ok_or_else(|| ActorError::SpawnerGone(io::ErrorKind::NotConnected.into()))?;
        let answer = send(socket.as_fd(), &order, files).and_then(|()| self.answer());
        answer.map_err(|error| {
            // What it says later would be taken for the answer to something else.
            self.socket = None;
            ActorError::SpawnerGone(error)
        })
    }

    fn answer(&self) -> io::Result<(Report, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        within(socket.as_fd(), ANSWER)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.socket = None;
        let has_exited = |process: &Child| PidFd::open(process.id()).and_then(|process| process.wait_for_exit(END));
        if !has_exited(&self.process).unwrap_or_default() {
            let _ = self.process.kill();
            let _ = has_exited(&self.process);
        }
        // It is nobody's if it hangs even now.
        let _ = self.process.try_wait();
    }
}

/// Two ends of a channel.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Receives a message within this time.
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
