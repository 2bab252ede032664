//! Queue of lines and the thread that writes them, so that a slow reader or a stuck disk blocks no
//! other thread.

use std::{
    io,
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use sys::reason;

use super::{Dropped, print};

/// Capacity in lines. A destination that is slower for a long time counts as full.
const QUEUE_LINES: usize = 1024;
/// Time for the last lines when the service ends.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(1);

/// Destination to which lines are appended.
pub(crate) trait Destination: Send + 'static {
    /// Name of the destination, to follow "cannot write to".
    fn name(&self) -> String;

    /// Writes a line, with its line end. May block.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

    /// Flushes written data to the disk. May block.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reopens the destination, if its name may refer to another file by now. May block.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Message to the writing thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Line to write, with its line end.
    Line(Vec<u8>),
    /// Line to write and flush, then a reply: the error, if it could not be written.
    Record(Vec<u8>, SyncSender<Result<(), String>>),
    /// Reopen of the destination, after all earlier messages.
    Reopen,
    /// Reply once all earlier messages are written.
    Flush(SyncSender<()>),
}

/// Writes messages on a thread of this name, until all senders are dropped.
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

/// Waits until all earlier messages are written, up to this time: the destination may be stuck.
pub(crate) fn flush(log: &SyncSender<Message>, at_most: Duration) {
    let deadline = Instant::now() + at_most;
    let (done, is_done) = mpsc::sync_channel(1);
    while let Err(TrySendError::Full(_)) = log.try_send(Message::Flush(done.clone())) {
        if Instant::now() >= deadline {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Result ignored: all is written, or the time is over.
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
                    // The queue is empty, so there is room for the report.
                    self.report_drops();
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
                    // The requester may have stopped waiting.
                    let _ = done.try_send(result.map_err(|error| reason(&error)));
                }
                Message::Reopen => {
                    let result = self.destination.reopen();
                    self.note(&result);
                }
                // The requester may have stopped waiting.
                Message::Flush(done) => drop(done.try_send(())),
            }
        }
    }

    /// Records the result of a write, and reports the first failure on standard error.
    fn note(&mut self, result: &io::Result<()>) {
        if let Err(error) = result
            && !self.is_failing
        {
            let (name, reason) = (self.destination.name(), reason(error));
            print(&format!("cannot write to {name}: {reason}; lines are dropped and counted until it can be"));
        }
        self.is_failing = result.is_err();
    }

    /// Writes the total number of dropped lines: a lost report is repeated in the next.
    fn report_drops(&mut self) {
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
    fn lines_lost_to_a_full_disk_are_counted() {
        let dropped = Dropped::default();
        let log = write_to("test", Full, dropped.clone()).unwrap();
        for text in ["one\n", "two\n", "three\n"] {
            log.send(Message::Line(text.as_bytes().to_vec())).unwrap();
        }
        flush(&log, Duration::from_mins(1));
        assert_eq!(dropped.get(), 3);
    }

    #[test]
    fn stuck_disk_does_not_block_the_exit() {
        // Nothing reads from the queue.
        let (log, _stuck) = mpsc::sync_channel(1);
        log.send(Message::Line(b"one\n".to_vec())).unwrap();
        // It returns.
        flush(&log, Duration::from_millis(50));
    }
}
