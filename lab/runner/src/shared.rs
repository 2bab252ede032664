//! What a worker shares with the runner, and what so outlives it: the page that the driver counts in, and the worker's tally.

use std::{fs::File, sync::Arc, thread, time::Duration};

use crate::{
    check::Tally,
    sys::{counters::ProcessCounters, memory::SharedPages, process::duplicate},
};

/// Long enough for the driver's bottom half to be done with the faults of a process that is gone.
const QUIET: Duration = Duration::from_millis(100);

/// What outlives the worker.
pub(crate) struct Shared {
    pages: Arc<SharedPages>,
    /// The driver counts as long as this is open. It keeps the worker's VA space, so it is closed soon after the worker's end.
    tracker: Option<File>,
    counters: Option<ProcessCounters>,
}

impl Shared {
    /// From the worker's descriptors.
    pub(crate) fn of(pid: u32, pages_fd: i32, tracker_fd: Option<i32>) -> anyhow::Result<Self> {
        let pages = Arc::new(SharedPages::map(duplicate(pid, pages_fd)?)?);
        let tracker = tracker_fd.map(|fd| duplicate(pid, fd)).transpose()?;
        Ok(Self { pages, tracker, counters: None })
    }

    /// For whoever looks at them meanwhile.
    pub(crate) fn pages(&self) -> Arc<SharedPages> {
        Arc::clone(&self.pages)
    }

    /// Take the driver's figures.
    pub(crate) fn read(&mut self) {
        self.counters = self.tracker.as_ref().map(|_| ProcessCounters::read(&self.pages));
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
        self.tracker = None;
    }

    /// When they were last taken; none if the driver does not count.
    pub(crate) fn counters(&self) -> Option<ProcessCounters> {
        self.counters
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.pages.tally()
    }
}
