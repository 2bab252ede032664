//! Main loop of a holder: it serves its requests, and closes the trackers of processes that have
//! exited, until the channel closes.

use std::{
    collections::BTreeMap,
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{
    memory::Memory,
    wire::{Reply, Request},
};
use crate::{
    confinement::HOLDER_ID,
    messages::{receive, send_at_once},
    server::{self, Start},
    uvm::{outcome::Outcome, tracker},
};

/// Runs a holder until its exit.
pub(crate) fn run(start: &Start<'_>) -> ! {
    server::run(|| {
        let channel = start.channel.as_fd();
        // It has several descriptors for each VA space.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        match start.confine(c"uvmd-holder", HOLDER_ID) {
            Ok(()) => serve(channel),
            Err((step, error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EPERM);
                send_at_once(channel, &Reply::NotConfined { step, errno }, &[])
            }
        }
    })
}

/// Held VA space. Trackers are closed first, as they are declared first.
#[derive(Debug)]
struct Space {
    trackers: Vec<OwnedFd>,
    file: OwnedFd,
    process: OwnedFd,
    memory: Memory,
}

type Spaces = BTreeMap<u64, Space>;

/// Serves requests until the channel closes, or uvmd does not take the replies: a frozen uvmd must
/// not keep GPU memory in use for long.
pub(crate) fn serve(channel: BorrowedFd<'_>) -> io::Result<()> {
    let mut spaces = Spaces::new();
    send_at_once(channel, &Reply::Confined, &[])?;
    loop {
        let (is_requested, exited) = wait(channel, &spaces)?;
        // Before anything else: the GPU memory of these is free after this.
        for space in exited {
            // Their last records are written first.
            if let Some(held) = spaces.remove(&space) {
                let _ = tracker::flush(held.file.as_fd());
            }
        }
        if is_requested {
            let Some((request, files)) = receive(channel)? else { return Ok(()) };
            send_at_once(channel, &respond(&mut spaces, request, files), &[])?;
        }
    }
}

/// Waits for a request, or for the exit of processes: whether there is a request, and the VA spaces
/// of exited processes.
fn wait(channel: BorrowedFd<'_>, spaces: &Spaces) -> io::Result<(bool, Vec<u64>)> {
    let mut polled: Vec<_> = [channel]
        .into_iter()
        .chain(spaces.values().map(|space| space.process.as_fd()))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|each| !each.revents().is_empty());
    let is_requested = ready.next().unwrap_or_default();
    Ok((
        is_requested,
        spaces.keys().zip(ready).filter_map(|(space, has_exited)| has_exited.then_some(*space)).collect(),
    ))
}

#[expect(unsafe_code, reason = "memory that the driver writes")]
fn respond(spaces: &mut Spaces, request: Request, files: Vec<OwnedFd>) -> Reply {
    match request {
        Request::Hold { space, memory_bytes } => match hold(memory_bytes, files) {
            Ok(held) => {
                let fd = held.file.as_raw_fd();
                spaces.insert(space, held);
                Reply::Held { fd }
            }
            Err(error) => Reply::Made(Outcome::NotCalled { errno: error.raw_os_error().unwrap_or(libc::EINVAL) }),
        },
        Request::Count { space, page, layout, processor } => {
            let Some(held) = spaces.get_mut(&space) else { return Reply::NotHeld };
            let (Ok([device]), Some(page)) = (<[OwnedFd; 1]>::try_from(files), held.memory.page(page as usize)) else {
                return Reply::Made(Outcome::NotCalled { errno: libc::EINVAL });
            };
            // SAFETY: the pages hold nothing but what the driver writes, are shared, which the words'
            // type allows for, and are dropped after their trackers.
            let counted = unsafe { tracker::count(device.as_fd(), layout, page, processor, held.file.as_fd()) };
            let outcome = Outcome::of(counted);
            if outcome == Outcome::Done {
                held.trackers.push(device);
            }
            Reply::Made(outcome)
        }
        Request::Watch { space, control_page, layout, records, kinds } => {
            let Some(held) = spaces.get_mut(&space) else { return Reply::NotHeld };
            let page = control_page as usize;
            let memory = held.memory.page(page).zip(held.memory.ring(page.saturating_add(1), records as usize));
            let (Ok([device]), Some((control, ring))) = (<[OwnedFd; 1]>::try_from(files), memory) else {
                return Reply::Made(Outcome::NotCalled { errno: libc::EINVAL });
            };
            // SAFETY: as for counters.
            let watched = unsafe { tracker::watch(device.as_fd(), layout, control, ring, kinds, held.file.as_fd()) };
            let outcome = Outcome::of(watched);
            if outcome == Outcome::Done {
                held.trackers.push(device);
            }
            Reply::Made(outcome)
        }
        Request::Flush { space } => match spaces.get(&space) {
            Some(held) => Reply::Made(Outcome::of(tracker::flush(held.file.as_fd()))),
            None => Reply::NotHeld,
        },
        Request::Release { space } => match spaces.remove(&space) {
            Some(_) => Reply::Made(Outcome::Done),
            None => Reply::NotHeld,
        },
    }
}

fn hold(memory_bytes: u64, files: Vec<OwnedFd>) -> io::Result<Space> {
    let bytes = usize::try_from(memory_bytes).ok().and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
    let [file, process, memory] = files.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(Space { trackers: Vec::new(), file, process, memory: Memory::of(memory, bytes)? })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, num::NonZeroUsize, process::Command, thread};

    use super::*;
    use crate::{
        messages::{receive, send_at_once},
        packets::pair,
        pidfd::PidFd,
        uvm::{Uuid, tracker::Layout},
    };

    /// Reply to a request.
    fn ask(channel: &OwnedFd, request: Request, files: &[BorrowedFd<'_>]) -> Reply {
        send_at_once(channel.as_fd(), &request, files).unwrap();
        receive(channel).unwrap().unwrap().0
    }

    fn confined() -> (OwnedFd, thread::JoinHandle<io::Result<()>>) {
        let (channel, other_end) = pair().unwrap();
        let server = thread::spawn(move || serve(other_end.as_fd()));
        assert_eq!(receive(&channel).unwrap().map(|(reply, _)| reply), Some(Reply::Confined));
        (channel, server)
    }

    #[test]
    fn va_space_is_closed_when_its_process_exits_without_a_request() {
        let (channel, server) = confined();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        // A socket whose other end shows whether it is open.
        let (read_end, write_end) = pair().unwrap();
        let memory = Memory::new(NonZeroUsize::MIN).unwrap();
        let request = Request::Hold { space: 1, memory_bytes: memory.bytes() as u64 };
        let reply = ask(&channel, request, &[read_end.as_fd(), process.as_fd(), memory.as_fd()]);
        assert!(matches!(reply, Reply::Held { .. }), "{reply:?}");
        drop(read_end);
        let mut closed = [PollFd::from_borrowed_fd(write_end.as_fd(), PollFlags::empty())];
        assert_eq!(poll(&mut closed, Some(&rustix::event::Timespec::default())), Ok(0));
        child.kill().unwrap();
        child.wait().unwrap();
        poll(&mut closed, None).unwrap();
        assert_eq!(ask(&channel, Request::Release { space: 1 }, &[]), Reply::NotHeld);
        drop(channel);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn invalid_requests_are_refused_and_the_server_goes_on() {
        let (channel, server) = confined();
        let process = PidFd::open(std::process::id()).unwrap();
        let null = File::open("/dev/null").unwrap();
        let memory = Memory::new(NonZeroUsize::MIN).unwrap();
        let not_called = |errno| Reply::Made(Outcome::NotCalled { errno });
        let count = |page| Request::Count { space: 1, page, layout: Layout::Plain, processor: Uuid::CPU };
        assert_eq!(ask(&channel, count(0), &[null.as_fd()]), Reply::NotHeld);
        let hold = |memory_bytes| Request::Hold { space: 1, memory_bytes };
        assert_eq!(ask(&channel, hold(0), &[null.as_fd(), process.as_fd(), memory.as_fd()]), not_called(libc::EINVAL));
        assert_eq!(ask(&channel, hold(4096), &[null.as_fd()]), not_called(libc::EINVAL));
        let files = [null.as_fd(), process.as_fd(), memory.as_fd()];
        let reply = ask(&channel, hold(memory.bytes() as u64), &files);
        assert!(matches!(reply, Reply::Held { .. }), "{reply:?}");
        assert_eq!(ask(&channel, count(1), &[null.as_fd()]), not_called(libc::EINVAL));
        assert_eq!(ask(&channel, count(0), &[]), not_called(libc::EINVAL));
        assert_eq!(ask(&channel, count(0), &[null.as_fd()]), not_called(libc::ENOTTY));
        assert_eq!(ask(&channel, Request::Release { space: 1 }, &[]), Reply::Made(Outcome::Done));
        drop(channel);
        server.join().unwrap().unwrap();
    }
}
