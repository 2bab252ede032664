use model::{Cause, GpuUuid, Owner, OwnerTotals, Residency, Reuse, SourceStatus};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const CARD: GpuKey = GpuKey::Known(GpuUuid([3; 16]));
const ONE: ProcessId = ProcessId { pid: 100, start_ticks: 7 };
/// Later process with the same pid.
const NEXT: ProcessId = ProcessId { pid: 100, start_ticks: 9 };

/// Node with a settable clock.
struct Node {
    history: Histories,
    begin: Instant,
    snapshot: Snapshot,
}

fn node() -> Node {
    let begin = Instant::now();
    let source = SourceStatus::new(SourceState::Counting { since: SystemTime::UNIX_EPOCH });
    let snapshot = Snapshot::empty(SystemTime::UNIX_EPOCH, source);
    Node { history: Histories::new(SECOND), begin, snapshot }
}

fn copied(bytes: u64) -> Counters {
    let mut counters = Counters::default();
    counters.bytes_htod[Cause::Fault] = bytes;
    counters
}

impl Node {
    /// Sets the processes, each with this many bytes copied to the GPU.
    fn copied(&mut self, processes: &[(ProcessId, u64)]) {
        self.snapshot.processes = processes
            .iter()
            .map(|(id, bytes)| Process { gpus: [(CARD, copied(*bytes))].into(), ..Process::new(*id, "app") })
            .collect();
        let sum = processes.iter().map(|(_, bytes)| bytes).sum();
        self.snapshot.gpu_totals = [(CARD, copied(sum))].into();
    }

    fn read(&mut self, after: Duration) {
        self.history.take(&self.snapshot, self.begin + after);
    }

    fn lately(&self, of: HistoryOf, after: Duration) -> Option<History> {
        let request = HistoryRequest { of, back: HOUR, samples_max: usize::MAX };
        self.history.lately(&request, self.begin + after, SystemTime::UNIX_EPOCH + HOUR + after)
    }

    /// Bytes copied to the GPU, by second.
    fn bytes(&self, of: HistoryOf) -> Vec<Option<u64>> {
        let history = self.lately(of, SECOND).unwrap();
        history.samples.iter().map(|sample| sample.map(|sample| sample.bytes_htod)).collect()
    }
}

#[test]
fn sample_is_the_difference_to_the_previous_reading() {
    let mut node = node();
    for (second, bytes) in [(1, 10), (2, 10), (3, 35)] {
        node.copied(&[(ONE, bytes)]);
        node.read(SECOND * second);
    }
    assert_eq!(node.bytes(HistoryOf::Process(ONE)), [Some(10), Some(0), Some(25)]);
    assert_eq!(node.bytes(HistoryOf::Gpu(CARD)), [Some(10), Some(0), Some(25)]);
    let history = node.lately(HistoryOf::Process(ONE), SECOND * 4).unwrap();
    assert_eq!((history.begin, history.interval), (SystemTime::UNIX_EPOCH + HOUR, SECOND));
}

#[test]
fn late_and_repeated_readings_lose_no_counts() {
    let mut node = node();
    for (millis, bytes) in [(1004, 1), (1990, 3), (2100, 6), (3499, 10), (4001, 15)] {
        node.copied(&[(ONE, bytes)]);
        node.read(Duration::from_millis(millis));
    }
    assert_eq!(node.bytes(HistoryOf::Process(ONE)), [Some(1), Some(2), Some(7), Some(5)]);
}

#[test]
fn counts_of_a_gap_are_in_the_next_sample() {
    let mut node = node();
    for (second, bytes) in [(1, 1), (4, 9)] {
        node.copied(&[(ONE, bytes)]);
        node.read(SECOND * second);
    }
    assert_eq!(node.bytes(HistoryOf::Process(ONE)), [Some(1), None, None, Some(8)]);
}

#[test]
fn samples_are_missing_while_uvmd_waits_for_the_driver() {
    let mut node = node();
    node.copied(&[(ONE, 1)]);
    node.read(SECOND);
    let counting = std::mem::replace(&mut node.snapshot.source.state, SourceState::Waiting { missing: Vec::new() });
    node.read(SECOND * 2);
    node.snapshot.source.state = counting;
    node.read(SECOND * 3);
    assert_eq!(node.bytes(HistoryOf::Gpu(CARD)), [Some(1), None, Some(0)]);
}

#[test]
fn reused_pid_has_a_separate_history() {
    let mut node = node();
    node.copied(&[(ONE, 5)]);
    node.read(SECOND);
    node.copied(&[(ONE, 5), (NEXT, 2)]);
    node.read(SECOND * 2);
    assert_eq!(node.bytes(HistoryOf::Process(ONE)), [Some(5), Some(0)]);
    assert_eq!(node.bytes(HistoryOf::Process(NEXT)), [Some(2)]);
    node.copied(&[(NEXT, 2)]);
    node.read(SECOND * 3);
    assert_eq!(node.lately(HistoryOf::Process(ONE), SECOND * 3), None);
}

#[test]
fn owner_history_outlives_its_processes() {
    let mut node = node();
    let unit = OwnerKey::Unit("train.service".to_owned());
    let totals = |bytes| OwnerTotals {
        host: Counters::default(),
        gpus: [(CARD, copied(bytes))].into(),
        reuse: [(CARD, Reuse { refetched_bytes: bytes / 2, ..Reuse::default() })].into(),
        processes: 1,
        last_active_at: SystemTime::UNIX_EPOCH,
    };
    node.copied(&[(ONE, 8)]);
    let process = node.snapshot.processes.first_mut().unwrap();
    process.owner = Owner { unit: Some("train.service".to_owned()), ..Owner::default() };
    process.residency = [(CARD, Residency::exactly(4096))].into();
    node.snapshot.owners = [(unit.clone(), totals(8))].into();
    node.read(SECOND);
    node.copied(&[]);
    node.snapshot.owners = [(unit.clone(), totals(20))].into();
    node.read(SECOND * 2);
    let history = node.lately(HistoryOf::Owner(unit.clone()), SECOND * 2).unwrap();
    let samples = history.samples.iter().flatten();
    let seen: Vec<_> = samples.map(|each| (each.bytes_htod, each.refetched_bytes, each.resident_bytes)).collect();
    assert_eq!(seen, [(8, 4, 4096), (12, 6, 0)]);
    node.snapshot.owners.clear();
    node.read(SECOND * 3);
    assert_eq!(node.lately(HistoryOf::Owner(unit), SECOND * 3), None, "it is listed no more");
}

#[test]
fn samples_of_a_pending_gpu_move_to_it_once_it_is_known() {
    let mut node = node();
    node.snapshot.gpu_totals = [(GpuKey::Pending(1), copied(7))].into();
    node.read(SECOND);
    node.snapshot.gpu_totals = [(CARD, copied(9))].into();
    node.read(SECOND * 2);
    assert_eq!(node.lately(HistoryOf::Gpu(GpuKey::Pending(1)), SECOND * 2), None);
    assert_eq!(node.bytes(HistoryOf::Gpu(CARD)), [Some(9)]);
}

#[test]
fn discarded_counts_yield_no_negative_sample() {
    let mut node = node();
    for (second, bytes) in [(1, 10), (2, 4), (3, 6)] {
        node.copied(&[(ONE, bytes)]);
        node.read(SECOND * second);
    }
    assert_eq!(node.bytes(HistoryOf::Process(ONE)), [Some(10), Some(0), Some(2)]);
}

#[test]
fn residency_and_refetched_bytes_of_a_gpu_are_sums_over_processes() {
    let mut node = node();
    node.copied(&[(ONE, 1), (NEXT, 1)]);
    for (second, refetched_bytes) in [(1, 3), (2, 8)] {
        for process in &mut node.snapshot.processes {
            process.residency = [(CARD, Residency::exactly(100))].into();
            process.reuse = [(CARD, Reuse { refetched_bytes, ..Reuse::default() })].into();
        }
        node.read(SECOND * second);
    }
    let last = |of| {
        let sample = node.lately(of, SECOND * 2).unwrap().samples[1].unwrap();
        (sample.resident_bytes, sample.refetched_bytes)
    };
    assert_eq!(last(HistoryOf::Process(ONE)), (100, 5));
    assert_eq!(last(HistoryOf::Gpu(CARD)), (200, 10));
}

#[test]
fn memory_of_two_thousand_short_lived_processes_is_bounded() {
    const BYTES_MAX: usize = 300 << 10;
    let mut node = node();
    node.history.bytes_max = BYTES_MAX;
    let process = |number: u64| ProcessId { pid: u32::try_from(number % 700).unwrap(), start_ticks: number };
    let mut sum = 0;
    for second in 1..=60_u64 {
        // Forty end per second, and forty start; a third of them are busy.
        let alive = (second * 40)..(second * 40 + 2000);
        let bytes =
            alive.map(|number| (process(number), if number.is_multiple_of(3) { second * 1_000_000 } else { 7 }));
        let bytes: Vec<_> = bytes.collect();
        node.copied(&bytes);
        sum = bytes.iter().map(|(_, bytes)| bytes).sum();
        node.read(SECOND * u32::try_from(second).unwrap());
        let bytes: usize = node.history.processes.values().map(|of| of.ring.bytes()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }
    assert_eq!(node.history.processes.len(), 2000);
    // The GPU's samples are never removed.
    assert_eq!(node.bytes(HistoryOf::Gpu(CARD)).iter().map(|bytes| bytes.unwrap()).sum::<u64>(), sum);
}

#[test]
fn memory_limit_drops_idle_histories_and_the_older_half_of_busy_ones() {
    let mut node = node();
    for second in 1..=1000_u64 {
        node.copied(&[(ONE, 7), (NEXT, second * 1_000_000_000)]);
        node.read(SECOND * u32::try_from(second).unwrap());
    }
    let bytes_per_process = |node: &Node| [ONE, NEXT].map(|process| node.bytes(HistoryOf::Process(process)).len());
    assert_eq!(bytes_per_process(&node), [1000, 1000]);
    let bytes = |node: &Node| node.history.processes.values().map(|of| of.ring.bytes()).sum::<usize>();
    node.history.bytes_max = bytes(&node) - 1;
    node.history.bound();
    assert_eq!(bytes_per_process(&node), [0, 1000 - 512]);
    // Later samples are stored.
    node.read(SECOND * 1001);
    assert_eq!(bytes_per_process(&node), [1, 1001 - 512]);
}
