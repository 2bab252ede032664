//! Main loop of a holder: it serves its requests, closes the trackers of processes that have exited,
//! and reports when a queue is half full, until the channel closes.
//!
//! A queue that is half full is reported once, and then only after a request: a uvmd that takes no
//! messages must not have its channel filled by them.

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
    uvm::{outcome::Outcome, queue::FULL_QUEUE_RECORDS, tracker},
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
    /// Trackers whose queues are read. The driver has them readable while they are half full.
    queues: Vec<OwnedFd>,
    file: OwnedFd,
    process: OwnedFd,
    memory: Memory,
}

type Spaces = BTreeMap<u64, Space>;

/// Serves requests until the channel closes, or uvmd does not take the replies: a frozen uvmd must
/// not keep GPU memory in use for long.
pub(crate) fn serve(channel: BorrowedFd<'_>) -> io::Result<()> {
    serve_spaces(channel, Spaces::new())
}

fn serve_spaces(channel: BorrowedFd<'_>, mut spaces: Spaces) -> io::Result<()> {
    let mut is_armed = true;
    send_at_once(channel, &Reply::Confined, &[])?;
    loop {
        let Ready { is_requested, exited, is_half_full } = wait(channel, &spaces, is_armed)?;
        // Before anything else: the GPU memory of these is free after this.
        for space in exited {
            // Their last records are written first.
            if let Some(held) = spaces.remove(&space) {
                let _ = tracker::flush(held.file.as_fd());
            }
        }
        if is_half_full {
            is_armed = false;
            send_at_once(channel, &Reply::HalfFull, &[])?;
        }
        if is_requested {
            let Some((request, files)) = receive(channel)? else { return Ok(()) };
            is_armed |= request == Request::Rearm;
            send_at_once(channel, &respond(&mut spaces, request, files), &[])?;
        }
    }
}

/// What a wait ended with.
struct Ready {
    is_requested: bool,
    /// VA spaces of exited processes.
    exited: Vec<u64>,
    is_half_full: bool,
}

/// Waits for a request, for the exit of processes, or until a queue is half full if that is to be
/// reported.
fn wait(channel: BorrowedFd<'_>, spaces: &Spaces, is_armed: bool) -> io::Result<Ready> {
    let queues = spaces.values().filter(|_| is_armed).flat_map(|space| &space.queues);
    let mut polled: Vec<_> = [channel]
        .into_iter()
        .chain(spaces.values().map(|space| space.process.as_fd()))
        .chain(queues.map(AsFd::as_fd))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|each| !each.revents().is_empty());
    let is_requested = ready.next().unwrap_or_default();
    // The keys are the shorter side: of the other one, nothing is taken needlessly.
    let exited = spaces.keys().zip(&mut ready).filter_map(|(space, has_exited)| has_exited.then_some(*space)).collect();
    Ok(Ready { is_requested, exited, is_half_full: ready.any(|is_ready| is_ready) })
}

#[expect(unsafe_code, reason = "memory that the driver writes")]
fn respond(spaces: &mut Spaces, request: Request, files: Vec<OwnedFd>) -> Reply {
    match request {
        Request::Hold { space, memory_bytes } => match hold(memory_bytes, files) {
            Ok(held) => insert(spaces, space, held),
            Err(error) => not_held(&error),
        },
        Request::Create { space, memory_bytes } => match hold(memory_bytes, files) {
            Ok(held) => match Outcome::of(tracker::create_space(held.file.as_fd())) {
                Outcome::Done => insert(spaces, space, held),
                failed => Reply::Made(failed),
            },
            Err(error) => not_held(&error),
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
                // One that only counts is always full.
                let is_read = records as usize > FULL_QUEUE_RECORDS;
                if is_read { &mut held.queues } else { &mut held.trackers }.push(device);
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
        Request::Rearm => Reply::Made(Outcome::Done),
    }
}

fn insert(spaces: &mut Spaces, space: u64, held: Space) -> Reply {
    let fd = held.file.as_raw_fd();
    spaces.insert(space, held);
    Reply::Held { fd }
}

fn not_held(error: &io::Error) -> Reply {
    Reply::Made(Outcome::NotCalled { errno: error.raw_os_error().unwrap_or(libc::EINVAL) })
}

fn hold(memory_bytes: u64, files: Vec<OwnedFd>) -> io::Result<Space> {
    let bytes = usize::try_from(memory_bytes).ok().and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
    let [file, process, memory] = files.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(Space { trackers: Vec::new(), queues: Vec::new(), file, process, memory: Memory::of(memory, bytes)? })
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
    fn queue_that_is_half_full_is_reported_once_for_each_request() {
        let (channel, other_end) = pair().unwrap();
        let process = PidFd::open(std::process::id()).unwrap();
        let (queue, driver) = pair().unwrap();
        let space = Space {
            trackers: Vec::new(),
            queues: vec![queue],
            file: File::open("/dev/null").unwrap().into(),
            process: process.as_fd().try_clone_to_owned().unwrap(),
            memory: Memory::new(NonZeroUsize::MIN).unwrap(),
        };
        let spaces = Spaces::from([(1, space)]);
        send_at_once(channel.as_fd(), &Request::Rearm, &[]).unwrap();
        let ready = |is_armed| {
            let Ready { is_requested, exited, is_half_full } = wait(other_end.as_fd(), &spaces, is_armed).unwrap();
            assert!(is_requested && exited.is_empty());
            is_half_full
        };
        assert!(!ready(true));
        // Readable, as the driver has it.
        send_at_once(driver.as_fd(), &Request::Rearm, &[]).unwrap();
        assert_eq!([true, false].map(ready), [true, false]);

        let server = thread::spawn(move || serve_spaces(other_end.as_fd(), spaces));
        let reply = || receive::<Reply>(&channel).unwrap().unwrap().0;
        // It is reported, then the request is served, and it is reported again.
        let replies = [reply(), reply(), reply(), reply()];
        assert_eq!(replies, [Reply::Confined, Reply::HalfFull, Reply::Made(Outcome::Done), Reply::HalfFull]);
        assert_eq!(ask(&channel, Request::Flush { space: 9 }, &[]), Reply::NotHeld, "without another report");
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
        let create = Request::Create { space: 2, memory_bytes: memory.bytes() as u64 };
        assert_eq!(ask(&channel, create, &files), not_called(libc::ENOTTY));
        assert_eq!(ask(&channel, Request::Release { space: 2 }, &[]), Reply::NotHeld);
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
