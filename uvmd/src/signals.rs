//! Signals that stop the service, and the one that reloads its configuration.

use std::{future, io, os::unix::net::UnixStream as Pipe};

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::net::UnixStream;

/// SIGHUP from the very start: it must not kill a process that has advice in force or is about to
/// read its configuration. It stays pending until it is read.
pub(crate) struct Hangup(Pipe);

impl Hangup {
    pub(crate) fn catch() -> io::Result<Self> {
        caught(SIGHUP).map(Self)
    }
}

/// Request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Reload of the configuration.
    Reload,
    /// Stop, with the name of the signal.
    Stop(&'static str),
}

/// SIGHUP, SIGTERM, SIGINT and SIGQUIT. Pending ones count once each.
pub(crate) struct Signals {
    hangup: UnixStream,
    terminate: UnixStream,
    interrupt: UnixStream,
    quit: UnixStream,
}

impl Signals {
    /// Catches the signals, which no longer kill the process. Needs the event loop.
    pub(crate) fn catch(Hangup(hangup): Hangup) -> io::Result<Self> {
        let stream = |pipe: Pipe| UnixStream::from_std(pipe);
        Ok(Self {
            hangup: stream(hangup)?,
            terminate: stream(caught(SIGTERM)?)?,
            interrupt: stream(caught(SIGINT)?)?,
            quit: stream(caught(SIGQUIT)?)?,
        })
    }

    /// Waits for the next one. A stop precedes a reload.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            name = Self::stop_of(&self.terminate, &self.interrupt, &self.quit) => Signal::Stop(name),
            () = arrived(&self.hangup) => Signal::Reload,
        }
    }

    /// Waits for the next stop; SIGHUP stays pending meanwhile.
    pub(crate) async fn stop(&mut self) -> &'static str {
        Self::stop_of(&self.terminate, &self.interrupt, &self.quit).await
    }

    async fn stop_of(terminate: &UnixStream, interrupt: &UnixStream, quit: &UnixStream) -> &'static str {
        tokio::select! {
            () = arrived(terminate) => "SIGTERM",
            () = arrived(interrupt) => "SIGINT",
            () = arrived(quit) => "SIGQUIT",
        }
    }
}

/// Pipe to which the signal handler writes.
fn caught(signal: i32) -> io::Result<Pipe> {
    let (here, there) = Pipe::pair()?;
    here.set_nonblocking(true)?;
    pipe::register(signal, there)?;
    Ok(here)
}

/// Waits for one or more arrivals of the signal.
async fn arrived(pipe: &UnixStream) {
    let mut has_arrived = false;
    while !has_arrived && pipe.readable().await.is_ok() {
        loop {
            match pipe.try_read(&mut [0; 64]) {
                Ok(1..) => has_arrived = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The handler keeps the other end open for ever.
                Ok(0) | Err(_) => return future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    /// A single test: signals concern the whole process.
    #[tokio::test]
    async fn pending_signals_count_once_and_a_stop_comes_first() {
        let hangup = Hangup::catch().unwrap();
        for _ in 0..100 {
            raise(SIGHUP).unwrap();
        }
        let mut signals = Signals::catch(hangup).unwrap();
        raise(SIGQUIT).unwrap();
        assert_eq!(signals.next().await, Signal::Stop("SIGQUIT"));
        assert_eq!(signals.next().await, Signal::Reload);
        raise(SIGHUP).unwrap();
        raise(SIGTERM).unwrap();
        assert_eq!(signals.stop().await, "SIGTERM");
        assert_eq!(signals.next().await, Signal::Reload, "it was kept");
        raise(SIGINT).unwrap();
        assert_eq!(signals.next().await, Signal::Stop("SIGINT"));
    }
}
