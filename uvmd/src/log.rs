//! Log of the service: to standard error, to the journal if it reads standard error, or to a file.
//!
//! Logging never fails and never waits: a line that cannot be written is dropped and counted.
//!
//! * `writer`: the writing thread
//! * `file`: the log file
//! * `journal`: the journal of systemd

pub(crate) mod file;
mod journal;
pub(crate) mod writer;

use std::{
    env,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
};

use config::{
    Log,
    value::{LogFilter, LogFormat},
};
use file::LogFile;
use journal::{Entries, Journal};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};
use writer::{Destination, Message};

/// Log, written as long as this exists.
pub(crate) struct Logging {
    lines: Lines,
    is_file: bool,
    filter: reload::Handle<Targets, Registry>,
}

/// Number of dropped lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(pub(crate) Arc<AtomicU64>);

impl Dropped {
    pub(crate) fn count_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Logging {
    /// Starts the log.
    pub(crate) fn start(log: &Log) -> anyhow::Result<Self> {
        let dropped = Dropped::default();
        let is_file = log.file.is_some();
        let stderr = StandardError::new();
        let journal = (log.format == LogFormat::Auto && !is_file).then(|| stderr.journal()).flatten();
        let is_journal = journal.is_some();
        let queue = match (&log.file, journal) {
            (Some(path), _) => {
                let (file, error) = LogFile::open(&path.0)?;
                if let Some(error) = error {
                    let reason = sys::reason(&error);
                    // There is no other place for this message: the log itself has failed.
                    let _ = writeln!(io::stderr(), "uvmd: log.file: cannot write to {}: {reason}", path.0.display());
                }
                writer::write_to("uvmd-log", file, dropped.clone())?
            }
            (None, Some(journal)) => writer::write_to("uvmd-log", journal, dropped.clone())?,
            (None, None) => writer::write_to("uvmd-log", stderr, dropped.clone())?,
        };
        let lines = Lines { queue, dropped };
        let layer = fmt::layer().with_writer(lines.clone()).log_internal_errors(false);
        let layer: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
            LogFormat::Auto if is_journal => Box::new(Entries(lines.clone())),
            LogFormat::Auto | LogFormat::Text => Box::new(layer.with_ansi(!is_file && colour())),
            LogFormat::Json => Box::new(layer.json().flatten_event(true)),
        };
        let (filter, handle) = reload::Layer::new(log.filter.targets());
        tracing_subscriber::registry().with(layer.with_filter(filter)).init();
        Ok(Self { lines, is_file, filter: handle })
    }

    /// Replaces the filter.
    pub(crate) fn set_filter(&self, filter: &LogFilter) {
        // It fails only if the subscriber is gone.
        let _ = self.filter.reload(filter.targets());
    }

    /// Reopens the file, for log rotation. Does not wait for that.
    pub(crate) fn reopen(&self) {
        // If the queue is full, the next line checks the file anyway.
        let _ = self.lines.queue.try_send(Message::Reopen);
    }

    pub(crate) const fn dropped(&self) -> &Dropped {
        &self.lines.dropped
    }

    /// Logs the reason for the exit to a log file. Standard error has it anyway.
    pub(crate) fn failed(&self, error: &anyhow::Error) {
        if self.is_file {
            tracing::error!("{error:#}");
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        writer::flush(&self.lines.queue, writer::LAST_LINES);
    }
}

/// Standard error at creation, without the lock that a stuck write would hold.
struct StandardError(Option<File>);

impl StandardError {
    fn new() -> Self {
        // It may be closed.
        Self(io::stderr().as_fd().try_clone_to_owned().ok().map(File::from))
    }

    /// Journal, if it reads standard error.
    fn journal(&self) -> Option<Journal> {
        let is_journal = journal::is_stream(env::var_os("JOURNAL_STREAM").as_deref(), self.0.as_ref()?);
        is_journal.then(|| Journal::at(PathBuf::from(journal::SOCKET)).ok()).flatten()
    }
}

impl Destination for StandardError {
    fn name(&self) -> String {
        "standard error".to_owned()
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?.write_all(line)
    }
}

fn colour() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a line to standard error, if it is open.
pub(crate) fn print(text: &str) {
    // Unlike eprintln, which panics on an error.
    let _ = writeln!(io::stderr(), "uvmd: {text}");
}

/// Handle of the log's queue.
#[derive(Clone)]
struct Lines {
    queue: SyncSender<Message>,
    dropped: Dropped,
}

impl Lines {
    /// Queues a line without waiting: if there is no room, it is dropped and counted.
    fn send(&self, line: Vec<u8>) {
        if self.queue.try_send(Message::Line(line)).is_err() {
            self.dropped.count_one();
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Lines {
    /// The layer writes whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn line_without_room_is_counted_without_waiting() {
        let (queue, stuck) = mpsc::sync_channel(1);
        let lines = Lines { queue, dropped: Dropped::default() };
        for text in ["one\n", "two\n", "three\n"] {
            lines.make_writer().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(lines.dropped.get(), 2);
        assert!(matches!(stuck.recv(), Ok(Message::Line(line)) if line == b"one\n"));
    }
}
