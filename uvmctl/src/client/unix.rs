//! Transport over a Unix socket for ureq, which has none.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use ureq::{
    Error,
    unversioned::transport::{self, Buffers, ConnectionDetails, LazyBuffers, NextTimeout, Transport},
};

use super::owner::Owners;

/// Connector to one socket, regardless of a request's host.
#[derive(Debug)]
pub(crate) struct Connector {
    path: PathBuf,
    owners: Owners,
}

impl Connector {
    /// Creates a connector that accepts servers of these owners only.
    pub(crate) fn to(socket: &Path, owners: Owners) -> Self {
        Self { path: socket.to_owned(), owners }
    }
}

impl transport::Connector for Connector {
    type Out = UnixTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<UnixTransport>, Error> {
        let stream = UnixStream::connect(&self.path)?;
        self.owners.check(&stream)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

#[derive(Debug)]
pub(crate) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(time_left(timeout.for_write())?)?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| timeout_error(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(time_left(timeout.for_read())?)?;
        let room = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(|error| timeout_error(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Whether the connection can be reused: neither unexpected bytes nor an end of file are
    /// pending.
    fn is_open(&mut self) -> bool {
        let read_pending = |stream: &mut UnixStream| {
            stream.set_nonblocking(true)?;
            let result = stream.read(&mut [0]);
            stream.set_nonblocking(false)?;
            result
        };
        matches!(read_pending(&mut self.stream), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Time left for a call; `None` without a limit.
fn time_left(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|left| *left))
}

/// Maps an expired socket timeout, which is `WouldBlock` or `TimedOut`, to ureq's error.
fn timeout_error(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}
