//! A log file: appended to on a thread of its own, so that a slow or broken disk holds nobody else up.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, SyncSender, TrySendError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use sys::reason;

use super::{Dropped, say};

/// Lines that wait to be written. A disk that is slower than this for long is as good as full.
const QUEUE_LINES: usize = 1024;
/// Time for the last lines when the service ends.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Process names and users are in the log, and not everyone's business.
const MODE: u32 = 0o640;

/// To the thread that writes.
pub(super) enum Message {
    /// To be written, with its end.
    Line(Vec<u8>),
    /// To be answered when everything before it was written.
    Flush(SyncSender<()>),
}

/// See the module's documentation.
pub(super) struct LogFile {
    path: PathBuf,
    /// `None` while it could not be opened.
    file: Option<File>,
    /// The last write ended within a line.
    is_cut: bool,
}

impl LogFile {
    /// Fails where the name is a mistake; a disk that is full may have room later.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot write the log to {}", path.display());
        // To open a FIFO would wait for its reader.
        if fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.file_type().is_char_device()) {
            return Err(anyhow!("it is not a regular file")).with_context(context);
        }
        let file = match append(path) {
            Ok(file) => Some(file),
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => None,
            Err(error) => return Err(anyhow!(reason(&error))).with_context(context),
        };
        Ok(Self { path: path.to_owned(), file, is_cut: false })
    }

    /// Writes what it is sent until the end of the process.
    pub(super) fn write_aside(self, dropped: Dropped) -> anyhow::Result<SyncSender<Message>> {
        let (sender, receiver) = mpsc::sync_channel(QUEUE_LINES);
        let write = move || self.write_all(&receiver, &dropped);
        thread::Builder::new().name("uvmd-log".to_owned()).spawn(write).context("cannot start the log's thread")?;
        Ok(sender)
    }

    fn write_all(mut self, messages: &Receiver<Message>, dropped: &Dropped) {
        // Lines lost since it was last written to.
        let mut lost = 0_u64;
        for message in messages {
            let line = match message {
                Message::Line(line) => line,
                Message::Flush(done) => {
                    // Whoever asked may not wait any more.
                    let _ = done.try_send(());
                    continue;
                }
            };
            match self.append(&line) {
                Ok(()) if lost > 0 => {
                    tracing::warn!("{lost} lines of the log are missing before this one: they could not be written");
                    lost = 0;
                }
                Ok(()) => {}
                Err(error) => {
                    dropped.count_one();
                    if lost == 0 {
                        let (path, reason) = (self.path.display(), reason(&error));
                        say(&format!(
                            "cannot write the log to {path}: {reason}; lines are dropped and counted until it can be"
                        ));
                    }
                    lost += 1;
                }
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // Whoever rotates logs may have renamed or removed the file.
        let file = if let Some(file) = self.file.take().filter(|file| is_named(file, &self.path)) {
            file
        } else {
            self.is_cut = false;
            append(&self.path)?
        };
        let file = self.file.insert(file);
        if self.is_cut {
            file.write_all(b"\n")?;
            self.is_cut = false;
        }
        let mut rest = line;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    rest = rest.get(length..).unwrap_or_default();
                    self.is_cut = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the open file is the one that has this name.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Waits until all that was logged is written, but not for a disk that is stuck.
pub(super) fn flush(log: &SyncSender<Message>) {
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

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn line(text: &str) -> Message {
        Message::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let dropped = Dropped::default();
        let log = LogFile::open(Path::new("/dev/full")).unwrap().write_aside(dropped.clone()).unwrap();
        for text in ["one\n", "two\n", "three\n"] {
            log.send(line(text)).unwrap();
        }
        flush(&log);
        assert_eq!(dropped.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_file_that_is_there_is_appended_to_and_one_that_is_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uvmd.log");
        fs::write(&path, "earlier\n").unwrap();
        let log = LogFile::open(&path).unwrap().write_aside(Dropped::default()).unwrap();
        let written = |text: &str| {
            log.send(line(text)).unwrap();
            flush(&log);
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(written("one\n"), "earlier\none\n");
        fs::remove_file(&path).unwrap();
        assert_eq!(written("two\n"), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777 & !MODE, 0);
    }

    #[test]
    fn a_disk_that_is_stuck_holds_nobody_up_at_the_end() {
        // Nobody takes from the queue.
        let (log, _stuck) = mpsc::sync_channel(1);
        log.send(line("one\n")).unwrap();
        let start = Instant::now();
        flush(&log);
        assert!(start.elapsed() < 2 * LAST_LINES);
    }
}
