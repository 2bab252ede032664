use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use call_ring::{Group, Kind, Memory, Mode, TOTAL_BYTES, call::Call, operation::apply};
use rustix::fs::OFlags;
use sys::{fake::Machine, shared_memory::SharedMemoryError};

use super::{slots::MIN_TENURE, *};
use crate::{
    merge::{Losses, Merge},
    visits,
};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(50);
/// Simulated processor time for reading a call.
const CALL_COST: Duration = Duration::from_micros(1);

/// Clock that advances with the work done.
#[derive(Debug, Default)]
struct Work {
    now_ns: AtomicU64,
    spent_ns: AtomicU64,
    used: Mutex<BTreeMap<ProcessId, Duration>>,
}

impl Work {
    fn spend(&self, spent: Duration) {
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap();
        self.now_ns.fetch_add(spent_ns, Ordering::Relaxed);
        self.spent_ns.fetch_add(spent_ns, Ordering::Relaxed);
    }

    fn wait_until(&self, time: Duration) {
        self.now_ns.fetch_max(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    fn set_cpu_time(&self, process: ProcessId, used: Duration) {
        lock(&self.used).insert(process, used);
    }
}

impl Clock for Work {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    fn thread_cpu_time(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed))
    }

    fn cpu_time_of(&self, process: ProcessId) -> Option<Duration> {
        lock(&self.used).get(&process).copied()
    }
}

/// Behaviour of a program.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// Calls per second of its first thread.
    Calls(u64),
    /// All lanes are full whenever they are read.
    Flood,
}

/// Ring of a program. Each reading first writes the calls that the program would have made by then.
#[derive(Debug)]
struct WrittenRing {
    words: Vec<AtomicU64>,
    merge: Merge,
    program: Program,
    written: u64,
    clock: Arc<Work>,
    /// Times of its readings.
    reads: Arc<Mutex<Vec<Duration>>>,
}

impl WrittenRing {
    fn new(program: Program, clock: &Arc<Work>, reads: &Arc<Mutex<Vec<Duration>>>) -> Box<Self> {
        let words: Vec<AtomicU64> = (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        Memory::create(&words, Mode::Record).unwrap();
        let (clock, reads) = (Arc::clone(clock), Arc::clone(reads));
        Box::new(Self { words, merge: Merge::default(), program, written: 0, clock, reads })
    }

    fn write(&mut self) {
        let memory = Memory::open(&self.words).unwrap();
        match self.program {
            Program::Calls(rate) => {
                let due = u64::try_from(self.clock.now().as_micros()).unwrap() * rate / 1_000_000;
                for _ in self.written..due {
                    let (stamp, lane) = (memory.stamp(0, 1), memory.lane(0));
                    if lane.has_room(1) {
                        Group::begin(lane, stamp, Kind::Free, 0, [0; 5]).publish();
                    } else {
                        lane.count_dropped();
                    }
                }
                self.written = due;
            }
            Program::Flood => {
                for lane in memory.lanes() {
                    while lane.has_room(1) {
                        Group::begin(lane, memory.stamp(0, 1), Kind::Free, 0, [0; 5]).publish();
                    }
                }
            }
        }
    }
}

impl Ring for WrittenRing {
    fn poll_part(&mut self) -> Result<Vec<Call>, ProcessError> {
        self.write();
        lock(&self.reads).push(self.clock.now());
        let memory = Memory::open(&self.words)?;
        let Ok(calls) = self.merge.poll_part(&memory, |offset, bytes| memory.copy_to(offset, bytes));
        apply(self.merge.consumed(&memory), &self.words);
        self.clock.spend(CALL_COST * u32::try_from(calls.len() + 10).unwrap());
        Ok(calls)
    }

    fn has_more(&self) -> bool {
        self.merge.has_more()
    }

    fn drain_waiting(&mut self) -> Vec<Call> {
        self.merge.finish()
    }

    fn losses(&self) -> Losses {
        self.merge.losses()
    }
}

/// Ring of a program without calls, which holds no memory.
#[derive(Debug, Default)]
struct IdleRing {
    /// First readings for which it has no accessor.
    inaccessible: usize,
    /// Clock on which each reading takes an interval, if any. Then there is always more to read.
    slow: Option<Arc<Work>>,
}

impl Ring for IdleRing {
    fn poll_part(&mut self) -> Result<Vec<Call>, ProcessError> {
        if let Some(clock) = &self.slow {
            clock.spend(INTERVAL);
        }
        let left = self.inaccessible.checked_sub(1);
        self.inaccessible = left.unwrap_or(0);
        if left.is_some() { Err(SharedMemoryError::Hung.into()) } else { Ok(Vec::new()) }
    }

    fn has_more(&self) -> bool {
        self.slow.is_some()
    }

    fn drain_waiting(&mut self) -> Vec<Call> {
        Vec::new()
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }
}

/// Node with programs.
struct Node {
    clock: Arc<Work>,
    recordings: Recordings,
    running: BTreeMap<ProcessId, u32>,
    /// Times of the next interval and of the next scan.
    next: Duration,
    scanned_at: Duration,
}

const fn process(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 1 }
}

impl Node {
    fn new(user_max: usize, node_max: usize) -> Self {
        let clock = Arc::new(Work::default());
        let quotas = Quotas { window_bytes: 1 << 16, user_max, node_max };
        let recordings = Recordings::with_clock(Roots::default(), quotas, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, recordings, running: BTreeMap::new(), next: Duration::ZERO, scanned_at: Duration::ZERO }
    }

    /// Starts a program of a user, and returns the times of the readings of its ring.
    fn start(&mut self, pid: u32, uid: u32, program: Program) -> Arc<Mutex<Vec<Duration>>> {
        let reads = Arc::default();
        self.start_with(pid, uid, WrittenRing::new(program, &self.clock, &reads));
        reads
    }

    fn start_with(&mut self, pid: u32, uid: u32, ring: Box<dyn Ring>) {
        self.running.insert(process(pid), uid);
        lock(&self.recordings.registry).admit(process(pid), uid, None, Ok(ring), self.clock.now());
    }

    /// Runs for a time, in which each of the processes uses a share of a processor.
    fn run(&mut self, time: Duration, busy: &[(u32, f64)], mut observe: impl FnMut(&Recordings)) {
        let end = self.next + time;
        while self.next < end {
            self.clock.wait_until(self.next);
            self.recordings.poll();
            let now = self.clock.now();
            if now >= self.scanned_at + SECOND {
                self.scanned_at = now;
                for (pid, share) in busy {
                    self.clock.set_cpu_time(process(*pid), now.mul_f64(*share));
                }
                self.recordings.scan(&self.running);
            }
            observe(&self.recordings);
            self.next = (self.next + INTERVAL).max(now);
        }
    }

    fn state(&self, pid: u32) -> State {
        self.recordings.state_of(process(pid)).unwrap()
    }

    fn states(&self, pids: std::ops::Range<u32>) -> Vec<State> {
        pids.map(|pid| self.state(pid)).collect()
    }
}

fn longest(reads: &Mutex<Vec<Duration>>) -> Duration {
    let reads = lock(reads);
    reads.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap()
}

#[test]
fn ring_without_an_accessor_is_read_again_a_second_later() {
    let mut node = Node::new(8, 64);
    node.start_with(1, 1000, Box::new(IdleRing { inaccessible: 1, ..IdleRing::default() }));
    let mut states = Vec::new();
    node.run(SECOND * 2, &[], |recordings| states.push(recordings.state_of(process(1)).unwrap()));
    let reason =
        State::Inaccessible("too many accessors of shared memory hang, of its user or of all users".to_owned());
    states.dedup();
    assert_eq!(states, [reason, State::Recording]);
}

#[test]
fn user_whose_accesses_wait_takes_no_turns_of_others() {
    let mut node = Node::new(8, 64);
    let slow = Box::new(IdleRing { slow: Some(Arc::clone(&node.clock)), ..IdleRing::default() });
    node.start_with(0, 1000, slow);
    let honest: Vec<_> = (100..108).map(|pid| node.start(pid, 2000, Program::Calls(1000))).collect();
    // Its programs use enough processors for the waits.
    node.run(4 * SECOND, &[(0, 30.0)], |_| {});
    assert_eq!(node.state(0), State::Recording);
    for reads in honest {
        assert!(longest(&reads) <= 3 * INTERVAL, "{:?} without a reading", longest(&reads));
    }
}

#[test]
fn flooding_user_causes_no_loss_for_others() {
    let mut node = Node::new(8, 64);
    let floods: Vec<_> = (0..16).map(|pid| node.start(pid, 1000 + pid / 8, Program::Flood)).collect();
    let honest = node.start(100, 2000, Program::Calls(20_000));
    let mut has_paused = false;
    // The attackers do next to nothing themselves; the honest program is busy.
    node.run(4 * SECOND, &[(0, 0.001), (8, 0.001), (100, 1.0)], |recordings| {
        has_paused |= *recordings.snapshot(process(0)).unwrap().state() == State::Throttled;
        assert_eq!(*recordings.snapshot(process(100)).unwrap().state(), State::Recording);
    });
    assert!(has_paused && floods.iter().all(|reads| !lock(reads).is_empty()));
    let recording = node.recordings.snapshot(process(100)).unwrap();
    assert_eq!(recording.losses(), Losses::default());
    assert!(recording.window().added() > 78_000);
    assert!(longest(&honest) <= 3 * INTERVAL, "{:?} without a reading", longest(&honest));
    // Each user may use the burst of a second, and a hundredth of the time.
    let honest_cost = CALL_COST * 80_000;
    let cost = node.clock.thread_cpu_time().saturating_sub(honest_cost);
    assert!(cost < 2 * (SECOND + node.clock.now() / 100) + SECOND / 10, "{cost:?} for two users");
}

#[test]
fn reading_resumes_once_the_reader_time_has_recovered() {
    let mut node = Node::new(8, 16);
    node.start(0, 1000, Program::Flood);
    node.run(5 * SECOND, &[], |_| {});
    assert_eq!(node.state(0), State::Throttled);
    let added = |node: &Node| node.recordings.snapshot(process(0)).unwrap().window().added();
    let before = added(&node);
    let mut is_read = false;
    // Recovers half of the burst, at a hundredth of the time.
    node.run(70 * SECOND, &[], |recordings| {
        is_read |= *recordings.snapshot(process(0)).unwrap().state() == State::Recording;
    });
    assert!(is_read && added(&node) > before);
}

#[test]
fn reading_takes_at_most_a_twentieth_of_the_programs_time() {
    let mut node = Node::new(8, 16);
    node.start(0, 1000, Program::Flood);
    node.run(8 * SECOND, &[(0, 1.0)], |_| {});
    let (spent, now) = (node.clock.thread_cpu_time(), node.clock.now());
    assert!(spent > now / 20, "{spent:?}");
    assert!(spent < SECOND + now * 7 / 100, "{spent:?} in {now:?}");
}

#[test]
fn last_calls_of_an_exited_program_are_read_in_turn() {
    let mut node = Node::new(8, 16);
    node.start(0, 1000, Program::Calls(1000));
    node.run(SECOND / 2, &[], |_| {});
    node.running.clear();
    node.recordings.scan(&node.running);
    assert_eq!(node.state(0), State::Recording);
    node.run(INTERVAL, &[], |_| {});
    assert_eq!(node.state(0), State::Ended);
    let ended = node.recordings.snapshot(process(0)).unwrap().window().added();
    node.run(SECOND, &[], |_| {});
    assert_eq!(node.recordings.snapshot(process(0)).unwrap().window().added(), ended);
}

#[test]
fn users_with_few_recordings_have_a_reserve() {
    let mut node = Node::new(8, 16);
    for pid in 0..16 {
        node.start(pid, 1000 + pid / 8, Program::Calls(100));
    }
    assert!(node.states(0..12).iter().all(|state| *state == State::Recording));
    let holder = Holder { uid: 1000, recordings: 8, max: 16 };
    assert!(node.states(12..16).iter().all(|state| *state == State::QuotaReached(holder)));
    for pid in 20..24 {
        node.start(pid, 2000 + pid / 2, Program::Calls(100));
    }
    assert!(node.states(20..24).iter().all(|state| *state == State::Recording), "two users with two each");
    // The reserve is used up, and no recording is idle.
    node.start(30, 3000, Program::Calls(100));
    assert_eq!(node.state(30), State::QuotaReached(holder));
}

#[test]
fn user_at_its_own_quota_is_named_as_the_holder() {
    let mut node = Node::new(2, 16);
    for pid in 0..3 {
        node.start(pid, 1000, Program::Calls(100));
    }
    assert_eq!(node.state(2), State::QuotaReached(Holder { uid: 1000, recordings: 2, max: 2 }));
}

#[test]
fn idle_recording_of_the_user_with_most_is_evicted() {
    let mut node = Node::new(8, 8);
    let calls = |pid| if pid < 3 { Program::Calls(100) } else { Program::Calls(0) };
    for pid in 0..6 {
        node.start(pid, 1000, calls(pid));
    }
    node.start(20, 2000, Program::Calls(0));
    node.start(21, 2000, Program::Calls(0));
    node.start(30, 3000, Program::Calls(0));
    assert!(matches!(node.state(30), State::QuotaReached(_)), "nothing is idle yet");
    node.run(61 * SECOND, &[], |_| {});
    node.start(31, 3000, Program::Calls(0));
    assert_eq!(node.state(31), State::Recording);
    let holder = Holder { uid: 1000, recordings: 6, max: 8 };
    assert_eq!(node.states(0..6).iter().filter(|state| **state == State::QuotaReached(holder)).count(), 1);
    assert!(node.states(0..3).iter().all(|state| *state == State::Recording), "those with calls stay");
    assert!(node.states(20..22).iter().all(|state| *state == State::Recording), "a user with few keeps both");
}

#[test]
fn ended_recording_of_a_user_with_fewer_is_retained() {
    let mut node = Node::new(8, 16);
    node.start(30, 3000, Program::Calls(0));
    node.running.remove(&process(30));
    node.run(2 * SECOND, &[], |_| {});
    assert_eq!(node.state(30), State::Ended);
    for pid in 0..7 {
        node.start(pid, 1000, Program::Calls(100));
    }
    for pid in 10..14 {
        node.start(pid, 2000, Program::Calls(100));
    }
    // Twelve recordings: the other slots are the reserve.
    node.start(7, 1000, Program::Calls(100));
    assert!(matches!(node.state(7), State::QuotaReached(_)));
    assert_eq!(node.state(30), State::Ended);
}

#[test]
fn user_without_recordings_gets_a_slot_after_the_minimum_tenure() {
    let mut node = Node::new(8, 16);
    for pid in 0..16 {
        let uid = if pid < 10 { 1000 + pid / 5 } else { 2000 + pid / 2 };
        node.start(pid, uid, Program::Calls(2));
    }
    node.start(30, 3000, Program::Calls(2));
    assert!(matches!(node.state(30), State::QuotaReached(_)));
    node.run(MIN_TENURE + 2 * SECOND, &[], |_| {});
    node.start(31, 3000, Program::Calls(2));
    node.start(32, 3000, Program::Calls(2));
    assert_eq!(node.state(31), State::Recording);
    assert!(matches!(node.state(32), State::QuotaReached(_)), "one is enough");
}

#[test]
fn recording_is_evicted_while_its_ring_is_being_read() {
    let mut node = Node::new(8, 8);
    for pid in 0..8 {
        node.start(pid, 1000 + pid / 6, Program::Calls(0));
    }
    node.run(61 * SECOND, &[], |_| {});
    let registry = &node.recordings.registry;
    let readers: Vec<_> =
        (0..6).map(|pid| Arc::clone(&lock(registry).recorded_of(process(pid)).unwrap().reader)).collect();
    let rings: Vec<_> = readers.iter().map(|reader| reader.lock_ring()).collect();
    node.start(30, 3000, Program::Calls(0));
    assert_eq!(node.state(30), State::Recording, "nobody waits for the ring");
    drop(rings);
    node.recordings.poll();
    assert!(lock(&node.recordings.registry).evicted.is_empty());
}

#[test]
fn searches_start_for_as_many_waiting_rings_as_there_are_slots() {
    let mut node = Node::new(8, 8);
    for pid in 0..40 {
        node.start(pid, 1000 + pid / 6, Program::Calls(100));
    }
    let count = |node: &Node, is: fn(&Entry) -> bool| {
        lock(&node.recordings.registry).entries.values().filter(|entry| is(entry)).count()
    };
    let is_searching = |entry: &Entry| matches!(entry, Entry::Searching);
    node.recordings.scan(&node.running);
    assert_eq!(count(&node, is_searching), 0, "all slots are taken");
    // Frees two slots, of recordings whose rings can no longer be read.
    for pid in [0, 1] {
        node.running.remove(&process(pid));
        lock(&node.recordings.registry).entries.remove(&process(pid));
    }
    node.recordings.scan(&node.running);
    assert_eq!(count(&node, is_searching), 2);
}

/// Number of recordings visited by this work.
fn visits_of(work: impl FnOnce()) -> u64 {
    let before = visits::count();
    work();
    visits::count() - before
}

#[test]
fn processes_that_wait_for_a_slot_are_visited_few_times_each() {
    const WAITING: u32 = 3500;
    /// Slots of the node.
    const PLACES: u64 = 16;
    // All processes of one user, and each of a user of its own.
    for user_of in [|_| 3000, |pid| 3000 + pid] {
        let mut node = Node::new(8, 16);
        for pid in 0..16 {
            node.start_with(pid, 1000 + pid / 2, Box::new(IdleRing::default()));
        }
        let admissions = visits_of(|| {
            (100..100 + WAITING).for_each(|pid| node.start_with(pid, user_of(pid), Box::new(IdleRing::default())));
        });
        assert!(admissions <= u64::from(WAITING) * 4 * PLACES, "{admissions} visits by admissions");
        let holder = Holder { uid: 1007, recordings: 2, max: 16 };
        assert_eq!(node.state(100), State::QuotaReached(holder));
        let scan = visits_of(|| node.recordings.scan(&node.running));
        assert!(scan <= u64::from(WAITING) * 4, "{scan} visits by a scan");
        let poll = visits_of(|| node.recordings.poll());
        assert!(poll <= 10 * PLACES, "{poll} visits by a poll");
    }
}

/// Scans while a file of a process is being read, which blocks until its writer exits.
fn scan_while_read(recordings: &Recordings, running: &BTreeMap<ProcessId, u32>, file: &Path, query: impl FnOnce()) {
    fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
    let begun = Instant::now();
    thread::scope(|scope| {
        let scan = scope.spawn(|| recordings.scan(running));
        let mut options = OpenOptions::new();
        let write = options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        // The file opens once there is a reader.
        let writer = loop {
            match write.open(file) {
                Ok(writer) => break writer,
                Err(_) if !scan.is_finished() && begun.elapsed() < 60 * SECOND => thread::yield_now(),
                Err(error) => panic!("it is not read: {error}"),
            }
        };
        query();
        drop(writer);
    });
}

#[test]
fn slow_proc_files_do_not_delay_queries() {
    let stat = |pid| format!("{pid} (app) S {} 1 {}\n", "0 ".repeat(18).trim_end(), "0 ".repeat(30).trim_end());
    let machine = Machine::new().with("proc/42/stat", stat(42)).with("proc/42/maps", "").with("proc/43/stat", stat(43));
    let clock = Arc::new(Work::default());
    let quotas = Quotas { window_bytes: 1 << 16, user_max: 8, node_max: 16 };
    let recordings = Recordings::with_clock(machine.roots.clone(), quotas, Arc::clone(&clock) as Arc<dyn Clock>);
    let is_free = || recordings.registry.try_lock().is_ok();
    // A search found nothing in a process, which then closed the driver: the scan reads whether it
    // has exited.
    let running = BTreeMap::from([(process(42), 1000)]);
    recordings.scan(&running);
    let begun = Instant::now();
    while recordings.delay_of(process(42)).is_some() {
        assert!(begun.elapsed() < 60 * SECOND);
        thread::sleep(Duration::from_millis(1));
        recordings.poll();
    }
    let file = machine.roots.proc.join("42/stat");
    scan_while_read(&recordings, &BTreeMap::new(), &file, || assert!(is_free()));
    machine.remove("proc/42");
    // A recorded process without calls: the scan reads which program it executes.
    let running = BTreeMap::from([(process(43), 1000)]);
    lock(&recordings.registry).admit(process(43), 1000, None, Ok(Box::new(IdleRing::default())), clock.now());
    clock.wait_until(QUIET_TIME);
    let file = machine.roots.proc.join("43/stat");
    scan_while_read(&recordings, &running, &file, || {
        assert!(is_free());
        assert_eq!(*recordings.snapshot(process(43)).unwrap().state(), State::Recording);
    });
}
