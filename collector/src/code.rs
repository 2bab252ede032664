//! Places in the code of processes: modules and functions of their sites.
//!
//! As with [managed memory](crate::managed), a process can make these reads hang, and what they cost is charged to
//! its user. The account is another one: large programs on slow disks do not delay what is known of memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use model::{CodeModule, CodePlace, ProcessId};
use sys::{Roots, code};

use crate::{
    lookup_cache::{LookupCache, Pace},
    user_reads::{self, UserReads},
};

/// An answer is renewed for new sites alone, as each place is looked up once.
const PACE: Pace = Pace {
    retry_min: Duration::from_secs(10),
    retry_max: Duration::from_mins(5),
    answer_max: Duration::from_secs(2),
    wanted: Duration::from_secs(10),
    running_max: 1,
    timeout: Duration::from_secs(2),
};

/// Program counters by process.
type Requests = BTreeMap<ProcessId, Vec<u64>>;
/// Places of some program counters of a process.
pub(crate) type Places = Arc<[(u64, CodePlace)]>;

/// Look-ups of places.
#[derive(Debug)]
pub(crate) struct Code {
    read: LookupCache<ProcessId, Places>,
    reads: Arc<UserReads>,
    requests: Arc<Mutex<Requests>>,
}

impl Code {
    pub(crate) fn new(roots: &Roots) -> Self {
        let (roots, requests) = (roots.clone(), Arc::<Mutex<Requests>>::default());
        let reads = Arc::<UserReads>::default();
        let (of_processes, of_users) = (Arc::clone(&requests), Arc::clone(&reads));
        let find = move |process: &ProcessId| {
            let pcs = of_processes.lock().unwrap_or_else(PoisonError::into_inner).get(process).cloned()?;
            of_users.read(&roots, *process, || code::places(&roots, process.pid, &pcs).ok()).map(places)
        };
        Self { read: LookupCache::new(PACE, find), reads, requests }
    }

    /// Looks up the places of these program counters; those found so far.
    pub(crate) fn places(&self, requests: Requests) -> Vec<(ProcessId, Places)> {
        let processes: Vec<ProcessId> = requests.keys().copied().collect();
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = requests;
        let now = Instant::now();
        processes.into_iter().filter_map(|process| Some((process, self.read.get(&process, now)?))).collect()
    }

    /// Processes whose code cannot be read; users whose code is not.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let of_hung = user_reads::hung_warning(
            "the code",
            "they hold their memory maps or serve the file systems of their programs",
            &self.read.hung(Instant::now()),
            "their sites of CPU faults have no function names",
        );
        of_hung.into_iter().chain(user_reads::warning("the code", &self.reads))
    }
}

fn places(found: Vec<(u64, code::Place)>) -> Places {
    let place = |place| match place {
        code::Place::Unmapped => CodePlace::Unmapped,
        code::Place::Anonymous => CodePlace::Anonymous,
        code::Place::Module(code::Module { path, offset, elf_address, symbol }) => CodePlace::Module(CodeModule {
            path,
            offset,
            elf_address,
            symbol: symbol.map(|symbol| (symbol.name, symbol.offset)).map_err(|reason| reason.to_string()),
        }),
    };
    found.into_iter().map(|(pc, found)| (pc, place(found))).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use sys::fake::Machine;

    use super::*;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 7 }
    }

    #[test]
    fn process_that_hangs_its_look_up_delays_no_other() {
        let stat = |pid| format!("{pid} (app) S {}7 {}\n", "0 ".repeat(18), "0 ".repeat(30));
        let machine = (42..44).fold(Machine::new(), |machine, pid| {
            let status = format!("Uid:\t{}\t0\t0\t0\n", 1000 + pid);
            machine.with(&format!("proc/{pid}/stat"), stat(pid)).with(&format!("proc/{pid}/status"), status)
        });
        machine.write("proc/43/maps", "1000-2000 r-xp 00000000 00:00 0\n");
        machine.hang("proc/42/maps");
        let code = Code::new(&machine.roots);
        let requests = || [(id(42), vec![0x1000]), (id(43), vec![0x1800, 0x5000])].into();
        let deadline = Instant::now() + Duration::from_mins(2);
        let found = loop {
            let found = code.places(requests());
            if !found.is_empty() {
                break found;
            }
            assert!(Instant::now() < deadline, "{:?}", code.warnings().collect::<Vec<_>>());
            thread::sleep(Duration::from_millis(10));
        };
        let [(process, places)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(*process, id(43));
        assert_eq!(places[..], [(0x1800, CodePlace::Anonymous), (0x5000, CodePlace::Unmapped)]);
        assert!(code.warnings().any(|warning| warning.contains("(pid 42)")));
        // So that its thread ends.
        machine.write("proc/42/maps", "");
    }
}
