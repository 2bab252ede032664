//! Inspections by all workers: their processor time, and the places of rings that they have found.
//!
//! A process decides how long an inspection takes: it can have very many mappings and threads. Processor time
//! beyond that of a usual inspection is therefore charged to the target's user. Orders are denied once the user's
//! time is used up. Withdrawals have an account for each target, so that no other process of the user can prevent
//! them.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use call_ring::{NAME, TOTAL_BYTES, memory::HEADER_BYTES};
use sys::{
    Roots,
    cpu_budget::{Accounts, Allowance},
    cpu_time,
    processes::{self, Image},
    shared_memory::{Form, Place, SharedMemory, SharedMemoryError},
};

use crate::slots::{Slots, Target};

/// Processor time of an inspection that is not charged: enough for some thousand mappings.
const UNCHARGED: Duration = Duration::from_millis(5);
/// The same for each inspected thread, up to [`UNCHARGED_THREADS_MAX`].
const UNCHARGED_PER_THREAD: Duration = Duration::from_micros(20);
const UNCHARGED_THREADS_MAX: usize = 1024;
/// Time charged to a user, beyond which orders are denied.
const USER_ALLOWANCE: Allowance = Allowance { part: 50, burst: Duration::from_secs(1), credit_part: None };
/// Time of the withdrawals from a target, beyond which they are tried later.
const TARGET_ALLOWANCE: Allowance = Allowance { part: 200, burst: Duration::from_secs(1), credit_part: None };
/// Account of users whose id is unknown: no user has this one.
const UNKNOWN_USER: u32 = u32::MAX;
/// Age from which a search that found no ring, or failed, is repeated.
const SEARCH_AGE_MAX: Duration = Duration::from_secs(10);
/// Searches that are remembered.
const SEARCHES_MAX: usize = 1024;

/// Ring of a process. Only its header is mapped: uvmd pays for at most two pages.
const RING: Form = Form {
    name: NAME,
    bytes: NonZeroUsize::new(TOTAL_BYTES).unwrap(),
    writable_bytes: NonZeroUsize::new(HEADER_BYTES).unwrap(),
};

/// Inspections, and actors, of all workers. Times are of one monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Inspections {
    state: Arc<Mutex<State>>,
    slots: Slots,
    actor_slots: Slots,
}

#[derive(Debug)]
struct State {
    users: Accounts,
    /// By process id.
    targets: Accounts,
    searches: BTreeMap<u32, Search>,
}

/// Completed search for the ring of a process.
#[derive(Clone, Debug)]
struct Search {
    /// Program that the process executed.
    image: Image,
    at: Duration,
    found: Result<Option<Place>, Arc<SharedMemoryError>>,
}

impl Default for State {
    fn default() -> Self {
        let [users, targets] = [USER_ALLOWANCE, TARGET_ALLOWANCE].map(Accounts::new);
        Self { users, targets, searches: BTreeMap::new() }
    }
}

impl Inspections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots of inspections.
    pub(crate) const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Slots of actors.
    pub(crate) const fn actor_slots(&self) -> &Slots {
        &self.actor_slots
    }

    /// Whether there is time for an inspection of a target.
    pub(crate) fn has_time(&self, target: Target, is_withdrawal: bool, now: Duration) -> bool {
        let state = self.state();
        if is_withdrawal {
            !state.targets.is_over(target.pid, now)
        } else {
            !state.users.is_over(target.uid.unwrap_or(UNKNOWN_USER), now)
        }
    }

    /// Runs an inspection on this thread, and charges its processor time. The inspection counts the threads that it
    /// inspects.
    pub(crate) fn run_charged<T>(
        &self,
        target: Target,
        is_withdrawal: bool,
        now: Duration,
        inspect: impl FnOnce(&mut usize) -> T,
    ) -> T {
        let (begun, mut threads) = (cpu_time::of_this_thread(), 0);
        let result = inspect(&mut threads);
        let spent = cpu_time::of_this_thread().saturating_sub(begun);
        self.charge(target, is_withdrawal, spent.saturating_sub(uncharged_time(threads)), now);
        result
    }

    fn charge(&self, target: Target, is_withdrawal: bool, excess: Duration, now: Duration) {
        if excess.is_zero() {
            return;
        }
        let mut state = self.state();
        state.users.charge(target.uid.unwrap_or(UNKNOWN_USER), excess, now);
        if is_withdrawal {
            state.targets.charge(target.pid, excess, now);
        }
    }

    /// Uses up the burst of a user, as of now.
    #[cfg(test)]
    pub(crate) fn exhaust(&self, uid: u32) {
        self.charge(Target { pid: u32::MAX, uid: Some(uid) }, false, USER_ALLOWANCE.burst, sys::clock::monotonic());
    }

    /// Memory of the ring of a process; `None` without a helper. Reads the mappings of the process, which may hang,
    /// once for each program that it executes, and again after a while if there was no ring.
    ///
    /// # Errors
    /// If it cannot be read, or could be removed later.
    pub(crate) fn ring(
        &self,
        roots: &Roots,
        pid: u32,
        now: Duration,
    ) -> Result<Option<SharedMemory>, Arc<SharedMemoryError>> {
        let image = || processes::image(roots, pid).ok().flatten();
        let before = image();
        let known = self.state().searches.get(&pid).filter(|search| Some(search.image) == before).cloned();
        let is_recent = |search: &Search| now.saturating_sub(search.at) < SEARCH_AGE_MAX;
        let found = match known {
            Some(search) if is_recent(&search) || matches!(search.found, Ok(Some(_))) => search.found,
            _ => {
                let found = Place::find(roots, pid, RING).map_err(Arc::new);
                if let Some(image) = image().filter(|after| before == Some(*after)) {
                    self.state().cache(pid, Search { image, at: now, found: found.clone() });
                }
                found
            }
        };
        let Some(place) = found? else { return Ok(None) };
        Ok(Some(place.open()?))
    }
}

/// Processor time of an inspection of this many threads that is not charged.
fn uncharged_time(threads: usize) -> Duration {
    UNCHARGED + UNCHARGED_PER_THREAD * u32::try_from(threads.min(UNCHARGED_THREADS_MAX)).unwrap_or(0)
}

impl State {
    /// Remembers a search, in place of the oldest one if there are too many.
    fn cache(&mut self, pid: u32, search: Search) {
        self.searches.insert(pid, search);
        if self.searches.len() > SEARCHES_MAX
            && let Some((oldest, _)) = self.searches.iter().min_by_key(|(_, search)| search.at)
        {
            let oldest = *oldest;
            self.searches.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sys::fake::Machine;

    use super::*;
    use crate::helper::{
        Ring, RingError,
        testing::{Behaviour, Program, is_permitted},
    };

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(1000);

    const fn target(pid: u32, uid: u32) -> Target {
        Target { pid, uid: Some(uid) }
    }

    /// Stat of a process with its stack at this address.
    fn stat(pid: u32, stack: u64) -> String {
        let fields: Vec<String> = (4..=52).map(|field| if field == 28 { stack } else { 0 }.to_string()).collect();
        format!("{pid} (app) S {}\n", fields.join(" "))
    }

    fn remove_maps(machine: &Machine, pid: u32) {
        fs::remove_file(machine.roots.proc.join(format!("{pid}/maps"))).unwrap();
    }

    #[test]
    fn process_is_searched_once_for_each_program_that_it_executes() {
        if !is_permitted() {
            return;
        }
        let program = Program::start(Behaviour::NeverStarts);
        let pid = program.process.pid();
        let machine = Machine::new().with(&format!("proc/{pid}/stat"), stat(pid, 1));
        for name in ["maps", "status", "map_files"] {
            machine.link(&format!("proc/{pid}/{name}"), &format!("/proc/{pid}/{name}"));
        }
        let inspections = Inspections::default();
        let attach = || inspections.ring(&machine.roots, pid, NOW).map_err(RingError::from).and_then(Ring::attach);
        attach().unwrap();
        remove_maps(&machine, pid);
        attach().unwrap();
        machine.write(&format!("proc/{pid}/stat"), stat(pid, 2));
        assert!(matches!(attach(), Err(RingError::Memory(_))));
    }

    #[test]
    fn empty_and_failed_searches_are_not_repeated_at_once() {
        let machine = Machine::new().with("proc/7/stat", stat(7, 1)).with("proc/8/stat", stat(8, 1));
        machine.write("proc/7/maps", "");
        let inspections = Inspections::default();
        // The mappings of the second process cannot be read.
        let are_absent =
            |now| [7, 8].map(|pid| inspections.ring(&machine.roots, pid, now).map(|ring| ring.is_none()).ok());
        assert_eq!(are_absent(NOW), [Some(true), None]);
        remove_maps(&machine, 7);
        machine.write("proc/8/maps", "");
        assert_eq!(are_absent(NOW + 9 * SECOND), [Some(true), None], "neither is read again");
        assert_eq!(are_absent(NOW + 10 * SECOND), [None, Some(true)]);
    }

    #[test]
    fn cached_searches_are_bounded() {
        let machine = Machine::new().with("proc/7/stat", stat(7, 1));
        let image = processes::image(&machine.roots, 7).unwrap().unwrap();
        let mut state = State::default();
        for pid in 0..2000 {
            state.cache(pid, Search { image, at: NOW + SECOND * pid, found: Ok(None) });
        }
        assert_eq!((state.searches.len(), state.searches.first_key_value().map(|(pid, _)| *pid)), (1024, Some(976)));
    }

    #[test]
    fn user_of_large_memory_maps_gets_no_orders_until_its_time_recovers() {
        let inspections = Inspections::default();
        let has_time = |uid, now| inspections.has_time(target(9, uid), false, now);
        for pid in 0..11 {
            inspections.charge(target(pid, 1), false, SECOND / 10, NOW);
        }
        assert_eq!([1, 2].map(|uid| has_time(uid, NOW)), [false, true]);
        assert!(!has_time(1, NOW + 4 * SECOND) && has_time(1, NOW + 5 * SECOND), "2 % of a processor");
    }

    #[test]
    fn withdrawals_wait_for_former_withdrawals_from_their_target_alone() {
        let inspections = Inspections::default();
        let has_time = |pid, now| inspections.has_time(target(pid, 1), true, now);
        for pid in [7, 8] {
            inspections.charge(target(pid, 1), false, 3 * SECOND, NOW);
        }
        assert_eq!([7, 8].map(|pid| has_time(pid, NOW)), [true; 2]);
        inspections.charge(target(7, 1), true, 2 * SECOND, NOW);
        assert_eq!([7, 8].map(|pid| has_time(pid, NOW)), [false, true]);
        assert!(!has_time(7, NOW + 199 * SECOND) && has_time(7, NOW + 200 * SECOND), "0.5 % of a processor");
    }

    #[test]
    fn processor_time_of_a_long_inspection_is_charged() {
        let inspections = Inspections::default();
        let spend = |time| {
            let until = cpu_time::of_this_thread() + time;
            while cpu_time::of_this_thread() < until {}
        };
        inspections.run_charged(target(7, 1), true, NOW, |_| spend(2 * UNCHARGED));
        let debts = || {
            let state = inspections.state();
            (state.users.debt(1, NOW), state.targets.debt(7, NOW))
        };
        let before = debts();
        assert!(before.0 >= UNCHARGED && before.1 >= UNCHARGED);
        inspections.run_charged(target(7, 1), true, NOW, |threads| *threads = 1000);
        assert_eq!(debts(), before, "a usual one is free");
    }

    #[test]
    fn inspection_of_1024_threads_is_uncharged_and_of_more_is_not() {
        let ms = Duration::from_millis;
        assert_eq!([0, 1, 1000].map(uncharged_time), [ms(5), ms(5) + ms(1) / 50, ms(25)]);
        // 18 us each, as measured.
        assert!(Duration::from_micros(18) * 1000 < uncharged_time(1000));
        assert_eq!(uncharged_time(4096), uncharged_time(1024));
    }
}
