//! Handle of an accessor, with the request whose reply is outstanding.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    accessor::wire::{Outcome, Reply, Request, receive_reply, send_request},
    actor::ActorError,
    cpu_time,
    pidfd::PidFd,
};

/// Ticks after which an accessor is late, once it was seen to have taken a request: 200 to 300 ms.
const REPLY_TICKS: u32 = 3;
/// The same while it has not taken the request: no program can delay that, but a busy node can.
const TAKE_TICKS: u32 = 20;
/// Longest time that a reply is charged with.
const SPENT_MAX: Duration = Duration::from_secs(1);
/// Longest time of an accessor's confinement.
const CONFINEMENT_MAX: Duration = Duration::from_secs(1);

/// Memory that a request is about.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) id: u64,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    pub(super) refusal: Arc<Refusal>,
}

/// Refusal of a memory whose request was late.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) is_refused: AtomicBool,
    /// Time of the late request that no caller was charged with, unless the accessor has not taken it.
    pub(super) uncharged_ns: AtomicU64,
}

/// Handle of an accessor.
#[derive(Debug)]
pub(super) struct Accessor {
    pub(super) channel: OwnedFd,
    /// Process; `None` for a thread of a test.
    pub(super) process: Option<PidFd>,
    /// Memories that it has.
    pub(super) memories: BTreeSet<u64>,
    pub(super) outstanding: Option<Outstanding>,
}

/// Request without a reply.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) begun: Instant,
    /// Whether the accessor was seen to have taken it.
    pub(super) is_taken: bool,
    /// Ticks since then, or since it was sent.
    pub(super) ticks: u32,
    /// Whether a caller has timed out waiting for it.
    pub(super) is_pending: bool,
    /// Bytes that its reply has at most.
    pub(super) body_bytes: usize,
    pub(super) is_removal: bool,
    pub(super) subject: Subject,
}

impl Accessor {
    /// Accessor of which the test is the other end, with a removal outstanding.
    #[cfg(test)]
    pub(super) fn of_test() -> (Self, OwnedFd) {
        let (channel, other_end) = crate::packets::pair().unwrap();
        let mut accessor = Self { channel, process: None, memories: BTreeSet::new(), outstanding: None };
        let subject = Subject { id: 1, identity: (0, 0), refusal: Arc::default() };
        accessor.send(&subject, &Request::Remove { memory: 1 }, None).unwrap();
        (accessor, other_end)
    }

    /// Accessor at the other end of a channel, once it is confined.
    pub(super) fn confined(channel: OwnedFd, process: Option<PidFd>) -> Result<Self, ActorError> {
        let mut accessor = Self { channel, process, memories: BTreeSet::new(), outstanding: None };
        match accessor.receive(CONFINEMENT_MAX, &mut []).map_err(ActorError::NotStarted)? {
            Some((Outcome::Confined, _)) => Ok(accessor),
            Some((Outcome::NotConfined { step, errno }, _)) => {
                Err(ActorError::NotConfined { step, source: io::Error::from_raw_os_error(errno) })
            }
            _ => {
                if let Some(process) = &accessor.process {
                    process.kill();
                }
                Err(ActorError::NotStarted(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Sends a request about a memory, whose reply is outstanding from now on.
    pub(super) fn send(&mut self, subject: &Subject, request: &Request, file: Option<&File>) -> io::Result<()> {
        send_request(self.channel.as_fd(), request, file.map(AsFd::as_fd))?;
        self.outstanding = Some(Outstanding {
            begun: Instant::now(),
            is_taken: false,
            ticks: 0,
            is_pending: false,
            body_bytes: if let Request::Read { bytes, .. } = request { *bytes } else { 0 },
            is_removal: matches!(request, Request::Remove { .. }),
            subject: subject.clone(),
        });
        Ok(())
    }

    /// Receives the reply to the outstanding request within a time, and charges this thread for the accessor's
    /// time.
    pub(super) fn receive(&mut self, at_most: Duration, body: &mut [u8]) -> io::Result<Option<(Outcome, usize)>> {
        let end = Instant::now() + at_most;
        loop {
            if let Some((Reply { outcome, spent }, bytes)) = receive_reply(&self.channel, body)? {
                self.outstanding = None;
                // A claim: no request is outstanding for longer.
                cpu_time::add_to_this_thread(spent.min(SPENT_MAX));
                return Ok(Some((outcome, bytes)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if let Some(outstanding) = self.outstanding.as_mut().filter(|_| !at_most.is_zero()) {
                    outstanding.is_pending = true;
                }
                return Ok(None);
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the accessor has taken the outstanding request.
    pub(super) fn is_taken(&mut self) -> bool {
        let Some(outstanding) = &mut self.outstanding else { return false };
        if !outstanding.is_taken && has_taken(&self.channel) {
            (outstanding.is_taken, outstanding.ticks) = (true, 0);
        }
        outstanding.is_taken
    }

    /// Counts a tick for the outstanding request.
    pub(super) fn tick(&mut self) {
        self.is_taken();
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.ticks += 1;
        }
    }

    /// Whether the reply to the outstanding request should have come.
    pub(super) fn is_late(&self) -> bool {
        let late_after = |outstanding: &Outstanding| if outstanding.is_taken { REPLY_TICKS } else { TAKE_TICKS };
        self.outstanding.as_ref().is_some_and(|outstanding| outstanding.ticks > late_after(outstanding))
    }
}

/// Whether the other end has received all that was sent to it.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
fn has_taken(channel: &OwnedFd) -> bool {
    let mut unread_bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one integer to the given address.
    let result = unsafe { libc::ioctl(channel.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread_bytes) };
    result != 0 || unread_bytes == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accessor::wire::receive_request;

    #[test]
    fn request_that_is_not_taken_has_more_time_than_one_that_is() {
        let (mut accessor, other_end) = Accessor::of_test();
        let ticks_until_late = |accessor: &mut Accessor| {
            let ticks = (0..100).take_while(|_| {
                accessor.tick();
                !accessor.is_late()
            });
            u32::try_from(ticks.count()).unwrap()
        };
        (0..TAKE_TICKS / 2).for_each(|_| accessor.tick());
        assert!(!accessor.is_late());
        receive_request(&other_end, &mut Vec::new()).unwrap().unwrap();
        assert_eq!(ticks_until_late(&mut accessor), REPLY_TICKS, "counted from here on");
        let (mut accessor, _other_end) = Accessor::of_test();
        assert_eq!(ticks_until_late(&mut accessor), TAKE_TICKS);
    }
}
