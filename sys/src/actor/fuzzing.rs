//! The messages between this process, a spawner and an actor, for fuzz targets.

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

use super::wire::{FILES_MAX, Order, Report, Request, Response, Wire, receive, send};

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
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
    /// The same message, as it would be sent.
    pub packet: Vec<u8>,
    /// Number of descriptors that came with the packet.
    pub files: usize,
    /// Message as the code's `Debug` writes it.
    pub said: String,
}

/// Descriptors that come with a message at most.
pub const DESCRIPTORS_MAX: usize = FILES_MAX;

/// Sends a packet over a socket of the kind that is used, with so many descriptors, and takes it at the other end.
///
/// # Errors
/// As whoever receives it: a message that means nothing.
pub fn receive_packet(language: Language, packet: &[u8], files: usize) -> io::Result<Option<Received>> {
    match language {
        Language::Order => one::<Order>(packet, files),
        Language::Report => one::<Report>(packet, files),
        Language::Request => one::<Request>(packet, files),
        Language::Response => one::<Response>(packet, files),
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
    Ok(Some(Received { packet, files: files.len(), said: format!("{message:?}") }))
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
