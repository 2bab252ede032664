//! Mapped managed memory of processes.
//!
//! For a read the kernel holds the lock of the process's memory map, and a process may have very
//! many mappings. Reads therefore run on a separate thread, rarely, one process at a time, and are
//! abandoned if there are too many. What reads cost is charged to the process's user. A process may also
//! hold the lock itself, for any time: then the read hangs, and is replaced.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use model::ProcessId;
use sys::Roots;

use crate::{
    clock,
    lookup_cache::{LookupCache, Pace},
    spans::{RANGES_MAX, Span, together},
    user_reads::{self, UserReads},
};

const PACE: Pace = Pace {
    retry_min: Duration::from_secs(10),
    retry_max: Duration::from_mins(5),
    answer_max: Duration::from_secs(10),
    wanted: Duration::from_secs(10),
    running_max: 1,
    timeout: Duration::from_secs(2),
};

/// Known mappings.
#[derive(Debug)]
pub(crate) struct ManagedMemory {
    read: LookupCache<ProcessId, Managed>,
    reads: Arc<UserReads>,
    /// Maximum of ranges of each process.
    ranges_max: Arc<AtomicUsize>,
}

/// Managed memory of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Managed {
    pub(crate) bytes: u64,
    /// Mappings in the order of addresses. If there are very many, adjacent ones are merged.
    pub(crate) ranges: Arc<[Span]>,
    /// Number of mappings.
    pub(crate) mappings: usize,
    /// Earliest time of the reading, ns since boot.
    pub(crate) read_ns: u64,
}

impl ManagedMemory {
    pub(crate) fn new(roots: &Roots) -> Self {
        let roots = roots.clone();
        let ranges_max = Arc::new(AtomicUsize::new(RANGES_MAX));
        let reads = Arc::<UserReads>::default();
        let (max, of_users) = (Arc::clone(&ranges_max), Arc::clone(&reads));
        let find = move |process: &ProcessId| {
            of_users.read(&roots, *process, || read(&roots, *process, max.load(Ordering::Relaxed)))
        };
        Self { read: LookupCache::new(PACE, find), reads, ranges_max }
    }

    /// Sets the maximum of ranges of each process.
    pub(crate) fn bound_ranges(&self, max: usize) {
        self.ranges_max.store(max, Ordering::Relaxed);
    }

    /// Known mappings of a live process, some seconds old.
    pub(crate) fn of(&self, process: ProcessId) -> Option<Managed> {
        self.read.get(&process, Instant::now())
    }

    /// Processes whose mappings cannot be read, as they hold their memory maps; users whose are not read.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let hung = self.read.hung(Instant::now());
        let of_hung = user_reads::hung_warning(
            "/proc/PID/maps",
            "they hold their memory maps",
            &hung,
            "their managed memory is as of the last reading, or unknown",
        );
        of_hung.into_iter().chain(user_reads::warning("/proc/PID/maps", &self.reads))
    }
}

/// Reads the mappings; `None` if the process has exited, or they cannot be read.
pub(crate) fn read(roots: &Roots, id: ProcessId, ranges_max: usize) -> Option<Managed> {
    let read_ns = clock::since_boot(roots).map_or(0, clock::nanoseconds);
    let mapped = sys::uvm::mapped::of(roots, id.pid).ok()?;
    let bytes = mapped.iter().map(|span| span.end - span.start).sum();
    let managed = Managed { bytes, ranges: together(&mapped, ranges_max).into(), mappings: mapped.len(), read_ns };
    Some(managed)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, thread};

    use sys::fake::Machine;

    use super::*;

    #[test]
    fn process_with_a_locked_map_does_not_block_reads_of_others() {
        let zeros = "0 ".repeat(30);
        let stat = |pid| format!("{pid} (app) S {}7 {zeros}\n", &zeros[..36]);
        let machine = Machine::new()
            .with("proc/uptime", "5.00 5.00\n")
            .with("proc/42/stat", stat(42))
            .with("proc/43/stat", stat(43))
            .with("proc/42/status", "Uid:\t1000\t1000\t1000\t1000\n")
            .with("proc/43/status", "Uid:\t1001\t1001\t1001\t1001\n")
            .with("proc/43/maps", "7f0000600000-7f0000601000 rw-s 0 00:06 1 /dev/nvidia-uvm\n");
        // An open blocks until there is a writer.
        let made = Command::new("mkfifo").arg(machine.roots.proc.join("42/maps")).status().unwrap();
        assert!(made.success());
        let managed = ManagedMemory::new(&machine.roots);
        let hung =
            |managed: &ManagedMemory| managed.warnings().find(|warning| warning.contains("hold their memory maps"));
        let [hangs, reads] = [42, 43].map(|pid| ProcessId { pid, start_ticks: 7 });
        let deadline = Instant::now() + Duration::from_mins(2);
        while managed.of(hangs).is_some() || managed.of(reads).is_none() {
            assert!(Instant::now() < deadline, "{:?}", hung(&managed));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(managed.of(reads).unwrap().bytes, 4096);
        assert!(hung(&managed).unwrap().contains("(pid 42)"));
        // Once it is released there is no warning any more.
        fs::write(machine.roots.proc.join("42/maps"), "").unwrap();
        while hung(&managed).is_some() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn exited_process_yields_nothing() {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        let own = ProcessId { pid: u32::try_from(stat.pid).unwrap(), start_ticks: stat.starttime };
        let roots = Roots::default();
        let managed = read(&roots, own, 10).unwrap();
        assert_eq!((managed.bytes, &managed.ranges[..]), (0, &[][..]));
        assert!(managed.read_ns > 0);
        assert_eq!(read(&roots, ProcessId { pid: u32::MAX, ..own }, 10), None);
    }
}
