use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use super::*;
use crate::{
    messages::{receive, send},
    packets::FILES_MAX,
    uvm::UvmError,
};

const MIB: u64 = 1 << 20;

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn arrives<M: Wire + PartialEq + std::fmt::Debug>(message: &M) {
    let (here, there) = pair();
    send(here.as_fd(), message, &[]).unwrap();
    let (received, files) = receive::<M>(&there).unwrap().unwrap();
    assert_eq!((&received, files.len()), (message, 0));
}

#[test]
fn messages_round_trip() {
    let servers = Server::ALL.map(Order::Serve);
    let others = [Order::Start { has_cgroup: false }, Order::Start { has_cgroup: true }, Order::Reap { pid: 77 }];
    for order in others.into_iter().chain(servers) {
        arrives(&order);
    }
    for report in [
        Report::Ready,
        Report::Started { pid: u32::MAX },
        Report::NotStarted { errno: libc::EAGAIN },
        Report::Ended(Ending::Exited(1)),
        Report::Ended(Ending::Killed(9)),
        Report::Ended(Ending::Unknown),
        Report::StillThere,
    ] {
        arrives(&report);
    }
    for step in Step::ALL {
        arrives(&Report::NotReady { step, errno: libc::EPERM });
        arrives(&Response::NotConfined { step, errno: libc::ENOSYS });
    }
    let (pages, gpu) = (PageRange::new(2 * MIB, 4 * MIB).unwrap(), Uuid::from_bytes(*b"a GPU of sixteen"));
    for call in [
        Call::Migrate(pages, gpu),
        Call::SetPreferredLocation(pages, Uuid::CPU),
        Call::UnsetPreferredLocation(pages),
        Call::SetAccessedBy(pages, gpu),
        Call::UnsetAccessedBy(pages, gpu),
        Call::EnableReadDuplication(pages),
        Call::DisableReadDuplication(pages),
        Call::CompareFlags(SpaceFlags(1)),
    ] {
        arrives(&Request { space: 7, call });
    }
    arrives(&Response::Confined);
    let took = Duration::from_nanos(123_456_789_012);
    for outcome in [Outcome::Done, Outcome::Refused(Status::NO_MEMORY), Outcome::NotCalled { errno: libc::ENOTTY }] {
        arrives(&Response::Made { outcome, took });
    }
}

#[test]
fn errors_round_trip() {
    let there = |result| Outcome::of(result).result("UVM_MIGRATE").unwrap_err().to_string();
    let refused = || UvmError::Refused { request: "UVM_MIGRATE", status: Status::NO_MEMORY };
    assert_eq!(there(Err(refused())), refused().to_string());
    let failed = || UvmError::Call { request: "UVM_MIGRATE", source: io::Error::from_raw_os_error(libc::ENOTTY) };
    assert_eq!(there(Err(failed())), failed().to_string());
    assert!(Outcome::of(Ok(())).result("UVM_MIGRATE").is_ok());
}

#[test]
fn descriptors_arrive_with_cloexec() {
    let (here, there) = pair();
    let files: Vec<_> = (0..FILES_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    send(here.as_fd(), &Order::Start { has_cgroup: true }, &borrowed).unwrap();
    let (_, received) = receive::<Order>(&there).unwrap().unwrap();
    assert_eq!(received.len(), FILES_MAX);
    for file in received {
        assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(files.iter().all(|sent| sent.as_raw_fd() != file.as_raw_fd()));
    }
    let one_more = [borrowed.as_slice(), &borrowed[..1]].concat();
    assert!(send(here.as_fd(), &Order::Start { has_cgroup: true }, &one_more).is_err());
}

#[test]
fn excess_descriptors_are_an_error() {
    for more in 1..=4 {
        let (here, there) = pair();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX + 4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = vec![here.as_fd(); FILES_MAX + more];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let message = Order::Start { has_cgroup: true }.to_fields().to_bytes();
        sendmsg(&here, &[IoSlice::new(&message)], &mut control, SendFlags::empty()).unwrap();
        assert!(receive::<Order>(&there).is_err(), "{more} more");
    }
}

#[test]
fn closed_peer_is_end_of_stream() {
    let (here, there) = pair();
    drop(here);
    assert!(receive::<Order>(&there).unwrap().is_none());
}

#[test]
fn malformed_messages_are_an_error() {
    fn means_nothing<M: Wire>(bytes: &[u8]) -> bool {
        let (here, there) = pair();
        rustix::net::send(&here, bytes, SendFlags::empty()).unwrap();
        receive::<M>(&there).is_err()
    }
    let fields = |code, number, base| Fields { code, number, base, ..Fields::default() }.to_bytes();
    for bytes in [&[0; 40][..], &[1; 41], &[1; 39], &fields(99, 0, 0), &fields(1, 2, 0)[..39]] {
        assert!(means_nothing::<Order>(bytes) && means_nothing::<Report>(bytes), "{bytes:?}");
        assert!(means_nothing::<Request>(bytes) && means_nothing::<Response>(bytes), "{bytes:?}");
    }
    assert!(Order::of_fields(Fields { code: 1, number: 2, ..Fields::default() }).is_none());
    // A malformed range and an unknown call.
    let request = |code, base, length| Request::of_fields(Fields { code, base, length, ..Fields::default() });
    assert!(request(1, 0, 4096).is_some());
    for (code, base, length) in [(1, 1, 4096), (1, 0, 0), (1, 0, 1 << 40), (9, 0, 4096), (0, 0, 4096)] {
        assert_eq!(request(code, base, length), None);
    }
    assert!(Response::of_fields(Fields { code: 4, base: 99, ..Fields::default() }).is_none());
}
