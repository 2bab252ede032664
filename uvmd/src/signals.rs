//! The signals that stop the service, and the one that has it read its configuration again.

use std::{future, io, os::unix::net::UnixStream as Pipe};

use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::net::UnixStream;

/// SIGHUP from the very beginning: it must end nobody that has advice in force or is about to read what it is for. It is kept until somebody looks.
pub(crate) struct Hangup(Pipe);

impl Hangup {
    pub(crate) fn catch() -> io::Result<Self> {
        caught(SIGHUP).map(Self)
    }
}

/// Request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// To read the configuration again.
    Reload,
    /// To stop, by this one.
    Stop(&'static str),
}

/// SIGHUP, SIGTERM, SIGINT and SIGQUIT. Of those that come before somebody looks, each counts once.
pub(crate) struct Signals {
    hangup: UnixStream,
    terminate: UnixStream,
    interrupt: UnixStream,
    quit: UnixStream,
}

impl Signals {
    /// From now on none of them ends the process by itself. Needs the event loop.
    pub(crate) fn catch(Hangup(hangup): Hangup) -> io::Result<Self> {
        let stream = |pipe: Pipe| UnixStream::from_std(pipe);
        Ok(Self {
            hangup: stream(hangup)?,
            terminate: stream(caught(SIGTERM)?)?,
            interrupt: stream(caught(SIGINT)?)?,
            quit: stream(caught(SIGQUIT)?)?,
        })
    }

    /// Waits for the next. One that stops comes before one that does not.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            name = Self::stop_of(&self.terminate, &self.interrupt, &self.quit) => Signal::Stop(name),
            () = came(&self.hangup) => Signal::Reload,
        }
    }

    /// Waits for the next that stops; SIGHUP is kept meanwhile.
    pub(crate) async fn stop(&mut self) -> &'static str {
        Self::stop_of(&self.terminate, &self.interrupt, &self.quit).await
    }

    async fn stop_of(terminate: &UnixStream, interrupt: &UnixStream, quit: &UnixStream) -> &'static str {
        tokio::select! {
            () = came(terminate) => "SIGTERM",
            () = came(interrupt) => "SIGINT",
            () = came(quit) => "SIGQUIT",
        }
    }
}

/// The end of a pipe into which the signal is written when it comes.
fn caught(signal: i32) -> io::Result<Pipe> {
    let (here, there) = Pipe::pair()?;
    here.set_nonblocking(true)?;
    pipe::register(signal, there)?;
    Ok(here)
}

/// Waits until the signal has come, however often.
async fn came(pipe: &UnixStream) {
    let mut has_come = false;
    while !has_come && pipe.readable().await.is_ok() {
        loop {
            match pipe.try_read(&mut [0; 64]) {
                Ok(1..) => has_come = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Its other end is kept by the handler for ever.
                Ok(0) | Err(_) => return future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    /// One test: signals are the whole process's.
    #[tokio::test]
    async fn one_that_came_early_or_often_counts_once_and_a_stop_comes_first() {
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
