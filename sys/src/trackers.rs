//! Trackers in holders: the handle of a [holder](crate::holder), and the memory that its trackers
//! write.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

pub use crate::holder::memory::Memory;
use crate::{
    Roots,
    actor::{ActorError, Spawner},
    holder::wire::{Reply, Request},
    messages::{receive_at_once, send_at_once},
    pidfd::PidFd,
    processes,
    uvm::{
        Descriptor, Uuid, UvmError,
        outcome::Outcome,
        tracker::{self, DEVICE, DRIVER, Layout, REQUEST_NAME},
    },
};

/// Time after which a holder that has not replied hangs.
const REPLY_MAX: Duration = Duration::from_secs(5);
/// Time after which a stopped holder is replaced: it keeps GPU memory of exited processes in use.
const STOPPED_MAX: Duration = Duration::from_millis(300);

/// Reason why a holder is of no more use.
#[derive(Debug, Error)]
pub enum HolderError {
    /// It could not drop its privileges.
    #[error("a holder could not drop its privileges")]
    NotConfined(#[source] ActorError),
    /// It has exited, or its channel is full.
    #[error("a holder has exited, or takes no requests: {}", crate::reason(.0))]
    Gone(#[source] io::Error),
    /// It hangs, in the driver's teardown for example.
    #[error("a holder has not replied for {} s", REPLY_MAX.as_secs())]
    Hangs,
    /// It is stopped, by a signal or a debugger.
    #[error("a holder was stopped by a signal or a debugger; uvmd replaces it")]
    Stopped,
    /// A device of the driver cannot be opened.
    #[error(transparent)]
    Device(UvmError),
}

/// Outcome of a request about a VA space.
#[derive(Debug)]
pub enum Event {
    /// The VA space is held, by this descriptor of the holder.
    Held {
        /// VA space.
        space: u64,
        /// Its descriptor.
        place: Descriptor,
    },
    /// A tracker counts in this page of the VA space's memory.
    Counting {
        /// VA space.
        space: u64,
        /// Page of its memory.
        page: u32,
    },
    /// Records of the VA space are written to the ring after this page of its memory.
    Watching {
        /// VA space.
        space: u64,
        /// Control page of the ring.
        control_page: u32,
    },
    /// The records of all that had completed are written.
    Flushed,
    /// A queue of the holder is half full. Further ones are reported after [`Holder::rearm`].
    HalfFull,
    /// The VA space cannot be held or counted.
    Refused {
        /// VA space.
        space: u64,
        /// Error of the driver or the kernel.
        error: UvmError,
    },
    /// The process of the VA space has exited: its trackers are closed.
    Exited {
        /// VA space.
        space: u64,
    },
    /// The trackers of the VA space are closed, and its counts are final.
    Released {
        /// VA space.
        space: u64,
    },
}

/// Handle of a holder process. The process exits when this is dropped, and with its spawner.
#[derive(Debug)]
pub struct Holder {
    process: PidFd,
    channel: OwnedFd,
    is_confined: bool,
    /// Reports of a half full queue that may come without a further [`Self::rearm`].
    reports_left: u8,
    /// Requests without a reply, and when they were made.
    outstanding: VecDeque<(Request, Instant)>,
}

impl Holder {
    /// Starts a holder, in this process's cgroup.
    ///
    /// # Errors
    /// As [`Spawner::start_actor`].
    pub fn start(spawner: &mut Spawner) -> Result<Self, ActorError> {
        let child = spawner.start_holder()?;
        Ok(Self {
            process: child.process,
            channel: child.channel,
            is_confined: false,
            reports_left: 1,
            outstanding: VecDeque::new(),
        })
    }

    /// Process id of the holder.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Requests without a reply.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Has a VA space of a process held, with this memory. The holder releases it by itself when
    /// the process exits.
    ///
    /// # Errors
    /// If the holder is of no more use.
    pub fn hold(
        &mut self,
        space: u64,
        va_space: BorrowedFd<'_>,
        process: &PidFd,
        memory: &Memory,
    ) -> Result<(), HolderError> {
        let request = Request::Hold { space, memory_bytes: memory.bytes() as u64 };
        self.ask(request, &[va_space, process.as_fd(), memory.as_fd()])
    }

    /// Has an empty VA space made and held, with this memory: its records are those of all GPUs. The
    /// holder releases it when this process exits. `process`: this process.
    ///
    /// # Errors
    /// If the driver's device cannot be opened, or the holder is of no more use.
    pub fn create(&mut self, space: u64, process: &PidFd, memory: &Memory) -> Result<(), HolderError> {
        // Without a VA space until the holder makes it one: a close of this copy does nothing.
        let file = tracker::open(DRIVER).map_err(HolderError::Device)?;
        let request = Request::Create { space, memory_bytes: memory.bytes() as u64 };
        self.ask(request, &[file.as_fd(), process.as_fd(), memory.as_fd()])
    }

    /// Has a held VA space counted at a GPU, or at all processors if it is the CPU, in this page of
    /// its memory. See [`count`](crate::uvm::tracker::count).
    ///
    /// # Errors
    /// If the tools device cannot be opened, or the holder is of no more use.
    pub fn count(&mut self, space: u64, page: u32, layout: Layout, processor: Uuid) -> Result<(), HolderError> {
        let device = tracker::open(DEVICE).map_err(HolderError::Device)?;
        self.ask(Request::Count { space, page, layout, processor }, &[device.as_fd()])
    }

    /// Has records of a held VA space written, of these kinds, to a ring of this many that begins
    /// after this control page of its memory. See [`queue`](crate::uvm::queue).
    ///
    /// # Errors
    /// As [`Self::count`].
    pub fn watch(
        &mut self,
        space: u64,
        control_page: u32,
        layout: Layout,
        records: u32,
        kinds: u64,
    ) -> Result<(), HolderError> {
        let device = tracker::open(DEVICE).map_err(HolderError::Device)?;
        self.ask(Request::Watch { space, control_page, layout, records, kinds }, &[device.as_fd()])
    }

    /// Has the records of all that has completed written, of all VA spaces, by way of a held one.
    ///
    /// # Errors
    /// If the holder is of no more use.
    pub fn flush(&mut self, space: u64) -> Result<(), HolderError> {
        self.ask(Request::Flush { space }, &[])
    }

    /// Has one further queue reported that is half full.
    ///
    /// # Errors
    /// If the holder is of no more use.
    pub fn rearm(&mut self) -> Result<(), HolderError> {
        // One report may be on its way, and one be asked for.
        self.reports_left = self.reports_left.saturating_add(1).min(2);
        self.ask(Request::Rearm, &[])
    }

    /// Waits until there may be outcomes, at most this long.
    pub fn wait(&self, at_most: Duration) {
        let Ok(at_most) = Timespec::try_from(at_most) else { return };
        // An error shows when the outcomes are taken.
        let _ = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&at_most));
    }

    /// Closes the trackers of a VA space.
    ///
    /// # Errors
    /// If the holder is of no more use.
    pub fn release(&mut self, space: u64) -> Result<(), HolderError> {
        self.ask(Request::Release { space }, &[])
    }

    fn ask(&mut self, request: Request, files: &[BorrowedFd<'_>]) -> Result<(), HolderError> {
        send_at_once(self.channel.as_fd(), &request, files).map_err(HolderError::Gone)?;
        self.outstanding.push_back((request, Instant::now()));
        Ok(())
    }

    /// Outcomes since the last call. Does not wait.
    ///
    /// # Errors
    /// If the holder is of no more use.
    pub fn events(&mut self) -> Result<Vec<Event>, HolderError> {
        let mut events = Vec::new();
        while let Some(reply) = receive_at_once(self.channel.as_fd()).map_err(HolderError::Gone)? {
            match (reply, self.is_confined) {
                (Reply::Confined, false) => self.is_confined = true,
                (Reply::NotConfined { step, errno }, false) => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(HolderError::NotConfined(ActorError::NotConfined { step, source }));
                }
                (Reply::HalfFull, true) => {
                    self.reports_left = self.reports_left.checked_sub(1).ok_or_else(unasked)?;
                    events.push(Event::HalfFull);
                }
                (reply, _) => {
                    let (request, _) = self.outstanding.pop_front().ok_or_else(unasked)?;
                    if request != Request::Rearm {
                        events.push(event(self.process.pid(), request, reply)?);
                    }
                }
            }
        }
        match self.outstanding.front().map(|(_, asked)| asked.elapsed()) {
            Some(waited) if waited > REPLY_MAX => Err(HolderError::Hangs),
            Some(waited) if waited > STOPPED_MAX && self.is_stopped() => Err(HolderError::Stopped),
            _ => Ok(events),
        }
    }

    fn is_stopped(&self) -> bool {
        processes::is_stopped(&Roots::default(), self.process.pid())
    }

    /// Whether it has exited.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        self.process.has_exited().unwrap_or_default()
    }

    /// Kills the holder, which closes all its trackers.
    pub fn kill(&self) {
        self.process.kill();
    }
}

impl AsFd for Holder {
    /// Descriptor that is readable when there are outcomes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn unasked() -> HolderError {
    HolderError::Gone(io::ErrorKind::InvalidData.into())
}

fn event(holder: u32, request: Request, reply: Reply) -> Result<Event, HolderError> {
    Ok(match (request, reply) {
        (Request::Hold { space, .. } | Request::Create { space, .. }, Reply::Held { fd }) => {
            Event::Held { space, place: (holder, fd) }
        }
        (Request::Count { space, page, .. }, Reply::Made(Outcome::Done)) => Event::Counting { space, page },
        (Request::Watch { space, control_page, .. }, Reply::Made(Outcome::Done)) => {
            Event::Watching { space, control_page }
        }
        // Of a VA space whose process has exited, too: its records were written then.
        (Request::Flush { .. }, Reply::Made(_) | Reply::NotHeld) => Event::Flushed,
        (Request::Release { space }, Reply::Made(Outcome::Done) | Reply::NotHeld) => Event::Released { space },
        (Request::Count { space, .. } | Request::Watch { space, .. }, Reply::NotHeld) => Event::Exited { space },
        (
            Request::Hold { space, .. }
            | Request::Create { space, .. }
            | Request::Count { space, .. }
            | Request::Watch { space, .. },
            Reply::Made(outcome),
        ) => {
            let error = outcome.result(REQUEST_NAME).err().ok_or_else(unasked)?;
            Event::Refused { space, error }
        }
        _ => return Err(unasked()),
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::{messages::receive, packets::pair};

    /// Holder that replies what the test sends, with its process.
    fn holder() -> (Holder, OwnedFd, Child) {
        let (channel, other_end) = pair().unwrap();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        (
            Holder { process, channel, is_confined: false, reports_left: 1, outstanding: VecDeque::new() },
            other_end,
            child,
        )
    }

    #[test]
    fn report_of_a_half_full_queue_is_no_reply() {
        let (mut holder, other_end, mut child) = holder();
        holder.release(7).unwrap();
        for reply in [Reply::Confined, Reply::HalfFull, Reply::NotHeld] {
            send_at_once(other_end.as_fd(), &reply, &[]).unwrap();
        }
        let events = holder.events().unwrap();
        assert!(matches!(&events[..], [Event::HalfFull, Event::Released { space: 7 }]), "{events:?}");
        holder.rearm().unwrap();
        let requests = [(); 2].map(|()| receive::<Request>(&other_end).unwrap().unwrap().0);
        assert_eq!(requests, [Request::Release { space: 7 }, Request::Rearm]);
        // One is asked for.
        for _ in 0..2 {
            send_at_once(other_end.as_fd(), &Reply::HalfFull, &[]).unwrap();
        }
        assert!(holder.events().is_err(), "a holder that reports more is of no more use");
        send_at_once(other_end.as_fd(), &Reply::Made(Outcome::Done), &[]).unwrap();
        assert!(holder.events().unwrap().is_empty() && holder.outstanding() == 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn holder_that_lives_and_does_not_reply_hangs_after_five_seconds() {
        let (mut holder, _other_end, mut child) = holder();
        holder.flush(7).unwrap();
        assert!(holder.events().unwrap().is_empty());
        let asked = &mut holder.outstanding.front_mut().unwrap().1;
        *asked = asked.checked_sub(REPLY_MAX).unwrap();
        assert!(matches!(holder.events(), Err(HolderError::Hangs)));
        assert!(!holder.has_exited());
        holder.kill();
        child.wait().unwrap();
        assert!(holder.has_exited());
    }
}
