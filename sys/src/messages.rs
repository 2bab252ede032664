//! Messages of one size between uvmd and processes of its own, each a packet of a Unix socket, some
//! with descriptors. Sender and receiver are the same program, so there is one version.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{RecvFlags, SendFlags};

use crate::packets;

const MESSAGE_BYTES: usize = 40;
type Message = [u8; MESSAGE_BYTES];

/// Message over a socket.
pub(crate) trait Wire: Sized {
    fn to_fields(&self) -> Fields;
    fn of_fields(fields: Fields) -> Option<Self>;
}

/// Fields of every message.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Fields {
    pub(crate) code: u32,
    pub(crate) number: u32,
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) uuid: [u8; 16],
}

impl Fields {
    pub(crate) fn to_bytes(self) -> Message {
        let mut bytes = [0; MESSAGE_BYTES];
        let parts: [&[u8]; 5] = [
            &self.code.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.base.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.uuid,
        ];
        for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    fn of_bytes(bytes: &Message) -> Option<Self> {
        let (code, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (base, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        Some(Self {
            code: u32::from_le_bytes(*code),
            number: u32::from_le_bytes(*number),
            base: u64::from_le_bytes(*base),
            length: u64::from_le_bytes(*length),
            uuid: rest.try_into().ok()?,
        })
    }
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Wire, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    packets::send(socket, &[IoSlice::new(&message.to_fields().to_bytes())], files, SendFlags::empty())
}

/// Sends a message with descriptors. An error if there is no room for it now.
pub(crate) fn send_at_once(socket: BorrowedFd<'_>, message: &impl Wire, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    packets::send(socket, &[IoSlice::new(&message.to_fields().to_bytes())], files, SendFlags::DONTWAIT)
}

/// Message that has arrived; `None` without any. An error if the other end is closed.
pub(crate) fn receive_at_once<M: Wire>(socket: impl AsFd) -> io::Result<Option<M>> {
    match receive_with(socket, RecvFlags::DONTWAIT) {
        Ok(Some((message, _))) => Ok(Some(message)),
        Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for a message. `None` if the other end is closed.
pub(crate) fn receive<M: Wire>(socket: impl AsFd) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    receive_with(socket, RecvFlags::empty())
}

fn receive_with<M: Wire>(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_BYTES];
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let Some(packet) = packets::receive(socket, parts, flags)? else { return Ok(None) };
    let message = Fields::of_bytes(&bytes).and_then(M::of_fields);
    match message {
        Some(message) if packet.bytes == MESSAGE_BYTES => Ok(Some((message, packet.files))),
        _ => Err(packets::malformed()),
    }
}
