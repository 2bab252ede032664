//! Crowded node: many processes, each of which used every GPU.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use model::{
    Access, Block, Blocks, Cause, CopiedBytes, Counters, DriverInfo, DropReason, EvictionCause, EvictionPair, Gpu,
    GpuKey, GpuSource, GpuUuid, Owner, Party, Pattern, PatternKind, ProbeStatus, Process, ProcessId, Range,
    RangeCounts, Ranges, Residency, Reuse, Snapshot, SourceState, SourceStatus,
    owner::{Container, Pod},
};

use crate::owners;

const MIB: u64 = 1 << 20;
/// Defaults of `collector.max_owners` and `collector.max_eviction_pairs`.
const OWNERS: usize = 256;
const EVICTION_PAIRS: usize = 1024;
/// Blocks that the collector reports of each process if there are many.
const BLOCKS: u64 = 8;

/// Size of the crowd.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Processes, each of which used every GPU.
    pub processes: usize,
    /// GPUs.
    pub gpus: usize,
}

impl Crowd {
    /// Process number `at`.
    #[must_use]
    pub fn id(self, at: usize) -> ProcessId {
        let at = at as u64 % self.processes.max(1) as u64;
        ProcessId { pid: u32::try_from(at).unwrap_or(0) + 1000, start_ticks: 77_000 + at }
    }

    /// GPU number `at`.
    #[must_use]
    pub fn gpu(at: usize) -> GpuKey {
        GpuKey::Known(GpuUuid([0x9a, u8::try_from(at).unwrap_or(0), 0x77, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]))
    }

    /// Snapshot of the node.
    #[must_use]
    pub fn snapshot(self) -> Snapshot {
        let now = SystemTime::now();
        let mut snapshot = Snapshot::empty(now, source(now));
        for at in 0..self.gpus {
            let id = u32::try_from(at).ok().map(|at| at + 1);
            let gpu = Gpu {
                id,
                name: Some("NVIDIA H200".to_owned()),
                index: id.map(|id| id - 1),
                pci_address: Some(format!("0000:{:02x}:00.0", 0x17 + at)),
                memory_bytes: Some(141 << 30),
                memory_used_bytes: Some(120 << 30),
                link_bytes_per_second: Some(63_015_384_608),
                source: Some(GpuSource::Nvml),
            };
            snapshot.gpus.insert(Self::gpu(at), gpu);
        }
        snapshot.processes = (0..self.processes).map(|at| self.process(at, now)).collect();
        for process in &snapshot.processes {
            snapshot.host_totals += &process.host;
            for (gpu, counters) in &process.gpus {
                *snapshot.gpu_totals.entry(*gpu).or_default() += counters;
            }
            for (gpu, reuse) in &process.reuse {
                *snapshot.reuse_totals.entry(*gpu).or_default() += reuse;
            }
        }
        snapshot.owners = owners(&snapshot.processes, now);
        snapshot.evictions = (0..EVICTION_PAIRS.min(self.processes)).map(|at| self.pair(at)).collect();
        snapshot
    }

    fn process(self, at: usize, now: SystemTime) -> Process {
        let id = self.id(at);
        let scale = 1 + (at as u64 * 7919) % 1000;
        let range_begin = 0x7f2a_4000_0000 + (at as u64) * 64 * MIB;
        let gpus: BTreeMap<_, _> = (0..self.gpus).map(|gpu| (Self::gpu(gpu), counters(scale + gpu as u64))).collect();
        let reuse = Reuse { fetched_bytes: scale * MIB, refetched_bytes: scale * MIB / 2, ..Reuse::default() };
        let uid = format!("7c1f0c0e-2f6b-4f0a-9d51-{:012x}", at % OWNERS);
        let container = format!("{at:064x}");
        Process {
            started_at: Some(now - Duration::from_hours(1)),
            uid: 1000 + u32::try_from(at % 16).unwrap_or(0),
            user: Some(format!("user{}", at % 16)),
            cgroup: Some(format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{container}.scope").into()),
            host: Counters { cpu_read_faults: scale, cpu_write_faults: scale / 2, ..Counters::default() },
            managed_bytes: Some(64 * MIB),
            blocks: blocks(range_begin, Self::gpu(0), now),
            command_line: Some(format!("python train.py --rank {at} --managed --batch-size 512")),
            owner: Owner {
                container: Some(Container { runtime: Some("containerd"), id: container.clone() }),
                pod: Some(Pod { uid }),
                job: None,
                unit: Some(format!("cri-containerd-{container}.scope")),
            },
            ranges: ranges(range_begin, reuse),
            residency: gpus.keys().map(|gpu| (*gpu, Residency::exactly(4 * MIB))).collect(),
            reuse: gpus.keys().map(|gpu| (*gpu, reuse)).collect(),
            gpus,
            ..Process::new(id, format!("python-{at}"))
        }
    }

    fn pair(self, at: usize) -> EvictionPair {
        let bytes = (at as u64 + 1) * MIB;
        EvictionPair {
            gpu: Self::gpu(at % self.gpus.max(1)),
            victim: Party::Process(self.id(at)),
            evictor: Party::Process(self.id(at + 1)),
            cause: EvictionCause::Fault,
            evictions: bytes >> 21,
            bytes,
        }
    }
}

/// Counters at a GPU with nearly all kinds of events.
fn counters(scale: u64) -> Counters {
    let mut counters = Counters {
        populated_bytes: scale * 64 * MIB,
        evictions: scale * 9,
        induced_evictions: scale * 9,
        induced_eviction_bytes: scale * 18 * MIB,
        replays: scale * 3,
        ..Counters::default()
    };
    counters.fault_entries[Access::Read] = scale * 700;
    counters.fault_entries[Access::Write] = scale * 300;
    counters.fault_instances[Access::Read] = scale * 1900;
    counters.fault_instances[Access::Write] = scale * 700;
    counters.bytes_htod[Cause::Fault] = scale * MIB;
    counters.bytes_htod[Cause::TreePrefetch] = scale * 15 * MIB;
    counters.bytes_dtoh[Cause::Fault] = scale * MIB / 4;
    counters.bytes_dtoh[Cause::Eviction] = scale * 14 * MIB;
    // Copies of 4 KiB to 2 MiB, batches of 1 to 256 faults, and their durations.
    for power in 0..10 {
        let (copy, count) = (4096_u64 << power, scale * 10 / (power + 1));
        counters.migration_size_htod_bytes.record(copy, count, count * copy);
        counters.migration_size_dtoh_bytes.record(copy, count, count * copy);
        let (entries, ns) = ((1 << power) / 2 + power, 50_000_u64 << (power / 2));
        counters.batches.entries.record(entries, scale, scale * entries);
        counters.batches.service_ns.record(ns + ns * (power % 2) / 2, scale, scale * ns);
    }
    counters
}

fn blocks(begin: u64, gpu: GpuKey, now: SystemTime) -> Blocks {
    let block = |at: u64| Block {
        gpu: Some(gpu),
        fault_entries: 768,
        bytes_htod: 4 * MIB,
        bytes_dtoh: 4 * MIB,
        evicted_bytes: 4 * MIB,
        evictions: 2,
        htod_by_cause: CopiedBytes { fault: MIB, tree_prefetch: 3 * MIB, ..CopiedBytes::default() },
        ..Block::new(begin + at * 2 * MIB, now)
    };
    Blocks { busiest: (0..BLOCKS).map(block).collect(), known: 32, ..Blocks::default() }
}

fn ranges(begin: u64, reuse: Reuse) -> Ranges {
    let range = |at: u64| Range {
        begin: begin + at * 8 * MIB,
        end: begin + (at + 1) * 8 * MIB,
        mapped: true,
        counts: RangeCounts { fault_entries: 768, reuse, ..RangeCounts::default() },
        residency: Residency::exactly(4 * MIB),
        pattern: Pattern { kind: PatternKind::Cyclic, confidence: 0.97, steps: 4608 },
    };
    Ranges { busiest: (0..BLOCKS).map(range).collect(), known: BLOCKS, mappings: BLOCKS, forgotten: 0 }
}

fn source(now: SystemTime) -> SourceStatus {
    let probe = |name: &str| ProbeStatus {
        name: name.to_owned(),
        hits: 1_000_000,
        run_time: Some(Duration::from_millis(412)),
        missing: None,
    };
    SourceStatus {
        driver: Some(DriverInfo {
            version: "580.159.04".to_owned(),
            layout: Some("580-595".to_owned()),
            ..DriverInfo::default()
        }),
        probes: vec![probe("uvm_perf_event_notify"), probe("uvm_va_space_destroy")],
        dropped_events: DropReason::ALL.map(|reason| (reason.name(), 0)).into(),
        ..SourceStatus::new(SourceState::Counting { since: now - Duration::from_hours(2) })
    }
}
