//! The service's own log: to standard error, to the journal behind it, or to a file.
//!
//! To log never fails and never waits: a line that cannot be written is counted and left out.
//!
//! * `writer`: the thread that writes
//! * `file`: the file
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

/// The log, for as long as it is written.
pub(crate) struct Logging {
    lines: Lines,
    is_file: bool,
    filter: reload::Handle<Targets, Registry>,
}

/// Lines that could not be written.
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
    /// Everything that is logged from now on is written.
    pub(crate) fn start(log: &Log) -> anyhow::Result<Self> {
        let dropped = Dropped::default();
        let is_file = log.file.is_some();
        let stderr = StandardError::new();
        let journal = (log.format == LogFormat::Auto && !is_file).then(|| stderr.journal()).flatten();
        let is_journal = journal.is_some();
        let queue = match (&log.file, journal) {
            (Some(path), _) => writer::write_to("uvmd-log", LogFile::open(&path.0)?, dropped.clone())?,
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

    /// This is logged from now on, and nothing else.
    pub(crate) fn set_filter(&self, filter: &LogFilter) {
        // It fails only where nobody logs any more.
        let _ = self.filter.reload(filter.targets());
    }

    /// Opens the file anew, as whoever rotates logs wants it. Does not wait for that.
    pub(crate) fn reopen(&self) {
        // Where there is no room for this, the file is looked at with the next line all the same.
        let _ = self.lines.queue.try_send(Message::Reopen);
    }

    pub(crate) const fn dropped(&self) -> &Dropped {
        &self.lines.dropped
    }

    /// Why the service ends, for whoever looks into the file. On standard error it is said anyway, whatever is logged.
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

    /// The journal, where it is what reads standard error.
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

/// Tells the person or the journal behind standard error, if anyone is.
pub(crate) fn say(text: &str) {
    // Unlike eprintln, which panics where this fails.
    let _ = writeln!(io::stderr(), "uvmd: {text}");
}

/// The way into the log.
#[derive(Clone)]
struct Lines {
    queue: SyncSender<Message>,
    dropped: Dropped,
}

impl Lines {
    /// Does not wait: where there is no room, it is dropped and counted.
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
    /// A whole line at a time: the layer makes them so.
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
    fn a_line_that_finds_no_room_is_counted_and_nobody_waits_for_it() {
        let (queue, stuck) = mpsc::sync_channel(1);
        let lines = Lines { queue, dropped: Dropped::default() };
        for text in ["one\n", "two\n", "three\n"] {
            lines.make_writer().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(lines.dropped.get(), 2);
        assert!(matches!(stuck.recv(), Ok(Message::Line(line)) if line == b"one\n"));
    }
}
