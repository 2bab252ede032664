//! Records of the driver's tools during a workload: how many come, how many wait for a reader, and
//! how many find no room. They are read as uvmd reads them.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use serde::Serialize;
use sys::{
    record_queue::RecordQueue,
    uvm::{queue::QueueError, records::EventKind},
};
use workloads::report::{Header, PhaseReport};

use crate::{deadline::Deadline, remote::RemoteProcess, stepped};

/// Interval of readings, that of uvmd.
const RECORDS_INTERVAL: Duration = Duration::from_millis(100);

/// Kinds of records of a queue, those of uvmd's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Queue {
    /// Copies, CPU faults, remote mappings and throttles.
    Moves,
    /// GPU faults.
    Faults,
}

impl Queue {
    pub(crate) const ALL: [Self; 2] = [Self::Moves, Self::Faults];

    const fn kinds(self) -> &'static [EventKind] {
        match self {
            Self::Moves => &[
                EventKind::CpuFault,
                EventKind::Migration,
                EventKind::MapRemote,
                EventKind::ThrottleStart,
                EventKind::ThrottleEnd,
            ],
            Self::Faults => &[EventKind::GpuFault],
        }
    }
}

/// Records of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Recorded {
    pub(crate) workload: String,
    pub(crate) bytes: u64,
    pub(crate) queue: Queue,
    #[serde(flatten)]
    pub(crate) rates: Rates,
}

/// Numbers of records.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) read: u64,
    pub(crate) dropped: u64,
    /// Most records that waited for a reading, of [`RECORDS`](sys::uvm::queue::RECORDS).
    pub(crate) pending_max: u32,
    /// Most records a second between two readings, the dropped ones included.
    pub(crate) per_second_max: f64,
}

impl Rates {
    /// Adds a reading: records that it found, dropped ones so far, and the time since the last one.
    fn add(&mut self, found: u32, dropped: u64, since_last: Duration) {
        let came = u64::from(found) + dropped.saturating_sub(self.dropped);
        self.read += u64::from(found);
        self.dropped = dropped;
        self.pending_max = self.pending_max.max(found);
        self.per_second_max = self.per_second_max.max(came as f64 / since_last.as_secs_f64());
    }
}

/// Runs a workload, and reads its records.
pub(crate) fn record(command: &mut Command, queue: Queue, deadline: Deadline) -> anyhow::Result<Rates> {
    let mut observer = Observer { queue, reader: None };
    let result = stepped::run(command, deadline, &mut observer);
    let rates = observer.reader.map(Reader::end).transpose();
    result?;
    rates?.context("the workload did not begin")
}

struct Observer {
    queue: Queue,
    reader: Option<Reader>,
}

impl stepped::Observer for Observer {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        self.reader = Some(Reader::start(RemoteProcess::open(header.pid)?.record_queue(self.queue.kinds())?));
        Ok(())
    }
    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        Ok(())
    }
    fn done(&mut self, _report: &PhaseReport) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Thread that reads, while the workload runs.
struct Reader {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Rates, QueueError>>,
}

impl Reader {
    fn start(queue: RecordQueue) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&has_ended);
        Self { has_ended, thread: thread::spawn(move || read(queue, &end)) }
    }

    fn end(self) -> anyhow::Result<Rates> {
        self.has_ended.store(true, Ordering::SeqCst);
        Ok(self.thread.join().map_err(|_| anyhow!("the thread that reads records failed"))??)
    }
}

fn read(mut queue: RecordQueue, has_ended: &AtomicBool) -> Result<Rates, QueueError> {
    let mut rates = Rates::default();
    let mut last = Instant::now();
    loop {
        // What is there at the end is read as well.
        let is_last = has_ended.load(Ordering::SeqCst);
        if !is_last {
            thread::sleep(RECORDS_INTERVAL);
        }
        let reading = queue.read(|_| {})?;
        let now = Instant::now();
        rates.add(reading.pending, queue.dropped().sum(), now - last);
        if is_last {
            return Ok(rates);
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_records_have_come_too() {
        let mut rates = Rates::default();
        rates.add(100, 0, Duration::from_millis(100));
        rates.add(16_383, 617, Duration::from_millis(100));
        rates.add(10, 617, Duration::from_millis(100));
        assert_eq!(rates, Rates { read: 16_493, dropped: 617, pending_max: 16_383, per_second_max: 17_000.0 / 0.1 });
    }
}
