//! Lines on their way to where they are written, on a thread of its own: a reader that sleeps or a disk that is stuck holds nobody else up.

use std::{
    io,
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use sys::reason;

use super::{Dropped, say};

/// Lines that wait to be written. Whoever is slower than this for long is as good as full.
const QUEUE_LINES: usize = 1024;
/// Time for the last lines when the service ends.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines can be written, at the end of what is there.
pub(crate) trait Destination: Send + 'static {
    /// Name of the destination, to follow "cannot write to".
    fn name(&self) -> String;

    /// Writes a line, which has its end. May take its time.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

    /// Has on the disk what was written. May take its time.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Opens it anew, where it has a name that may stand for something else by now. May take its time.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To the thread that writes.
#[derive(Debug)]
pub(crate) enum Message {
    /// To be written, with its end.
    Line(Vec<u8>),
    /// The same, to be on the disk before it is answered: with why it could not be written, where it could not.
    Record(Vec<u8>, SyncSender<Result<(), String>>),
    /// To open the destination anew, after everything before it was written.
    Reopen,
    /// To be answered when everything before it was written.
    Flush(SyncSender<()>),
}

/// Writes what it is sent until nobody can send any more, on a thread of this name.
pub(crate) fn write_to(
    thread_name: &str,
    destination: impl Destination,
    dropped: Dropped,
) -> anyhow::Result<SyncSender<Message>> {
    let (sender, receiver) = mpsc::sync_channel(QUEUE_LINES);
    let write = move || Writer { destination, dropped, reported: 0, is_failing: false }.write_all(&receiver);
    thread::Builder::new()
        .name(thread_name.to_owned())
        .spawn(write)
        .with_context(|| format!("cannot start the thread {thread_name}"))?;
    Ok(sender)
}

/// Waits until all that was logged is written, for so long at most: the destination may be stuck.
pub(crate) fn flush(log: &SyncSender<Message>, at_most: Duration) {
    let deadline = Instant::now() + at_most;
    let (done, is_done) = mpsc::sync_channel(1);
    while let Err(TrySendError::Full(_)) = log.try_send(Message::Flush(done.clone())) {
        if Instant::now() >= deadline {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // The deadline, or everything is written.
    let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

struct Writer<D> {
    destination: D,
    dropped: Dropped,
    /// Dropped lines that the log has reported.
    reported: u64,
    /// Whether the last write failed.
    is_failing: bool,
}

impl<D: Destination> Writer<D> {
    fn write_all(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    // Now there is room for it.
                    self.tell_losses();
                    let Ok(message) = messages.recv() else { return };
                    message
                }
                Err(TryRecvError::Disconnected) => return,
            };
            match message {
                Message::Line(line) => {
                    let result = self.destination.append(&line);
                    if result.is_err() {
                        self.dropped.count_one();
                    }
                    self.note(&result);
                }
                Message::Record(line, done) => {
                    let result = self.destination.append(&line).and_then(|()| self.destination.sync());
                    self.note(&result);
                    // Whoever asked may not wait any more.
                    let _ = done.try_send(result.map_err(|error| reason(&error)));
                }
                Message::Reopen => {
                    let result = self.destination.reopen();
                    self.note(&result);
                }
                // Whoever asked may not wait any more.
                Message::Flush(done) => drop(done.try_send(())),
            }
        }
    }

    /// Notes the result of a write, and reports the first failure on standard error.
    fn note(&mut self, result: &io::Result<()>) {
        if let Err(error) = result
            && !self.is_failing
        {
            let (name, reason) = (self.destination.name(), reason(error));
            say(&format!("cannot write to {name}: {reason}; lines are dropped and counted until it can be"));
        }
        self.is_failing = result.is_err();
    }

    /// In all, so that nothing is lost where this line is.
    fn tell_losses(&mut self) {
        let lost = self.dropped.get();
        if lost > self.reported && !self.is_failing {
            self.reported = lost;
            tracing::warn!(
                "lines were dropped from {} before this one: {lost} since uvmd started",
                self.destination.name()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Destination for Full {
        fn name(&self) -> String {
            "a full disk".to_owned()
        }

        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let dropped = Dropped::default();
        let log = write_to("test", Full, dropped.clone()).unwrap();
        for text in ["one\n", "two\n", "three\n"] {
            log.send(Message::Line(text.as_bytes().to_vec())).unwrap();
        }
        flush(&log, Duration::from_mins(1));
        assert_eq!(dropped.get(), 3);
    }

    #[test]
    fn a_disk_that_is_stuck_holds_nobody_up_at_the_end() {
        // Nobody takes from the queue.
        let (log, _stuck) = mpsc::sync_channel(1);
        log.send(Message::Line(b"one\n".to_vec())).unwrap();
        // It comes back.
        flush(&log, Duration::from_millis(50));
    }
}
