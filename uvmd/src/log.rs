//! The service's own log: to standard error, or to a file.
//!
//! To log never fails and, to a file, never waits: a line that cannot be written is counted and left out.

mod file;

use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
};

use config::{Log, value::LogFormat};
use file::{LogFile, Message};
use tracing_subscriber::{
    Layer, Registry,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// The log, for as long as it is written.
pub(crate) struct Logging {
    dropped: Dropped,
    file: Option<SyncSender<Message>>,
}

/// Lines that could not be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(pub(crate) Arc<AtomicU64>);

impl Dropped {
    fn count_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Logging {
    /// Everything that is logged from now on is written.
    pub(crate) fn start(log: &Log) -> anyhow::Result<Self> {
        let dropped = Dropped::default();
        let path = log.file.as_ref().map(|path| path.0.as_path());
        let file = path.map(|path| LogFile::open(path)?.write_aside(dropped.clone())).transpose()?;
        let lines = Lines { file: file.clone(), dropped: dropped.clone() };
        let layer = fmt::layer().with_writer(lines).log_internal_errors(false);
        let layer: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
            LogFormat::Text => Box::new(layer.with_ansi(file.is_none() && colour())),
            LogFormat::Json => Box::new(layer.json().flatten_event(true)),
        };
        tracing_subscriber::registry().with(layer.with_filter(log.filter.targets())).init();
        Ok(Self { dropped, file })
    }

    pub(crate) const fn dropped(&self) -> &Dropped {
        &self.dropped
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            file::flush(file);
        }
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

/// Where the lines of the log go.
#[derive(Clone)]
struct Lines {
    /// `None`: standard error.
    file: Option<SyncSender<Message>>,
    dropped: Dropped,
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
        let is_taken = match &self.file {
            Some(file) => file.try_send(Message::Line(line.to_vec())).is_ok(),
            None => io::stderr().write_all(line).is_ok(),
        };
        if !is_taken {
            self.dropped.count_one();
        }
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
        let (file, stuck) = mpsc::sync_channel(1);
        let lines = Lines { file: Some(file), dropped: Dropped::default() };
        for text in ["one\n", "two\n", "three\n"] {
            lines.make_writer().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(lines.dropped.0.load(Ordering::Relaxed), 2);
        assert!(matches!(stuck.recv(), Ok(Message::Line(line)) if line == b"one\n"));
    }
}
