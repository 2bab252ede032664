//! Page events over time: the software GPU's log and the driver's counters, in slices of the wall
//! clock that uvmd reads too.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use anyhow::anyhow;
use gpu::swgpu::Gpu;

use super::{
    facts::Facts,
    pages::{Counts, Pages},
};
use crate::{
    scenario::size::MIB,
    sys::{access_log::AccessLog, counters::ProcessCounters, memory::SharedPages},
};

/// Interval of reads of the log, which is the precision of its times.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const SLICE: Duration = Duration::from_millis(50);

/// Length of a window with enough activity, and maximum length of any other.
const WINDOW: Duration = Duration::from_secs(2);
const QUIET_WINDOW: Duration = Duration::from_secs(4);

/// A process whose counters are read.
pub(super) struct Watched {
    pub(super) pid: u32,
    pub(super) pages: Arc<SharedPages>,
}

/// Thread that records the events of a GPU.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Timeline>>,
}

/// Counts of a short period.
#[derive(Debug)]
struct Slice {
    end: SystemTime,
    counts: Counts,
}

/// Recorded events.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    slices: Vec<Slice>,
    /// Events that the log dropped.
    pub(super) dropped_events: u64,
}

/// A window of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
    pub(super) facts: Facts,
    /// Whether the window has too little activity to be evidence.
    pub(super) is_quiet: bool,
}

// === impl Recorder ===

impl Recorder {
    /// Start to record a GPU and the counters of these processes.
    pub(super) fn start(gpu: &Gpu, processes: Vec<Watched>) -> anyhow::Result<Self> {
        let log = AccessLog::open(gpu, false)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || record(log, &processes, &is_stopped));
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) -> anyhow::Result<Timeline> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the recorder's thread panicked"))?
    }
}

fn record(mut log: AccessLog, processes: &[Watched], is_stopped: &AtomicBool) -> anyhow::Result<Timeline> {
    let (mut timeline, mut pages, mut batch) = (Timeline::default(), Pages::default(), Vec::new());
    let mut before = BTreeMap::new();
    let mut counts = Counts::new();
    let mut slice_begin = SystemTime::now();
    loop {
        // Loaded before the read of the log, so that the last read contains all events up to the
        // stop.
        let last = is_stopped.load(Ordering::Relaxed);
        log.read(&mut batch)?;
        for record in batch.drain(..) {
            pages.apply(&record, &mut counts)?;
        }
        let now = SystemTime::now();
        if last || now.duration_since(slice_begin).is_ok_and(|since| since >= SLICE) {
            add_counters(&mut counts, processes, &mut before);
            timeline.slices.push(Slice { end: now, counts: std::mem::take(&mut counts) });
            slice_begin = now;
        }
        if last {
            timeline.dropped_events = pages.dropped_events;
            return Ok(timeline);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Add the driver's counts since the last slice.
fn add_counters(counts: &mut Counts, processes: &[Watched], before: &mut BTreeMap<u32, ProcessCounters>) {
    for Watched { pid, pages } in processes {
        let now = ProcessCounters::read(pages);
        let then = before.insert(*pid, now).unwrap_or_default();
        let facts = counts.entry(*pid).or_default();
        facts.gpu_faults += now.fault_entries.saturating_sub(then.fault_entries);
        facts.cpu_faults += now.cpu_faults.saturating_sub(then.cpu_faults);
        facts.throttles += now.throttles.saturating_sub(then.throttles);
    }
}

// === impl Timeline ===

impl Timeline {
    /// Timeline with a slice for each second, from 0.
    #[cfg(test)]
    pub(super) fn by_seconds(pid: u32, facts: Vec<Facts>) -> Self {
        let slice = |(second, facts): (u64, Facts)| Slice {
            end: SystemTime::UNIX_EPOCH + Duration::from_secs(second + 1),
            counts: Counts::from([(pid, facts)]),
        };
        Self { slices: (0..).zip(facts).map(slice).collect(), dropped_events: 0 }
    }

    fn of(&self, pid: u32) -> impl Iterator<Item = (SystemTime, Facts)> {
        self.slices.iter().map(move |slice| (slice.end, slice.counts.get(&pid).copied().unwrap_or_default()))
    }

    /// Sums of a process between two times.
    pub(super) fn between(&self, pid: u32, begin: SystemTime, end: SystemTime) -> Facts {
        let mut sum = Facts::default();
        self.of(pid).filter(|(at, _)| *at > begin && *at <= end).for_each(|(_, facts)| sum += facts);
        sum
    }

    /// Sums of stretches in which as many bytes arrived as the GPU has memory, and of the
    /// remainder.
    pub(super) fn stretches(&self, pid: u32, gpu_bytes: u64) -> Vec<Facts> {
        let (mut stretches, mut stretch) = (Vec::new(), Facts::default());
        for (_, facts) in self.of(pid) {
            stretch += facts;
            if stretch.arrived_bytes() >= gpu_bytes {
                stretches.push(std::mem::take(&mut stretch));
            }
        }
        if stretches.is_empty() || stretch.arrived_bytes() > 0 {
            stretches.push(stretch);
        }
        stretches
    }

    /// Consecutive windows as documented. The remainder at the end is omitted.
    pub(super) fn windows(&self, pid: u32) -> Vec<Window> {
        let mut windows = Vec::new();
        let mut open: Option<Window> = None;
        for (end, facts) in self.of(pid) {
            let begin = open.map_or(end, |window| window.begin);
            let mut window = open.unwrap_or(Window { begin, end, facts: Facts::default(), is_quiet: false });
            window.facts += facts;
            window.end = end;
            let length = end.duration_since(begin).unwrap_or_default();
            let Facts { throttles, .. } = window.facts;
            let is_full = window.facts.arrived_bytes() >= 4 * MIB || window.facts.faults() >= 256 || throttles >= 10;
            window.is_quiet = !is_full;
            if length >= QUIET_WINDOW || (length >= WINDOW && is_full) {
                windows.push(window);
                open = Some(Window { begin: end, end, facts: Facts::default(), is_quiet: false });
            } else {
                open = Some(window);
            }
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(100 * tenths)
    }

    /// Timeline with a slice for each tenth of a second, with these MiB fetched.
    fn timeline(mib: impl IntoIterator<Item = u64>) -> Timeline {
        let slice = |(tenths, mib): (u64, u64)| Slice {
            end: at(tenths),
            counts: Counts::from([(7, Facts { fetched_bytes: mib * MIB, ..Facts::default() })]),
        };
        Timeline { slices: (0..).zip(mib).map(slice).collect(), dropped_events: 0 }
    }

    #[test]
    fn as_many_bytes_arrive_in_a_stretch_as_the_gpu_has_memory() {
        let stretches = |timeline: &Timeline| -> Vec<u64> {
            timeline.stretches(7, 16 * MIB).iter().map(|facts| facts.fetched_bytes / MIB).collect()
        };
        assert_eq!(stretches(&timeline([10, 6, 0, 20, 1])), [16, 20, 1]);
        assert_eq!(stretches(&timeline([3, 0])), [3], "the whole run where there is less");
        assert_eq!(stretches(&timeline([])), [0]);
    }

    #[test]
    fn events_between_two_times_are_summed() {
        let timeline = timeline([1, 2, 4, 8]);
        assert_eq!(timeline.between(7, at(0), at(2)).fetched_bytes, 6 * MIB);
        assert_eq!(timeline.between(8, at(0), at(2)), Facts::default());
    }

    #[test]
    fn a_window_ends_after_two_seconds_with_enough_activity_and_else_after_four() {
        let windows = |mib: Vec<u64>| -> Vec<(f64, bool)> {
            let length = |window: &Window| window.end.duration_since(window.begin).unwrap().as_secs_f64();
            timeline(mib).windows(7).iter().map(|window| (length(window), window.is_quiet)).collect()
        };
        assert_eq!(windows(vec![1; 41]), [(2.0, false), (2.0, false)]);
        let mut late = vec![0; 30];
        late.push(4);
        assert_eq!(windows(late), [(3.0, false)]);
        assert_eq!(windows(vec![0; 50]), [(4.0, true)]);
        assert!(windows(vec![1; 20]).is_empty(), "not over yet");
    }
}
