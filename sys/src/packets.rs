//! Packets of a Unix socket, with descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::uvm::target::SPACES_MAX;

/// Maximum descriptors of a packet: those of an actor's start, its channel, the VA spaces and the cgroup.
pub(crate) const FILES_MAX: usize = SPACES_MAX + 2;

/// Packet that was received.
pub(crate) struct Packet {
    pub(crate) bytes: usize,
    pub(crate) files: Vec<OwnedFd>,
}

/// Two ends of a channel.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a packet of these parts.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if files.len() > FILES_MAX || (!files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files))) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, parts, &mut control, flags | SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a packet into these parts. `None` if the other end is closed.
///
/// # Errors
/// [`malformed`] if the packet, or its descriptors, do not fit.
pub(crate) fn receive(socket: impl AsFd, parts: &mut [IoSliceMut<'_>], flags: RecvFlags) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&socket, parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(rustix::io::Errno::INTR) => {}
            // The peer closed its end with unread data.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    // The buffer has room for one or two more, as it is aligned.
    let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || files.len() > FILES_MAX;
    if is_cut { Err(malformed()) } else { Ok(Some(Packet { bytes: received.bytes, files })) }
}

/// Error of a packet that cannot be read.
pub(crate) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}
