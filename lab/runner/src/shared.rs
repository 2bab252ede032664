//! What a worker shares with the runner, and what so outlives it: the pages that the driver counts in, and the worker's tally.

use std::{fs::File, sync::Arc, thread, time::Duration};

use crate::sys::{counters::ProcessCounters, memory::SharedPages, process::duplicate, tally::Tally};

/// Long enough for the driver's bottom half to be done with the faults of a process that is gone.
const QUIET: Duration = Duration::from_millis(100);

/// What outlives the worker.
pub(crate) struct Shared {
    pages: Arc<SharedPages>,
    /// The driver counts as long as these are open. They keep the worker's VA space, so they are closed soon after the worker's end.
    trackers: Vec<File>,
    counters: Option<ProcessCounters>,
}

impl Shared {
    /// From the worker's descriptors.
    pub(crate) fn of(pid: u32, pages_fd: i32, tracker_fds: &[i32]) -> anyhow::Result<Self> {
        let pages = Arc::new(SharedPages::map(duplicate(pid, pages_fd)?)?);
        let trackers = tracker_fds.iter().map(|fd| duplicate(pid, *fd)).collect::<anyhow::Result<_>>()?;
        Ok(Self { pages, trackers, counters: None })
    }

    /// For whoever looks at them meanwhile.
    pub(crate) fn pages(&self) -> Arc<SharedPages> {
        Arc::clone(&self.pages)
    }

    /// Take the driver's figures.
    pub(crate) fn read(&mut self) {
        self.counters = (!self.trackers.is_empty()).then(|| ProcessCounters::read(&self.pages));
    }

    /// Read the counters once they have not changed for a while.
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

    /// The worker is gone. Its figures are final once the driver is done with its last faults.
    pub(crate) fn close(&mut self, settle: bool) {
        if settle {
            self.settle();
        }
        self.trackers.clear();
    }

    /// When they were last taken; none if the driver does not count.
    pub(crate) fn counters(&self) -> Option<ProcessCounters> {
        self.counters
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.pages.tally()
    }
}
