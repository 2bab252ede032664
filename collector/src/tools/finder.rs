//! Processes that have the driver open, found in /proc.
//!
//! Each open file of the driver holds a reference to its module. While their number does not
//! change, no process has opened the driver, or as many were opened as closed: all processes are
//! inspected every ten seconds. When it changes, they are inspected at once, at most every 100 ms.
//! CUDA initialises for 100 ms and more between its open and the first kernel.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    time::Duration,
};

use sys::{
    Roots,
    cpu_budget::{Account, Accounts, Allowance},
    cpu_time,
    driver::References,
    processes,
    uvm::{
        UvmError,
        openers::{self, Device},
    },
};

use super::{creation_bounds::CreationBounds, progress::Progress};

/// Interval of inspections without a hint.
const ALL_EVERY: Duration = Duration::from_secs(10);
/// Minimum interval of inspections because of the references: a process may open and close the driver
/// all the time.
const HINTS_EVERY: Duration = Duration::from_millis(100);
/// Time for which an opener without a VA space is inspected as often as the references are read: CUDA
/// has the driver initialized as soon as it has opened it.
const INITIALIZES: Duration = Duration::from_millis(200);
/// Time for which a process that has opened the driver is inspected at each look, until it has a VA
/// space: the driver is opened first, and initialized after that.
const INITIALIZES_MAX: Duration = Duration::from_secs(5);
/// Budget of one user: a process may have thousands of open files.
const OF_USER: Allowance = Allowance { part: 100, burst: Duration::from_secs(1), credit_part: None };
/// Budget of all users together: opens and closes of the driver cause inspections of all processes.
const OF_NODE: Allowance = Allowance { part: 20, burst: Duration::from_secs(2), credit_part: None };

/// Maximum of processes of a user that are inspected at each look until they have a VA space.
const INITIALIZING_OF_USER_MAX: usize = 64;

/// Process that has the driver open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opener {
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
    pub(super) uid: u32,
    /// Short name, padded with 0.
    pub(super) comm: [u8; 16],
}

impl Opener {
    fn read(roots: &Roots, pid: u32, uid: u32) -> Option<Self> {
        let start_ticks = processes::start_ticks(roots, pid).ok()??;
        Some(Self { pid, start_ticks, uid, comm: processes::name(roots, pid) })
    }

    /// Whether the process with this id is still this one.
    pub(super) fn is_still(&self, roots: &Roots) -> bool {
        processes::start_ticks(roots, self.pid).is_ok_and(|ticks| ticks == Some(self.start_ticks))
    }

    /// Time since boot at which it started, in nanoseconds.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ticks.saturating_mul(1_000_000_000 / procfs::ticks_per_second().max(1))
    }
}

/// Finder of openers.
pub(super) struct Finder {
    roots: Roots,
    device: Device,
    /// References to the module, and their number at the last look.
    references: (Option<References>, Option<u64>),
    /// Processes that were counted since the last inspection.
    counted: HashSet<u32>,
    inspected_all: Option<Duration>,
    /// Last inspection of all, or of all but those that were counted.
    inspected: Option<Duration>,
    /// Openers without a VA space, and when they were found.
    initializing: BTreeMap<u32, (Opener, Duration)>,
    creation_bounds: CreationBounds,
    users: Accounts,
    node: Account,
    /// Processes that were not inspected, as a budget is used up. They are the first of the next
    /// inspection.
    skipped: Vec<u32>,
    /// Processes whose open files may not be listed.
    denied: usize,
    /// Reason why /proc cannot be read.
    unreadable: Option<String>,
    progress: Progress,
}

impl Finder {
    pub(super) fn new(roots: &Roots, device: Device, progress: Progress) -> Self {
        Self {
            roots: roots.clone(),
            device,
            references: (References::open(roots).ok(), None),
            counted: HashSet::new(),
            inspected_all: None,
            inspected: None,
            initializing: BTreeMap::new(),
            creation_bounds: CreationBounds::default(),
            users: Accounts::new(OF_USER),
            node: Account::new(),
            skipped: Vec::new(),
            denied: 0,
            unreadable: None,
            progress,
        }
    }

    /// Charges a user for processor time spent on its processes.
    pub(super) fn charge(&mut self, uid: u32, spent: Duration, now: Duration) {
        self.users.charge(uid, spent, now);
        self.node.charge(spent, OF_NODE, now);
    }

    /// Whether a user's budget is used up.
    pub(super) fn is_over(&self, uid: u32, now: Duration) -> bool {
        self.users.is_over(uid, now)
    }

    /// Openers that may have VA spaces that are not counted, at this time since boot. `counted`:
    /// processes that have some that are; these are inspected only every ten seconds. `omitted`: users
    /// whose processes are not inspected.
    pub(super) fn look(&mut self, counted: &HashSet<u32>, omitted: &HashSet<u32>, now: Duration) -> Vec<Opener> {
        let (references, last) = &self.references;
        let count = references.as_ref().and_then(References::count);
        let is_due = self.inspected_all.is_none_or(|last| now.saturating_sub(last) >= ALL_EVERY);
        let were_opened = count != *last;
        // The references may have changed before it was known that the process is not counted any
        // more, as its holder is gone.
        let has_changed = were_opened || !self.counted.is_subset(counted);
        self.counted.extend(counted);
        let mut found = Vec::new();
        let may_inspect = self.may_inspect(now) && !self.node.is_over(OF_NODE, now);
        if is_due || (has_changed && may_inspect) {
            self.references.1 = count;
            self.counted.clone_from(counted);
            found = self.inspect(if is_due { None } else { Some(counted) }, omitted, now);
            let open_or_skipped = found.iter().map(|opener| opener.pid).chain(self.skipped.iter().copied());
            let remains = |pid| counted.contains(&pid) || self.initializing.contains_key(&pid);
            self.creation_bounds.inspected(open_or_skipped, were_opened, remains, now);
            self.inspected = Some(now);
            if is_due {
                self.inspected_all = Some(now);
            }
        } else if !were_opened {
            self.creation_bounds.unchanged(now);
        }
        // The processor time of that is their user's.
        let users = &mut self.users;
        self.initializing.retain(|_, (opener, since)| {
            if now.saturating_sub(*since) >= INITIALIZES_MAX {
                return false;
            }
            if users.is_over(opener.uid, now) {
                return true;
            }
            let begun = cpu_time::of_this_thread();
            let is_still = opener.is_still(&self.roots);
            users.charge(opener.uid, cpu_time::of_this_thread().saturating_sub(begun), now);
            is_still
        });
        let known: HashSet<u32> = found.iter().map(|opener| opener.pid).collect();
        let again = self.initializing.values().map(|(opener, _)| opener).filter(|each| !known.contains(&each.pid));
        let again = again.filter(|each| !omitted.contains(&each.uid) && !self.users.is_over(each.uid, now));
        found.extend(again.cloned());
        found
    }

    /// Whether the last inspection is long enough ago for the references to cause another.
    fn may_inspect(&self, now: Duration) -> bool {
        self.inspected.is_none_or(|last| now.saturating_sub(last) >= HINTS_EVERY)
    }

    /// Whether a look is worth it between regular ones, at this time since boot: the driver was opened
    /// or closed, or an opener is about to have a VA space. Costs a read of the references.
    pub(super) fn has_cause(&self, now: Duration) -> bool {
        let (references, last) = &self.references;
        let is_new = |(opener, since): &(Opener, Duration)| {
            now.saturating_sub(*since) < INITIALIZES && !self.users.is_over(opener.uid, now)
        };
        self.initializing.values().any(is_new)
            || self.may_inspect(now) && references.as_ref().and_then(References::count) != *last
    }

    /// Records that an opener has no VA space that is not counted.
    pub(super) fn set_without_space(&mut self, opener: &Opener, now: Duration) {
        self.creation_bounds.set_without_space(opener.pid, now);
    }

    /// Time since boot after which an uncounted VA space of an opener was created.
    pub(super) fn created_after(&self, opener: &Opener) -> Duration {
        self.creation_bounds.created_after(opener.pid, Duration::from_nanos(opener.start_ns()))
    }

    /// Records whether an opener had a VA space.
    pub(super) fn tried(&mut self, opener: &Opener, has_space: bool, now: Duration) {
        if has_space {
            self.initializing.remove(&opener.pid);
        } else if self.initializing.values().filter(|(each, _)| each.uid == opener.uid).count()
            < INITIALIZING_OF_USER_MAX
        {
            self.initializing.entry(opener.pid).or_insert_with(|| (opener.clone(), now));
        }
    }

    /// Openers among all processes; `without`: but these, as the references have changed. Such an
    /// inspection is charged to the node alone: any user can cause it.
    fn inspect(&mut self, without: Option<&HashSet<u32>>, omitted: &HashSet<u32>, now: Duration) -> Vec<Opener> {
        let pids = match openers::processes(&self.roots) {
            Ok(pids) => pids,
            Err(error) => {
                self.unreadable = Some(format!("/proc cannot be read ({error}): processes are not found"));
                return Vec::new();
            }
        };
        self.unreadable = None;
        self.denied = 0;
        let own = std::process::id();
        let mut found = Vec::new();
        for pid in first(&std::mem::take(&mut self.skipped), pids) {
            if pid == own || without.is_some_and(|known| known.contains(&pid)) {
                continue;
            }
            let Some(uid) = processes::user(&self.roots, pid) else { continue };
            if omitted.contains(&uid) || self.is_over(uid, now) || self.node.is_over(OF_NODE, now) {
                self.skipped.push(pid);
                continue;
            }
            let begun = cpu_time::of_this_thread();
            self.progress.begin(pid, uid);
            match self.device.is_open_in(&self.roots, pid) {
                // Holders and actors have VA spaces of others.
                Ok(true) if processes::ancestors(&self.roots, pid).any(|above| above == own) => {}
                Ok(true) => found.extend(Opener::read(&self.roots, pid, uid)),
                Ok(false) => {}
                Err(UvmError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                    self.denied += 1;
                }
                Err(error) => tracing::debug!(pid, "its open files are not inspected: {error}"),
            }
            self.progress.end();
            let spent = cpu_time::of_this_thread().saturating_sub(begun);
            match without {
                Some(_) => self.node.charge(spent, OF_NODE, now),
                None => self.charge(uid, spent, now),
            }
        }
        found
    }

    /// Reason why some processes are not found.
    pub(super) fn warning(&self) -> Option<String> {
        let skipped = (!self.skipped.is_empty()).then(|| {
            format!(
                "{} processes were not searched for VA spaces: the budget of processor time of their users, or of the node, is used up",
                self.skipped.len()
            )
        });
        let denied = (self.denied > 0).then(|| {
            format!(
                "uvmd may not list the open files of {} processes, so that it does not count them: add CAP_SYS_PTRACE and \
                 CAP_DAC_READ_SEARCH (drop-in uvmd-tools.conf)",
                self.denied
            )
        });
        self.unreadable.clone().or(denied).or(skipped)
    }
}

/// These of all processes first, in their order.
fn first(these: &[u32], all: Vec<u32>) -> Vec<u32> {
    let (mut left, mut ordered): (HashSet<u32>, Vec<u32>) = (all.iter().copied().collect(), Vec::new());
    ordered.extend(these.iter().filter(|pid| left.remove(pid)));
    ordered.extend(all.into_iter().filter(|pid| left.contains(pid)));
    ordered
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    /// Machine with the driver, whose device is that of a terminal.
    fn machine() -> Machine {
        Machine::new()
            .with("proc/devices", "Character devices:\n  5 nvidia-uvm\n\nBlock devices:\n")
            .with("sys/module/nvidia_uvm/refcnt", "0\n")
    }

    /// Adds a process that has a file open.
    fn open(machine: &Machine, pid: u32, file: &str) {
        let stat = format!("{pid} (cuda) S 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 {}\n", "0 ".repeat(30));
        machine.write(&format!("proc/{pid}/stat"), stat.as_str());
        machine.write(&format!("proc/{pid}/status"), "Uid:\t1000\t0\t0\t0\n");
        machine.write(&format!("proc/{pid}/comm"), "cuda\n");
        machine.link(&format!("proc/{pid}/fd/3"), file);
    }

    fn pids(found: Vec<Opener>) -> Vec<u32> {
        found.into_iter().map(|opener| opener.pid).collect()
    }

    #[test]
    fn openers_are_found_when_the_references_to_the_module_change() {
        let machine = machine();
        open(&machine, 41, "/dev/zero");
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let none = HashSet::new();
        let at = Duration::from_millis;
        assert_eq!(pids(finder.look(&none, &none, at(0))), [0; 0]);
        open(&machine, 42, "/dev/tty");
        assert_eq!(pids(finder.look(&none, &none, at(100))), [0; 0]);
        machine.write("sys/module/nvidia_uvm/refcnt", "1\n");
        assert_eq!(pids(finder.look(&none, &none, at(200))), [42]);
        assert_eq!(pids(finder.look(&none, &none, at(300))), [0; 0]);
        // Without a hint, after ten seconds.
        assert_eq!(pids(finder.look(&none, &none, at(10_100))), [42]);
    }

    #[test]
    fn opener_that_is_not_counted_any_more_is_found_without_delay() {
        let machine = machine();
        open(&machine, 42, "/dev/tty");
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let (none, counted, at) = (HashSet::new(), HashSet::from([42]), Duration::from_millis);
        assert_eq!(pids(finder.look(&none, &none, at(0))), [42]);
        finder.tried(&Opener { pid: 42, start_ticks: 77, uid: 1000, comm: [0; 16] }, true, at(0));
        assert_eq!(pids(finder.look(&counted, &none, at(100))), [0; 0]);
        // Its holder was killed, and the references changed before that was known.
        machine.write("sys/module/nvidia_uvm/refcnt", "1\n");
        assert_eq!(pids(finder.look(&counted, &none, at(150))), [0; 0]);
        assert_eq!(pids(finder.look(&none, &none, at(200))), [0; 0]);
        assert_eq!(pids(finder.look(&none, &none, at(250))), [42]);
    }

    #[test]
    fn open_of_the_driver_causes_a_look_at_once_and_many_cause_one_each_100_ms() {
        let machine = machine();
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let (none, at) = (HashSet::new(), Duration::from_millis);
        finder.look(&none, &none, at(1000));
        assert!(!finder.has_cause(at(1500)));
        open(&machine, 42, "/dev/tty");
        machine.write("sys/module/nvidia_uvm/refcnt", "1\n");
        assert!(finder.has_cause(at(1510)));
        let found = finder.look(&none, &none, at(1510));
        // It is about to be initialized.
        finder.tried(&found[0], false, at(1510));
        assert!(finder.has_cause(at(1520)) && !finder.has_cause(at(1710)));
        finder.tried(&found[0], true, at(1530));
        machine.write("sys/module/nvidia_uvm/refcnt", "2\n");
        assert!(!finder.has_cause(at(1600)) && finder.has_cause(at(1610)));
    }

    #[test]
    fn processes_of_omitted_users_are_not_inspected() {
        let machine = machine();
        open(&machine, 42, "/dev/tty");
        let device = Device::of_driver(&machine.roots).unwrap();
        let mut finder = Finder::new(&machine.roots, device, Progress::default());
        assert_eq!(pids(finder.look(&HashSet::new(), &[1000].into(), Duration::ZERO)), [0; 0]);
        assert!(finder.warning().unwrap().starts_with("1 processes were not searched"));
    }

    #[test]
    fn processes_that_were_not_inspected_are_the_first_of_the_next_inspection() {
        assert_eq!(first(&[5, 9, 3], vec![1, 3, 5, 7]), [5, 3, 1, 7]);
        let machine = machine();
        for pid in 100..104 {
            open(&machine, pid, "/dev/tty");
        }
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let (none, at) = (HashSet::new(), Duration::from_secs);
        // The node's budget is used up by others.
        finder.charge(0, Duration::from_mins(1), at(1));
        assert_eq!(pids(finder.look(&none, &none, at(1))), [0; 0]);
        assert_eq!(finder.skipped.len(), 4);
        finder.skipped = vec![103, 101];
        let later = at(3600);
        assert_eq!(pids(finder.look(&none, &none, later))[..2], [103, 101]);
        // They are not known to have had no VA space when they were not inspected.
        assert_eq!(finder.creation_bounds.created_after(103, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn va_space_has_not_begun_before_the_look_at_which_its_process_had_none() {
        let machine = machine();
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let (none, at) = (HashSet::new(), Duration::from_millis);
        let start = at(770);
        let created_after = |finder: &Finder, found: &[Opener]| {
            found.iter().map(|opener| finder.created_after(opener)).collect::<Vec<_>>()
        };
        open(&machine, 41, "/dev/tty");
        // It is older than the search.
        let found = finder.look(&none, &none, at(5000));
        assert_eq!(created_after(&finder, &found), [start]);
        let counted = HashSet::from([41]);
        finder.look(&counted, &none, at(5100));
        // Opens are seen by the references.
        open(&machine, 42, "/dev/tty");
        machine.write("sys/module/nvidia_uvm/refcnt", "2\n");
        let found = finder.look(&counted, &none, at(5200));
        assert_eq!((created_after(&finder, &found), found[0].pid), (vec![at(5100)], 42));
        // It has none yet.
        finder.set_without_space(&found[0], at(5200));
        finder.tried(&found[0], false, at(5200));
        let found = finder.look(&counted, &none, at(5300));
        assert_eq!(created_after(&finder, &found), [at(5200)]);
        // An open that the references did not show, and a second VA space of a counted process.
        open(&machine, 43, "/dev/tty");
        let found = finder.look(&HashSet::from([41, 42]), &none, at(15_300));
        let mut creation_bounds: Vec<_> =
            found.iter().map(|opener| (opener.pid, finder.created_after(opener))).collect();
        creation_bounds.sort_unstable();
        assert_eq!(creation_bounds, [(41, start), (42, at(5200)), (43, at(5200))]);
    }

    #[test]
    fn at_most_64_processes_of_a_user_are_inspected_at_each_look() {
        let machine = machine();
        for pid in 100..200 {
            open(&machine, pid, "/dev/tty");
        }
        let device = Device::of_driver(&machine.roots).unwrap();
        let mut finder = Finder::new(&machine.roots, device, Progress::default());
        let (none, at) = (HashSet::new(), Duration::from_millis);
        for opener in finder.look(&none, &none, at(0)) {
            finder.tried(&opener, false, at(0));
        }
        assert_eq!(finder.look(&none, &none, at(100)).len(), INITIALIZING_OF_USER_MAX);
    }

    #[test]
    fn opener_without_a_va_space_is_tried_again_for_five_seconds() {
        let machine = machine();
        open(&machine, 42, "/dev/tty");
        let mut finder = Finder::new(&machine.roots, Device::of_driver(&machine.roots).unwrap(), Progress::default());
        let none = HashSet::new();
        let at = Duration::from_millis;
        let found = finder.look(&none, &none, at(0));
        finder.tried(&found[0], false, at(0));
        assert_eq!(pids(finder.look(&none, &none, at(4900))), [42]);
        assert_eq!(pids(finder.look(&none, &none, at(5000))), [0; 0]);
        finder.tried(&found[0], false, at(5000));
        finder.tried(&found[0], true, at(5100));
        assert_eq!(pids(finder.look(&none, &none, at(5200))), [0; 0]);
    }
}
