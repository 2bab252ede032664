//! Journal of systemd: entries with a priority and fields, in its [native
//! protocol](https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).

use std::{
    ffi::OsStr,
    fmt::{Debug, Write},
    fs::File,
    io,
    os::unix::{fs::MetadataExt, net::UnixDatagram},
    path::PathBuf,
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

use super::{Lines, writer::Destination};

/// Socket of the journal.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Prefix of an event's fields, to distinguish them from the journal's.
const PREFIX: &str = "UVMD_";

/// Whether this file is the journal stream that systemd names in `JOURNAL_STREAM`: device and
/// inode, as in systemd.exec(5).
pub(super) fn is_stream(named: Option<&OsStr>, file: &File) -> bool {
    let named = named.and_then(OsStr::to_str).and_then(|text| text.split_once(':'));
    let (Some((device, inode)), Ok(metadata)) = (named, file.metadata()) else { return false };
    device.parse() == Ok(metadata.dev()) && inode.parse() == Ok(metadata.ino())
}

/// Socket of the journal. An entry larger than its send buffer is dropped.
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Connects to a listener at this path: the journal discards an empty entry.
    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.send_to(&[], &path)?;
        Ok(Self { socket, path })
    }
}

impl Destination for Journal {
    fn name(&self) -> String {
        "the journal".to_owned()
    }

    fn append(&mut self, entry: &[u8]) -> io::Result<()> {
        self.socket.send_to(entry, &self.path).map(drop)
    }
}

/// Layer that makes an entry of each event.
pub(super) struct Entries(pub(super) Lines);

impl<S: Subscriber> Layer<S> for Entries {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut entry = Entry(Vec::with_capacity(256));
        entry.add("PRIORITY", priority(*metadata.level()));
        entry.add("SYSLOG_IDENTIFIER", "uvmd");
        entry.add("TARGET", metadata.target());
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
            entry.add("CODE_FILE", file);
            entry.add("CODE_LINE", &line.to_string());
        }
        event.record(&mut entry);
        self.0.send(entry.0);
    }
}

/// Priority of syslog. Info is the normal course for uvmd, not a notice.
const fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// Fields of an entry, each with the length of its value, which may contain line ends.
struct Entry(Vec<u8>);

impl Entry {
    fn add(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.add("MESSAGE", value),
            // The journal accepts capital letters, digits and underscores.
            name => self.add(&format!("{PREFIX}{}", name.to_ascii_uppercase().replace('.', "_")), value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // It fails only if the value's Debug does: the text ends there.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt;

    use super::{
        super::{Dropped, writer},
        *,
    };

    fn at_the_journal(log: impl FnOnce()) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        journal.set_nonblocking(true).unwrap();
        let dropped = Dropped::default();
        let queue = writer::write_to("test", Journal::at(path).unwrap(), dropped.clone()).unwrap();
        let lines = Lines { queue, dropped: dropped.clone() };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Entries(lines.clone())), log);
        writer::flush(&lines.queue, Duration::from_mins(1));
        assert_eq!(dropped.get(), 0);
        let mut datagram = [0; 4096];
        std::iter::from_fn(|| journal.recv(&mut datagram).ok().map(|size| datagram[..size].to_vec())).collect()
    }

    fn field(name: &str, value: &str) -> Vec<u8> {
        let length = u64::try_from(value.len()).unwrap().to_le_bytes();
        [name.as_bytes(), b"\n", &length, value.as_bytes(), b"\n"].concat()
    }

    fn has(entry: &[u8], name: &str, value: &str) -> bool {
        let field = field(name, value);
        entry.windows(field.len()).any(|part| part == field)
    }

    #[test]
    fn an_event_is_an_entry_with_its_fields() {
        let line = line!() + 1;
        let entries = at_the_journal(|| tracing::warn!(target: "uvmd::part", pid = 7, name = "a", "two\nlines {}", 1));
        // The empty entry tested for the journal.
        let [empty, entry] = &entries[..] else { panic!("{entries:?}") };
        assert!(empty.is_empty());
        let expected = [
            field("PRIORITY", "4"),
            field("SYSLOG_IDENTIFIER", "uvmd"),
            field("TARGET", "uvmd::part"),
            field("CODE_FILE", file!()),
            field("CODE_LINE", &line.to_string()),
            field("MESSAGE", "two\nlines 1"),
            field("UVMD_PID", "7"),
            field("UVMD_NAME", "a"),
        ];
        assert_eq!(String::from_utf8_lossy(entry), String::from_utf8_lossy(&expected.concat()));
    }

    #[test]
    fn levels_are_priorities_of_syslog() {
        let entries = at_the_journal(|| {
            tracing::error!("3");
            tracing::warn!("4");
            tracing::info!("6");
            tracing::debug!("7");
            tracing::trace!("7");
        });
        assert_eq!(entries.len(), 6);
        for entry in &entries[1..] {
            assert!(["3", "4", "6", "7"].iter().any(|one| has(entry, "MESSAGE", one) && has(entry, "PRIORITY", one)));
        }
    }

    #[test]
    fn the_stream_to_the_journal_is_the_file_of_this_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let is_named = |text: &str| is_stream(Some(text.as_ref()), &file);
        assert!(is_named(&format!("{}:{}", metadata.dev(), metadata.ino())));
        for other in [format!("{}:{}", metadata.dev(), metadata.ino() + 1), "1".to_owned(), "a:b".to_owned()] {
            assert!(!is_named(&other), "{other}");
        }
        assert!(!is_stream(None, &file));
    }

    #[test]
    fn without_a_journal_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Journal::at(folder.path().join("socket")).is_err());
    }
}
