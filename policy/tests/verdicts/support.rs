//! Histories of a node: processes with a load per second, in snapshots at any interval.

use std::time::{Duration, SystemTime};

use model::{
    Access, Cause, Counters, Gpu, GpuKey, GpuUuid, PeerReuse, Process, ProcessId, Reuse, Snapshot, SourceState,
    SourceStatus, Verdict, VerdictKind, verdict::Inputs,
};
use policy::{Change, Judge};

pub(crate) const GPU: GpuKey = GpuKey::Known(GpuUuid([1; 16]));
/// Another GPU of the process.
pub(crate) const PEER: GpuKey = GpuKey::Known(GpuUuid([2; 16]));
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const WINDOW_MS: u64 = 2000;

/// Counts per second.
pub(crate) type Load = Inputs;

/// Evicts as much as it fetches, and fetches only what was evicted before.
pub(crate) fn thrashes() -> Load {
    refetches(1000)
}

/// Walks once through more memory than fits.
pub(crate) fn streams() -> Load {
    refetches(0)
}

/// Evicts as much as it fetches. `per_mille`: part of the fetched bytes that was evicted before.
pub(crate) fn refetches(per_mille: u64) -> Load {
    let moved = 64 * MIB;
    Load {
        fault_entries: 2000,
        bytes_htod: moved,
        bytes_dtoh: moved,
        evicted_bytes: moved,
        induced_eviction_bytes: moved,
        fetched_bytes: moved,
        refetched_bytes: part(moved, per_mille),
        ..Load::default()
    }
}

/// CPU and GPU take memory from each other. `per_mille`: part of the arrived bytes that was at the
/// GPU before.
pub(crate) fn returns(per_mille: u64) -> Load {
    let moved = 16 * MIB;
    Load {
        fault_entries: 300,
        cpu_faults: 300,
        bytes_htod: moved,
        bytes_dtoh: moved,
        fetched_bytes: moved,
        cpu_reclaimed_bytes: part(moved, per_mille),
        bounces: 40,
        ..Load::default()
    }
}

/// Two GPUs take memory from each other, through the host. `per_mille`: part of the arrived bytes
/// that was at the GPU before.
pub(crate) fn returns_from_peer(per_mille: u64) -> Load {
    let moved = 16 * MIB;
    Load {
        fault_entries: 300,
        bytes_htod: moved,
        bytes_dtoh: moved,
        fetched_bytes: moved,
        peer_reclaimed_bytes: part(moved, per_mille),
        peer_bounces: 20,
        ..Load::default()
    }
}

/// The driver throttles both sides at a few pages.
pub(crate) fn throttled() -> Load {
    Load {
        fault_entries: 500,
        cpu_faults: 20,
        bytes_htod: MIB,
        bytes_dtoh: MIB,
        fetched_bytes: MIB,
        cpu_reclaimed_bytes: MIB,
        bounces: 16,
        throttles: 60,
        throttled_ns: 30_000_000,
        thrashing_pages: 4,
        ..Load::default()
    }
}

/// Touches new memory from the GPU.
pub(crate) fn touches_first() -> Load {
    Load { fault_entries: 2000, populated_bytes: 64 * MIB, ..Load::default() }
}

/// Fetches memory that the CPU wrote; all of it fits.
pub(crate) fn starts() -> Load {
    Load { fault_entries: 2000, bytes_htod: 64 * MIB, fetched_bytes: 64 * MIB, ..Load::default() }
}

/// Nearly idle, without an end.
pub(crate) fn trickles() -> Load {
    Load { fault_entries: 4, cpu_faults: 4, bytes_htod: MIB / 4, fetched_bytes: MIB / 4, ..Load::default() }
}

pub(crate) fn idles() -> Load {
    Load::default()
}

/// Load that clearly causes a verdict of this kind.
pub(crate) fn load_of(kind: VerdictKind) -> Load {
    match kind {
        VerdictKind::CapacityThrash => thrashes(),
        VerdictKind::PingPong => returns(1000),
        VerdictKind::DriverThrottling => throttled(),
        VerdictKind::Streaming => streams(),
        VerdictKind::FirstTouchStorm => touches_first(),
    }
}

/// Part of a whole. `per_mille`: its share in thousandths.
fn part(whole: u64, per_mille: u64) -> u64 {
    whole * per_mille / 1000
}

/// Kind, start in seconds, and end in seconds, if it has ended.
pub(crate) type Reported = (VerdictKind, u64, Option<u64>);

/// Process on one GPU, with its judge.
pub(crate) struct History {
    pub(crate) judge: Judge,
    pub(crate) now_ms: u64,
    /// Milliseconds by which the calendar was set, ahead or back.
    pub(crate) set_by_ms: i64,
    /// Counts so far, in thousandths: a step of 1 ms adds the exact count.
    milli_counts: Load,
    pub(crate) gpu: GpuKey,
    /// Driver's id of the GPU whose UUID is known.
    pub(crate) gpu_has_id: Option<u32>,
    pub(crate) changes: Vec<(u64, Change)>,
}

impl History {
    /// Node after a snapshot without processes, and one with an idle process.
    pub(crate) fn new() -> Self {
        let mut history = Self {
            judge: Judge::new(Duration::from_millis(WINDOW_MS)),
            now_ms: 0,
            set_by_ms: 0,
            milli_counts: Load::default(),
            gpu: GPU,
            gpu_has_id: None,
            changes: Vec::new(),
        };
        history.judge.observe(&snapshot(0, Vec::new()));
        history.take_snapshot();
        history
    }

    /// Passes time under a load, with a snapshot at this interval in milliseconds.
    pub(crate) fn run(&mut self, load: &Load, ms: u64, pace_ms: u64) -> &mut Self {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            let step = pace_ms.min(end - self.now_ms);
            self.count(load, step);
            self.take_snapshot();
        }
        self
    }

    /// Passes time without snapshots.
    pub(crate) fn count(&mut self, load: &Load, ms: u64) {
        self.now_ms += ms;
        for (sum, rate) in fields(&mut self.milli_counts).into_iter().zip(fields(&mut { *load })) {
            *sum += *rate * ms;
        }
    }

    pub(crate) fn take_snapshot(&mut self) {
        let calendar = at(self.now_ms.checked_add_signed(self.set_by_ms).unwrap());
        let mut taken = Snapshot { taken: calendar, ..snapshot(self.now_ms, vec![self.process()]) };
        taken.gpus.insert(GPU, Gpu { id: self.gpu_has_id, ..Gpu::default() });
        self.observe(&taken);
    }

    pub(crate) fn observe(&mut self, taken: &Snapshot) {
        let now = self.now_ms;
        self.changes.extend(self.judge.observe(taken).into_iter().map(|change| (now, change)));
    }

    pub(crate) fn process(&self) -> Process {
        process(1, self.gpu, &self.counted())
    }

    pub(crate) fn counted(&self) -> Load {
        let mut counted = self.milli_counts;
        for sum in fields(&mut counted) {
            *sum /= 1000;
        }
        counted
    }

    /// Current verdict.
    pub(crate) fn active(&self) -> Option<VerdictKind> {
        self.judge.verdicts().active.first().map(|verdict| verdict.kind)
    }

    pub(crate) fn reported(&self) -> Vec<Reported> {
        let mut reported: Vec<Reported> = Vec::new();
        for (now, change) in &self.changes {
            match change {
                Change::Began(verdict) => reported.push((verdict.kind, now / 1000, None)),
                Change::Ended(_) => reported.last_mut().unwrap().2 = Some(now / 1000),
            }
        }
        reported
    }
}

pub(crate) fn at(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_millis(ms)
}

/// Milliseconds since the start of the history.
pub(crate) fn ms(time: SystemTime) -> u128 {
    time.duration_since(at(0)).unwrap().as_millis()
}

pub(crate) fn snapshot(ms: u64, processes: Vec<Process>) -> Snapshot {
    let source = SourceStatus::new(SourceState::Counting { since: at(0) });
    Snapshot { elapsed: Duration::from_millis(ms), processes, ..Snapshot::empty(at(ms), source) }
}

pub(crate) fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 7 }
}

/// Process with these counts on a GPU.
pub(crate) fn process(pid: u32, gpu: GpuKey, counted: &Load) -> Process {
    let mut counters = Counters {
        populated_bytes: counted.populated_bytes,
        induced_eviction_bytes: counted.induced_eviction_bytes,
        throttles: counted.throttles,
        throttled_ns: counted.throttled_ns,
        thrashing_pages: counted.thrashing_pages,
        ..Counters::ZERO
    };
    counters.fault_entries[Access::Read] = counted.fault_entries;
    counters.bytes_htod[Cause::Fault] = counted.bytes_htod;
    counters.bytes_dtod[Cause::Fault] = counted.bytes_dtod;
    counters.bytes_dtoh[Cause::Eviction] = counted.evicted_bytes;
    counters.bytes_dtoh[Cause::Fault] = counted.bytes_dtoh - counted.evicted_bytes;
    let reuse = Reuse {
        fetched_bytes: counted.fetched_bytes,
        refetched_bytes: counted.refetched_bytes,
        cpu_reclaimed_bytes: counted.cpu_reclaimed_bytes,
        bounces: counted.bounces,
    };
    let peer_reuse =
        PeerReuse { reclaimed_bytes: counted.peer_reclaimed_bytes, bounces: [(PEER, counted.peer_bounces)].into() };
    Process {
        host: Counters { cpu_read_faults: counted.cpu_faults, ..Counters::ZERO },
        gpus: [(gpu, counters)].into(),
        reuse: [(gpu, reuse)].into(),
        peer_reuse: [(gpu, peer_reuse)].into(),
        ..Process::new(id(pid), "test")
    }
}

fn fields(load: &mut Load) -> [&mut u64; 18] {
    [
        &mut load.fault_entries,
        &mut load.cpu_faults,
        &mut load.bytes_htod,
        &mut load.bytes_dtoh,
        &mut load.evicted_bytes,
        &mut load.induced_eviction_bytes,
        &mut load.populated_bytes,
        &mut load.fetched_bytes,
        &mut load.refetched_bytes,
        &mut load.cpu_reclaimed_bytes,
        &mut load.bounces,
        &mut load.bytes_dtod,
        &mut load.peer_reclaimed_bytes,
        &mut load.peer_bounces,
        &mut load.throttles,
        &mut load.throttled_ns,
        &mut load.thrashing_pages,
        &mut load.missing_records,
    ]
}

/// Ended verdicts, oldest first.
pub(crate) fn ended(history: &History) -> Vec<Verdict> {
    let mut ended = history.judge.verdicts().ended;
    ended.reverse();
    ended
}

/// Deterministic pseudo-random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Number from 0 to below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}
