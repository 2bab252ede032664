//! `--access-log`: log of the GPUs' accesses, copies and mappings, as CSV (docs/truth.md, "The
//! access log").

use std::{
    fmt::{self, Write as _},
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, anyhow};
use gpu::swgpu::Gpu;
use serde::Serialize;

use crate::{
    digits::digits,
    sys::access_log::{AccessLog, Record},
};

/// Header line of the CSV.
const HEADER: &str = "sequence,gpu,event,process,address,physical,kind,from,to,weight";
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum of records, which stay in the guest's memory until the end: 192 MiB. Later ones are
/// dropped and counted.
const RECORDS_MAX: usize = 4 << 20;

/// Record with the index of its GPU.
type Entry = (usize, Record);

/// Recorder of the logs of all GPUs, from its start on.
pub(crate) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Entry>>>,
}

/// Size of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) records: u64,
    /// Dropped accesses, and pages copied or mapped: the ring or the recorder was full.
    pub(crate) lost_events: u64,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn start(gpus: &[Gpu]) -> anyhow::Result<Self> {
        let logs = gpus.iter().map(|gpu| AccessLog::open(gpu, true)).collect::<anyhow::Result<Vec<AccessLog>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || record(logs, &stopped));
        Ok(Self { stop, thread })
    }

    /// Stops recording and writes the log. `name` gives the name of a process id.
    pub(crate) fn write(self, path: &Path, name: impl Fn(u32) -> String) -> anyhow::Result<Summary> {
        self.stop.store(true, Ordering::Relaxed);
        let mut entries = self.thread.join().map_err(|_| anyhow!("the access log's thread panicked"))??;
        entries.sort_by_key(|(_, record)| record.sequence);
        let cannot_write = || format!("cannot write {}", path.display());
        let file = File::create(path).with_context(cannot_write)?;
        write(&mut BufWriter::new(file), &entries, name).with_context(cannot_write)
    }
}

fn record(mut logs: Vec<AccessLog>, stopped: &AtomicBool) -> anyhow::Result<Vec<Entry>> {
    let (mut entries, mut batch) = (Vec::new(), Vec::new());
    loop {
        // Read before the last poll, so that the poll sees every record written until now.
        let last = stopped.load(Ordering::Relaxed);
        for (gpu, log) in logs.iter_mut().enumerate() {
            log.read(&mut batch)?;
            for record in batch.drain(..) {
                append(&mut entries, (gpu, record));
            }
        }
        if last {
            return Ok(entries);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Appends a record; beyond the maximum, counts its events in the last entry.
fn append(entries: &mut Vec<Entry>, (gpu, record): Entry) {
    if entries.len() < RECORDS_MAX - 1 {
        entries.push((gpu, record));
        return;
    }
    if entries.len() < RECORDS_MAX {
        entries.push((gpu, Record { sequence: record.sequence, event: Event::LOST, ..Record::default() }));
    }
    if let Some((_, last)) = entries.last_mut() {
        last.weight += Event::of(&record).map_or(1, |event| event.count(&record));
    }
}

/// Event of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Access,
    Copy,
    Map,
    Lost,
    CpuBegins,
    CpuEnds,
}

impl Event {
    const LOST: u8 = 3;

    pub(crate) fn of(record: &Record) -> Option<Self> {
        let all = [Self::Access, Self::Copy, Self::Map, Self::Lost, Self::CpuBegins, Self::CpuEnds];
        all.get(usize::from(record.event)).copied()
    }

    /// Number of events that the record stands for.
    const fn count(self, record: &Record) -> u64 {
        match self {
            Self::Access | Self::Lost => record.weight,
            Self::Copy | Self::Map => record.weight / 4096,
            Self::CpuBegins | Self::CpuEnds => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Copy => "copy",
            Self::Map => "map",
            Self::Lost => "lost",
            Self::CpuBegins => "cpu_begin",
            Self::CpuEnds => "cpu_end",
        }
    }
}

// === CSV ===

fn write(out: &mut impl Write, entries: &[Entry], name: impl Fn(u32) -> String) -> io::Result<Summary> {
    let mut summary = Summary::default();
    writeln!(out, "{HEADER}")?;
    for (gpu, record) in entries {
        let line = line(*gpu, record, &name)
            .ok_or_else(|| io::Error::other(format!("the software GPU's log has an unknown record: {record:?}")))?;
        writeln!(out, "{line}")?;
        summary.records += 1;
        if record.event == Event::LOST {
            summary.lost_events += record.weight;
        }
    }
    out.flush()?;
    Ok(summary)
}

/// Line of a record. Cells that do not apply are empty.
fn line(gpu: usize, record: &Record, name: impl Fn(u32) -> String) -> Option<String> {
    let &Record { sequence, weight, va, physical, pid, kind, from, to, .. } = record;
    let event = Event::of(record)?;
    let place = |place: u8| ["local", "host", "peer", "none"].get(usize::from(place)).copied();
    let kind_name = || ["read", "write", "atomic"].get(usize::from(kind)).copied();
    let (kind, from, to) = match event {
        Event::Access => (kind_name()?, place(from)?, ""),
        Event::CpuBegins | Event::CpuEnds => (kind_name()?, "", ""),
        Event::Copy => ("", place(from)?, place(to)?),
        Event::Map | Event::Lost => ("", "", ""),
    };
    let mut line = format!("{sequence},{gpu},{},", event.name());
    // Writing to a string does not fail.
    let _ = match (event, pid) {
        (Event::Lost, _) => write!(line, ",,"),
        (Event::CpuBegins | Event::CpuEnds, pid) => write!(line, "{},{va:#x},", quoted(&name(pid))),
        (_, 0) => write!(line, ",,{physical:#x}"),
        (_, pid) => write!(line, "{},{va:#x},{physical:#x}", quoted(&name(pid))),
    };
    let _ = write!(line, ",{kind},{from},{to},{weight}");
    Some(line)
}

/// Cell, quoted as in RFC 4180.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access log: {} records", digits(self.records))?;
        if self.lost_events > 0 {
            write!(f, "; {} events are LOST", digits(self.lost_events))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Record = Record {
        sequence: 1,
        weight: 4,
        va: 0x200_0000_1000,
        physical: 0x3000,
        pid: 7,
        event: 0,
        kind: 1,
        from: 0,
        to: 0,
    };

    fn text(records: &[Record]) -> (String, Summary) {
        let entries: Vec<Entry> = records.iter().map(|record| (0, *record)).collect();
        let mut out = Vec::new();
        let name = |pid: u32| if pid == 7 { "tenant".to_owned() } else { "a,\"b\"".to_owned() };
        let summary = write(&mut out, &entries, name).unwrap();
        (String::from_utf8(out).unwrap(), summary)
    }

    #[test]
    fn each_record_is_a_line_as_the_documentation_shows() {
        let records = [
            ACCESS,
            Record { sequence: 5, kind: 0, from: 1, pid: 8, ..ACCESS },
            Record { sequence: 6, event: 1, weight: 8192, kind: 0, from: 0, to: 1, ..ACCESS },
            Record { sequence: 8, event: 1, weight: 4096, kind: 0, from: 1, to: 0, va: 0, pid: 0, ..ACCESS },
            Record { sequence: 9, event: 2, weight: 4096, kind: 0, ..ACCESS },
            Record { sequence: 10, event: 3, weight: 12, ..Record::default() },
            Record { sequence: 22, event: 4, weight: 65536, physical: 0, ..ACCESS },
            Record { sequence: 23, event: 5, weight: 65536, physical: 0, ..ACCESS },
        ];
        let (text, summary) = text(&records);
        let expected = [
            HEADER,
            "1,0,access,tenant,0x20000001000,0x3000,write,local,,4",
            "5,0,access,\"a,\"\"b\"\"\",0x20000001000,0x3000,read,host,,4",
            "6,0,copy,tenant,0x20000001000,0x3000,,local,host,8192",
            "8,0,copy,,,0x3000,,host,local,4096",
            "9,0,map,tenant,0x20000001000,0x3000,,,,4096",
            "10,0,lost,,,,,,,12",
            "22,0,cpu_begin,tenant,0x20000001000,,write,,,65536",
            "23,0,cpu_end,tenant,0x20000001000,,write,,,65536",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(summary, Summary { records: 8, lost_events: 12 });
        assert_eq!(summary.to_string(), "access log: 8 records; 12 events are LOST");
        let document = include_str!("../../../docs/truth.md");
        assert!(
            [expected[0], expected[1], expected[3], expected[4], expected[7]]
                .iter()
                .all(|line| document.contains(line))
        );
    }

    #[test]
    fn an_unknown_record_is_an_error() {
        for record in [Record { event: 6, ..ACCESS }, Record { kind: 3, ..ACCESS }, Record { from: 4, ..ACCESS }] {
            assert!(write(&mut Vec::new(), &[(0, record)], |_| String::new()).is_err(), "{record:?}");
        }
    }

    #[test]
    fn records_beyond_the_maximum_are_counted() {
        let mut entries = vec![(0, ACCESS); RECORDS_MAX - 1];
        append(&mut entries, (1, Record { sequence: 20, ..ACCESS }));
        append(&mut entries, (1, Record { sequence: 24, event: 1, weight: 8192, ..ACCESS }));
        assert_eq!(entries.len(), RECORDS_MAX);
        let expected = Record { sequence: 20, weight: 6, event: Event::LOST, ..Record::default() };
        assert_eq!(entries.last(), Some(&(1, expected)));
    }
}
