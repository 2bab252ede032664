//! Handle of an actor.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    ActorError, Ending,
    wire::{Request, Response},
};
use crate::{
    messages::{receive, send},
    pidfd::{PidFd, PidFdError},
    uvm::{UvmError, call::Call, target::must_live},
};

/// Handle of an actor process, which is killed on drop. [`Spawner::end`](super::Spawner::end) lets
/// it exit instead, and waits.
#[derive(Debug)]
pub struct Actor {
    process: PidFd,
    /// Channel; `None` once the actor shall exit.
    channel: Option<OwnedFd>,
    is_confined: bool,
    /// Name of the call in progress.
    calls: Option<&'static str>,
}

/// Reply of an actor to a call.
#[derive(Debug)]
pub struct Reply {
    /// Result from the driver.
    pub result: Result<(), UvmError>,
    /// Duration of the call in the driver.
    pub took: Duration,
}

impl Actor {
    pub(super) const fn new(process: PidFd, channel: OwnedFd) -> Self {
        Self { process, channel: Some(channel), is_confined: false, calls: None }
    }

    /// Process id of the actor.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a call on one of the actor's VA spaces, by its index at the start, unless the target
    /// has exited. The next call comes after [`Actor::reply`].
    ///
    /// # Errors
    /// If the actor or the target has exited.
    pub fn ask(&mut self, target: &PidFd, space: usize, call: Call) -> Result<(), ActorError> {
        must_live(target)?;
        let space = u32::try_from(space).unwrap_or(u32::MAX);
        let channel = self.channel.as_ref().ok_or(ActorError::Ended(Ending::Unknown))?;
        self.calls = Some(call.name());
        // If the actor has exited, the reply reports it.
        let _ = send(channel.as_fd(), &Request { space, call }, &[]);
        Ok(())
    }

    /// Whether the actor has dropped its privileges; waits at most this long. Without this call,
    /// [`Actor::reply`] reports a failure.
    ///
    /// # Errors
    /// As [`Actor::reply`].
    pub fn is_confined(&mut self, target: &PidFd, at_most: Duration) -> Result<bool, ActorError> {
        while !self.is_confined {
            if self.receive(target, at_most)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Receives the reply to the call within a time; `None` if it is still missing.
    ///
    /// # Errors
    /// If the actor has exited or could not drop its privileges, or the target exits, which ends
    /// the wait.
    pub fn reply(&mut self, target: &PidFd, at_most: Duration) -> Result<Option<Reply>, ActorError> {
        if !self.is_confined(target, at_most)? {
            return Ok(None);
        }
        let Some(Response::Made { outcome, took }) = self.receive(target, at_most)? else { return Ok(None) };
        let name = self.calls.take().unwrap_or("a call");
        Ok(Some(Reply { result: outcome.result(name), took }))
    }

    fn receive(&mut self, target: &PidFd, at_most: Duration) -> Result<Option<Response>, ActorError> {
        let channel = self.channel.as_ref().ok_or(ActorError::Ended(Ending::Unknown))?;
        let mut ends = [PollFd::new(channel, PollFlags::IN), PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)];
        let at_most = Timespec::try_from(at_most).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut ends, Some(&at_most)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => {
                return Err(ActorError::Target(PidFdError::Call { call: "poll", source: error.into() }));
            }
        }
        let [replied, _] = ends;
        if replied.revents().is_empty() {
            return Err(ActorError::Target(PidFdError::NoProcess(target.pid())));
        }
        match receive(channel) {
            Ok(Some((response @ Response::Made { .. }, _))) => Ok(Some(response)),
            Ok(Some((Response::Confined, _))) => {
                self.is_confined = true;
                Ok(Some(Response::Confined))
            }
            Ok(Some((Response::NotConfined { step, errno }, _))) => {
                Err(ActorError::NotConfined { step, source: io::Error::from_raw_os_error(errno) })
            }
            Ok(None) | Err(_) => Err(ActorError::Ended(Ending::Unknown)),
        }
    }

    /// Kills the actor; a call in the driver still completes before it exits.
    pub fn kill(&self) {
        // It has exited, or cannot be killed; its exit will be seen.
        self.process.kill();
    }

    /// Lets the actor exit by itself, unless it is in a call.
    pub(super) fn dismiss(&mut self) {
        if self.calls.is_some() {
            self.kill();
        }
        self.channel = None;
    }

    /// Descriptor of the actor, which becomes readable when it has exited.
    pub(super) fn held(&self) -> io::Result<PidFd> {
        self.process.try_clone()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}
