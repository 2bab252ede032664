//! Messages between this process and an accessor, for fuzz targets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::wire::{BODY_BYTES_MAX, receive_reply, receive_request, send_reply, send_request};

/// Sends a packet to an accessor, and returns what it has received as a packet; `None` if that is malformed.
///
/// # Errors
/// If there is no socket, or it does not take the packet.
pub fn resend_request(packet: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    let (from, to) = pair()?;
    send(&from, packet, SendFlags::NOSIGNAL)?;
    let Ok(Some((request, _))) = receive_request(&to, &mut Vec::new()) else { return Ok(None) };
    send_request(from.as_fd(), &request, None)?;
    Ok(Some(received(to.as_fd(), packet.len())?))
}

/// The same of a packet from an accessor.
///
/// # Errors
/// As [`resend_request`].
pub fn resend_reply(packet: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    let (from, to) = pair()?;
    send(&from, packet, SendFlags::NOSIGNAL)?;
    let mut body = vec![0; BODY_BYTES_MAX];
    let Ok(Some((reply, bytes))) = receive_reply(&to, &mut body) else { return Ok(None) };
    send_reply(from.as_fd(), reply, body.get(..bytes).unwrap_or_default())?;
    Ok(Some(received(to.as_fd(), packet.len())?))
}

fn pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Packet of a socket, with a byte more than expected if it is longer.
fn received(socket: BorrowedFd<'_>, expected_bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut packet = vec![0; expected_bytes + 1];
    let (length, _) = recv(socket, packet.as_mut_slice(), RecvFlags::empty())?;
    packet.truncate(length);
    Ok(packet)
}
