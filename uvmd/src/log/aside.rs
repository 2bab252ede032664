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
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines can be written, at the end of what is there.
pub(crate) trait Destination: Send + 'static {
    /// What it is, to follow "cannot write to".
    fn name(&self) -> String;

    /// Writes a line, which has its end. May take its time.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;
}

/// To the thread that writes.
pub(crate) enum Message {
    /// To be written, with its end.
    Line(Vec<u8>),
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
    let write = move || Writer { destination, dropped, told: 0, is_failing: false }.write_all(&receiver);
    thread::Builder::new()
        .name(thread_name.to_owned())
        .spawn(write)
        .with_context(|| format!("cannot start the thread {thread_name}"))?;
    Ok(sender)
}

/// Waits until all that was logged is written, but not for a destination that is stuck.
pub(crate) fn flush(log: &SyncSender<Message>) {
    let deadline = Instant::now() + LAST_LINES;
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
    /// How many dropped lines the log itself has told of.
    told: u64,
    /// The last line could not be written.
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
                Message::Line(line) => self.write(&line),
                // Whoever asked may not wait any more.
                Message::Flush(done) => drop(done.try_send(())),
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        let result = self.destination.append(line);
        if let Err(error) = &result {
            self.dropped.count_one();
            if !self.is_failing {
                let (name, reason) = (self.destination.name(), reason(error));
                say(&format!("cannot write to {name}: {reason}; lines are dropped and counted until it can be"));
            }
        }
        self.is_failing = result.is_err();
    }

    /// In all, so that nothing is lost where this line is.
    fn tell_losses(&mut self) {
        let lost = self.dropped.get();
        if lost > self.told && !self.is_failing {
            self.told = lost;
            tracing::warn!(
                "lines are missing in {} before this one: {lost} since uvmd started",
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
        flush(&log);
        assert_eq!(dropped.get(), 3);
    }

    #[test]
    fn a_disk_that_is_stuck_holds_nobody_up_at_the_end() {
        // Nobody takes from the queue.
        let (log, _stuck) = mpsc::sync_channel(1);
        log.send(Message::Line(b"one\n".to_vec())).unwrap();
        let start = Instant::now();
        flush(&log);
        assert!(start.elapsed() < 5 * LAST_LINES, "{:?}", start.elapsed());
    }
}
