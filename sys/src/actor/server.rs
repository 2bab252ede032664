//! Main loop of an actor: it makes the calls of its requests, one after the other, until the
//! channel closes.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use super::{
    confinement::{self, OfActor},
    wire::{Request, Response},
};
use crate::{
    messages::{receive, send},
    server,
    uvm::outcome::Outcome,
};

/// Arguments of an actor.
pub(super) struct Start<'a> {
    pub(super) channel: OwnedFd,
    pub(super) spaces: Vec<OwnedFd>,
    pub(super) confinement: OfActor<'a>,
}

/// Runs an actor until its exit. The parent's objects are not dropped.
pub(super) fn run(start: &Start<'_>) -> ! {
    server::run(|| serve(start))
}

fn serve(Start { channel, spaces, confinement }: &Start<'_>) -> io::Result<()> {
    let mut open_fds: Vec<i32> = spaces.iter().chain([channel]).map(AsRawFd::as_raw_fd).collect();
    let channel = channel.as_fd();
    if let Err((step, error)) = confinement::of_actor(&mut open_fds, confinement) {
        let errno = error.raw_os_error().unwrap_or(libc::EPERM);
        return send(channel, &Response::NotConfined { step, errno }, &[]);
    }
    send(channel, &Response::Confined, &[])?;
    // Descriptors that come with a request are closed at once.
    while let Some((Request { space, call }, _)) = receive(channel)? {
        let begun = Instant::now();
        let file: Option<BorrowedFd<'_>> = spaces.get(space as usize).map(AsFd::as_fd);
        let outcome = file.map_or(Outcome::NotCalled { errno: libc::EBADF }, |file| Outcome::of(call.make(file)));
        send(channel, &Response::Made { outcome, took: begun.elapsed() }, &[])?;
    }
    Ok(())
}
