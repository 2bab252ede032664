//! VA space that a process passes to a child by a socket, closes, and takes back: whoever counts it by
//! its process has to follow it.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
    time::Duration,
};

use anyhow::Context;
use gpu::{swgpu::Gpu, uvm::VaSpace};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::announce;
use crate::sys::process;

/// Time for which each process has the VA space: enough for others to find it there.
const TURN: Duration = Duration::from_millis(1200);

pub(super) fn relay() -> anyhow::Result<()> {
    let gpu = Gpu::open(0)?;
    let mut va_space: OwnedFd = VaSpace::new([&gpu.uuid])?.file().try_clone()?.into();
    announce("relay");
    loop {
        thread::sleep(TURN);
        let (ours, theirs) = UnixStream::pair()?;
        process::start_child(|| {
            let va_space = receive(&theirs)?;
            thread::sleep(TURN);
            send(&theirs, &va_space)
        })?;
        send(&ours, &va_space)?;
        drop(va_space);
        va_space = receive(&ours)?;
    }
}

fn send(socket: &UnixStream, file: &OwnedFd) -> anyhow::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    let _ = control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).context("cannot pass a descriptor")?;
    Ok(())
}

fn receive(socket: &UnixStream) -> anyhow::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::empty())?;
    let files = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.context("no descriptor was passed")
}
