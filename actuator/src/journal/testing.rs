//! Journal on a disk that a test can block, or make fail.

use std::{
    io,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use model::ProcessId;
use sys::fake::Machine;

use super::{
    storage::{JournalFile, Storage},
    *,
};

/// Live process of the fake machine.
pub(crate) const LIVING: ProcessId = ProcessId { pid: 42, start_ticks: 7 };

/// Longer than any operation that does not wait.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Timeouts that never expire, without retries.
pub(crate) const LONG: Timeouts = Timeouts { intent: SOON, closing: SOON, retry: Duration::MAX };
pub(crate) const ZERO: Timeouts = Timeouts { intent: Duration::ZERO, closing: Duration::ZERO, retry: Duration::MAX };

pub(crate) fn machine() -> Machine {
    Machine::new().with("proc/sys/kernel/random/boot_id", "first\n").with("proc/42/stat", stat(42, 7))
}

pub(crate) fn stat(pid: u32, start_ticks: u64) -> String {
    format!("{pid} (app) S {}{start_ticks} {}\n", "0 ".repeat(18), "0 ".repeat(30))
}

/// Fake disk; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Clone, Debug, Default)]
pub(crate) struct DiskState {
    is_stuck: bool,
    is_full: bool,
    /// Number of writes.
    pub(crate) tries: usize,
    /// Number of syncs.
    pub(crate) syncs: usize,
}

impl Disk {
    /// Journal that has been written, if the disk accepts it.
    pub(crate) fn open(&self, machine: &Machine, timeouts: Timeouts) -> Journal {
        let journal = self.open_unwritten(machine, timeouts);
        let _is_written = self.state().is_stuck || journal.flush(SOON);
        journal
    }

    /// Journal whose file is unchanged until the disk has accepted the rewrite.
    pub(crate) fn open_unwritten(&self, machine: &Machine, timeouts: Timeouts) -> Journal {
        let path = machine.roots.proc.join("journal");
        let storage = TestStorage { disk: self.clone(), file: JournalFile::new(&path) };
        Journal::open_on(storage, &path, machine.roots.clone(), timeouts).unwrap()
    }

    pub(crate) fn state(&self) -> DiskState {
        self.0.0.lock().unwrap().clone()
    }

    pub(crate) fn stick(&self) {
        self.set(|state| state.is_stuck = true);
    }

    pub(crate) fn release(&self) {
        self.set(|state| state.is_stuck = false);
    }

    pub(crate) fn fill(&self, is_full: bool) {
        self.set(|state| state.is_full = is_full);
    }

    /// Waits until this many writes were attempted in total.
    pub(crate) fn wait_for_tries(&self, count: usize) {
        let (state, changed) = &*self.0;
        let waited = changed.wait_timeout_while(state.lock().unwrap(), SOON, |state| state.tries < count).unwrap();
        assert!(!waited.1.timed_out(), "nothing is written: {:?}", *waited.0);
    }

    fn set(&self, change: impl FnOnce(&mut DiskState)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn count_write(&self, is_durable: bool) -> io::Result<()> {
        self.set(|state| {
            state.tries += 1;
            state.syncs += usize::from(is_durable);
        });
        let (state, changed) = &*self.0;
        let state = changed.wait_while(state.lock().unwrap(), |state| state.is_stuck).unwrap();
        if state.is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

struct TestStorage {
    disk: Disk,
    file: JournalFile,
}

impl Storage for TestStorage {
    fn append(&mut self, text: &[u8], is_durable: bool) -> io::Result<()> {
        self.disk.count_write(is_durable)?;
        self.file.append(text, is_durable)
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        self.disk.count_write(true)?;
        self.file.replace(text)
    }
}
