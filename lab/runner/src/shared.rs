//! Memory shared by a worker and the runner, which outlives the worker: pages of the driver's
//! counters, and the worker's tally.

use std::{fs::File, sync::Arc, thread, time::Duration};

use crate::sys::{counters::ProcessCounters, memory::SharedPages, process::duplicate, tally::Tally};

/// Interval in which the driver's bottom half completes the last faults of an exited process.
const QUIET: Duration = Duration::from_millis(100);

/// Shared pages and the driver's counters of a worker.
pub(crate) struct Shared {
    pages: Arc<SharedPages>,
    /// Descriptors of the driver's counters, which count while they are open. They hold the
    /// worker's VA space, so they are closed soon after the worker's end.
    trackers: Vec<File>,
    counters: Option<ProcessCounters>,
}

impl Shared {
    /// Shared memory from the worker's descriptors.
    pub(crate) fn of(pid: u32, pages_fd: i32, tracker_fds: &[i32]) -> anyhow::Result<Self> {
        let pages = Arc::new(SharedPages::map(duplicate(pid, pages_fd)?)?);
        let trackers = tracker_fds.iter().map(|fd| duplicate(pid, *fd)).collect::<anyhow::Result<_>>()?;
        Ok(Self { pages, trackers, counters: None })
    }

    /// Shared pages, for concurrent readers.
    pub(crate) fn pages(&self) -> Arc<SharedPages> {
        Arc::clone(&self.pages)
    }

    /// Reads the driver's counters.
    pub(crate) fn read(&mut self) {
        self.counters = (!self.trackers.is_empty()).then(|| ProcessCounters::read(&self.pages));
    }

    /// Reads the counters until they have not changed for an interval.
    fn settle(&mut self) {
        loop {
            let last = self.counters;
            self.read();
            if self.counters == last {
                return;
            }
            thread::sleep(QUIET);
        }
    }

    /// Closes the counters after the worker's exit. With `settle`, its figures are final once the
    /// driver has completed its last faults.
    pub(crate) fn close(&mut self, settle: bool) {
        if settle {
            self.settle();
        }
        self.trackers.clear();
    }

    /// Counters of the last read; none if the driver does not count.
    pub(crate) fn counters(&self) -> Option<ProcessCounters> {
        self.counters
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.pages.tally()
    }
}
