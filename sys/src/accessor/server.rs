//! Main loop of an accessor: it serves its requests, one after the other, until the channel closes.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    num::NonZeroUsize,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use call_ring::{Operation, operation::apply};

use super::{
    mapping::{Mapping, WORD_BYTES, is_sparse},
    wire::{Outcome, Reply, Request, receive_request, send_reply},
};
use crate::{
    confinement::ACCESSOR_ID,
    cpu_time, futex,
    server::{self, Start},
};

/// Runs an accessor until its exit.
pub(crate) fn run(start: &Start<'_>) -> ! {
    server::run(|| {
        let channel = start.channel.as_fd();
        match start.confine(c"uvmd-accessor", ACCESSOR_ID) {
            Ok(()) => serve(channel),
            Err((step, error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EPERM);
                reply(channel, Outcome::NotConfined { step, errno })
            }
        }
    })
}

fn reply(channel: BorrowedFd<'_>, outcome: Outcome) -> io::Result<()> {
    send_reply(channel, Reply { outcome, spent: cpu_time::of_this_thread() }, &[])
}

/// Serves requests until the channel closes.
pub(crate) fn serve(channel: BorrowedFd<'_>) -> io::Result<()> {
    let mut server = Server::default();
    let mut cpu_before = Duration::ZERO;
    reply(channel, Outcome::Confined)?;
    let mut buffer = Vec::new();
    while let Some((request, file)) = receive_request(channel, &mut buffer)? {
        let begun = Instant::now();
        let (outcome, bytes) = server.respond(request, file, &mut buffer);
        let cpu_now = cpu_time::of_this_thread();
        // Also the time for which the memory made it wait, but not the time until it was woken for the request.
        let spent = begun.elapsed().max(cpu_now.saturating_sub(cpu_before));
        cpu_before = cpu_now;
        send_reply(channel, Reply { outcome, spent }, buffer.get(..bytes).unwrap_or_default())?;
    }
    Ok(())
}

/// Memory of a program.
#[derive(Debug)]
struct Memory {
    file: File,
    /// Bytes from its begin that may be written.
    writable_bytes: NonZeroUsize,
    /// The same, from the first write on.
    mapping: Option<Mapping>,
    /// Whether holes were seen in it.
    had_holes: bool,
}

#[derive(Debug, Default)]
struct Server {
    memories: BTreeMap<u64, Memory>,
}

/// Error of a request.
struct Failed(Outcome);

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(Outcome::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }
}

impl Server {
    /// Outcome of a request, and the number of bytes read into the buffer.
    fn respond(&mut self, request: Request, file: Option<OwnedFd>, buffer: &mut Vec<u8>) -> (Outcome, usize) {
        match self.try_respond(request, file, buffer) {
            Ok((count, bytes)) => (Outcome::Done(count), bytes),
            Err(Failed(outcome)) => (outcome, 0),
        }
    }

    fn try_respond(
        &mut self,
        request: Request,
        file: Option<OwnedFd>,
        buffer: &mut Vec<u8>,
    ) -> Result<(usize, usize), Failed> {
        const INVALID: Failed = Failed(Outcome::Failed { errno: libc::EINVAL });
        match request {
            Request::Add { memory, writable_bytes } => {
                let bytes = usize::try_from(writable_bytes).ok().and_then(NonZeroUsize::new);
                let (Some(file), Some(writable_bytes)) = (file, bytes) else { return Err(INVALID) };
                let memory_of_program =
                    Memory { file: File::from(file), writable_bytes, mapping: None, had_holes: false };
                self.memories.insert(memory, memory_of_program);
                Ok((0, 0))
            }
            Request::Remove { memory } => {
                self.memories.remove(&memory);
                Ok((0, 0))
            }
            Request::Read { memory, offset, bytes } => {
                let memory = self.memories.get_mut(&memory).ok_or(INVALID)?;
                memory.check_holes()?;
                buffer.resize(bytes, 0);
                // Holes are zeros, and stay holes. The kernel copies aligned words whole: a copy of whole pages
                // loads at least a word at a time, on all processors that uvmd supports.
                memory.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => INVALID,
                    _ => error.into(),
                })?;
                Ok((bytes, bytes))
            }
            Request::Write { memory, wake, operations } => {
                let memory = self.memories.get_mut(&memory).ok_or(INVALID)?;
                let count = memory.writable_bytes.get() / WORD_BYTES;
                if operations.iter().map(Operation::at).chain(wake).any(|at| at >= count) {
                    return Err(INVALID);
                }
                let words = memory.words()?;
                let done = apply(operations, words);
                if let Some(word) = wake.and_then(|wake| words.get(wake)) {
                    futex::wake(word);
                }
                Ok((done, 0))
            }
        }
    }
}

impl Memory {
    /// Checks that the file has had no holes. This may hang, as some kernels take the lock of its inode.
    fn check_holes(&mut self) -> Result<(), Failed> {
        self.had_holes |= is_sparse(&self.file.metadata()?);
        if self.had_holes { Err(Failed(Outcome::Sparse)) } else { Ok(()) }
    }

    /// Words that may be written. The program can punch holes at any time: a write to one that is punched just now
    /// costs this process a page.
    fn words(&mut self) -> Result<&[AtomicU64], Failed> {
        self.check_holes()?;
        let mapping = match self.mapping.take() {
            Some(mapping) => mapping,
            None => Mapping::new(&self.file, self.writable_bytes)?,
        };
        Ok(self.mapping.insert(mapping).words())
    }
}
