//! Messages between this process, a spawner and an actor, for fuzz targets.

use std::{
    fmt::Debug,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair,
};

use super::wire::{Order, Report, Request, Response};
use crate::messages::{Wire, receive, send};
use crate::packets::FILES_MAX;

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To a spawner.
    Order,
    /// From a spawner.
    Report,
    /// To an actor.
    Request,
    /// From an actor.
    Response,
}

/// Result of decoding a packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// Message, encoded again.
    pub packet: Vec<u8>,
    /// Number of descriptors that came with the packet.
    pub files: usize,
    /// Message in `Debug` format.
    pub debug: String,
}

/// Maximum descriptors of a message.
pub const DESCRIPTORS_MAX: usize = FILES_MAX;

/// Sends a packet over such a socket, with this many descriptors, and receives it at the other end.
///
/// # Errors
/// As the receiver: a malformed message.
pub fn receive_packet(direction: Direction, packet: &[u8], files: usize) -> io::Result<Option<Received>> {
    match direction {
        Direction::Order => one::<Order>(packet, files),
        Direction::Report => one::<Report>(packet, files),
        Direction::Request => one::<Request>(packet, files),
        Direction::Response => one::<Response>(packet, files),
    }
}

fn one<M: Wire + Debug>(packet: &[u8], files: usize) -> io::Result<Option<Received>> {
    let (from, to) = pair()?;
    send_packet(from.as_fd(), packet, files)?;
    let Some((message, files)) = receive::<M>(&to)? else { return Ok(None) };
    let (from, to) = pair()?;
    send(from.as_fd(), &message, &[])?;
    let mut packet = vec![0; packet.len() + 1];
    let (length, _) = recv(&to, packet.as_mut_slice(), RecvFlags::empty())?;
    packet.truncate(length);
    Ok(Some(Received { packet, files: files.len(), debug: format!("{message:?}") }))
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a packet, with more descriptors than are accepted on request.
fn send_packet(socket: BorrowedFd<'_>, packet: &[u8], files: usize) -> io::Result<()> {
    const MOST: usize = 2 * FILES_MAX;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = vec![socket; files.min(MOST)];
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
