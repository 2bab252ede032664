//! Node on which one process thrashes, and evicts the memory of another.

use std::collections::BTreeMap;

use api::{
    Check, Counts, Diagnosis, EvictionPair, Evictions, Evictor, Gpu, GpuDetail, GpuId, Gpus, HeatCell, HeatMap,
    HeatRange, InvolvedRange, Party, Pattern, Process, ProcessDetail, ProcessGpu, Processes, Range, RangeCounts,
    Ranges, Residency, Reuse, Status, Verdict, VerdictInputs, VerdictSummary, VerdictVictim, Verdicts,
    explain::{self, Case},
};
use model::{Capabilities, Counters, VerdictKind};

const MIB: u64 = 1 << 20;
/// Time of every response.
pub const NOW: &str = "2026-11-21T14:06:23Z";
const SINCE: &str = "2026-11-21T14:02:11Z";
/// Kind of both verdicts.
const KIND: VerdictKind = VerdictKind::CapacityThrash;
const UUID: &str = "GPU-abababab-abab-abab-abab-abababababab";

fn gpu_id() -> GpuId {
    GpuId { gpu: Some(0), processor_id: Some(1), uuid: Some(UUID.to_owned()) }
}

fn exactly(bytes: u64) -> Residency {
    Residency { bytes, min_bytes: bytes, max_bytes: bytes }
}

/// Counts of a driver that has every function, at 0.
fn nothing() -> Counts {
    Counts::new(&Counters::ZERO, Capabilities::ALL)
}

fn process(pid: u32, name: &str, managed_bytes: u64, resident: Residency) -> Process {
    let by_access = BTreeMap::from([("read".to_owned(), 900), ("write".to_owned(), 100)]);
    let counts = Counts {
        fault_entries: 1000,
        bytes_htod: 4096 * MIB,
        bytes_dtoh: 4096 * MIB,
        evicted_bytes: Some(4096 * MIB),
        evictions: Some(2048),
        induced_evictions: Some(2048),
        induced_eviction_bytes: Some(4096 * MIB),
        fault_entries_by_access: Some(by_access),
        ..nothing()
    };
    Process {
        pid,
        start_ticks: 1,
        started_at: Some(SINCE.to_owned()),
        name: name.to_owned(),
        user: Some("alice".to_owned()),
        state: "running".to_owned(),
        managed_bytes: Some(managed_bytes),
        resident: Some(resident),
        gpus: vec![ProcessGpu { id: gpu_id(), counts: counts.clone(), ..ProcessGpu::default() }],
        counts,
        ..Process::default()
    }
}

fn thrashing(process: Process) -> Process {
    let summary = VerdictSummary {
        gpu_uuid: Some(UUID.to_owned()),
        kind: KIND.name().to_owned(),
        label: KIND.label().to_owned(),
        thrashing: true,
        started_at: SINCE.to_owned(),
    };
    let (kind, label) = ("verdict".to_owned(), KIND.label().to_owned());
    let diagnosis = Diagnosis { kind, label, verdict: Some(summary.clone()), ..Diagnosis::default() };
    Process { diagnosis: Some(diagnosis), verdicts: vec![summary], ..process }
}

fn streams() -> Process {
    thrashing(process(
        182,
        "streams",
        128 * MIB,
        Residency { bytes: 44 * MIB, min_bytes: 43 * MIB, max_bytes: 45 * MIB },
    ))
}

fn evictor() -> Evictor {
    Evictor { pid: 182, start_ticks: 1, name: "streams".to_owned(), bytes_per_second: 11 * MIB, inferred: true }
}

fn fits() -> Process {
    let process = thrashing(process(180, "fits", 24 * MIB, exactly(16 * MIB)));
    let verdict = process.verdicts.first().cloned();
    let (kind, label) = ("victim".to_owned(), "victim of 182".to_owned());
    let diagnosis = Diagnosis { kind, label, evictor: Some(evictor()), verdict, ..Diagnosis::default() };
    Process { diagnosis: Some(diagnosis), victim_of: Some(evictor()), ..process }
}

fn idle() -> Process {
    Process { verdicts: Vec::new(), ..process(512, "idle", 2 * MIB, exactly(2 * MIB)) }
}

fn verdict(process: &Process, evicted_bytes: u64, range: InvolvedRange, victims: Vec<VerdictVictim>) -> Verdict {
    let inputs = VerdictInputs {
        fault_entries: 2000,
        bytes_htod: 200 * MIB,
        bytes_dtoh: evicted_bytes,
        evicted_bytes,
        fetched_bytes: 200 * MIB,
        refetched_bytes: 184 * MIB,
        ..VerdictInputs::default()
    };
    let check = Check {
        name: "refetch_ratio".to_owned(),
        description: "92 % of arriving bytes were refetched (limit 25 %)".to_owned(),
        value: 0.92,
        threshold: 0.25,
        met: true,
    };
    let verdict = Verdict {
        pid: process.pid,
        start_ticks: 1,
        name: process.name.clone(),
        gpu_uuid: Some(UUID.to_owned()),
        kind: KIND.name().to_owned(),
        label: KIND.label().to_owned(),
        thrashing: true,
        started_at: SINCE.to_owned(),
        confirmed_at: SINCE.to_owned(),
        ranges: Some(vec![range]),
        window_seconds: 2.0,
        inputs,
        total: inputs,
        checks: vec![check],
        evictor: process.diagnosis.as_ref().and_then(|diagnosis| diagnosis.evictor.clone()),
        victims,
        ..Verdict::default()
    };
    let (ranges, gpus) = (ranges_of(process.pid), gpus().gpus);
    let case =
        Case { kind: KIND, verdict: &verdict, process, ranges: Some(&ranges), gpu: gpus.first(), in_mode_act: false };
    Verdict {
        summary: explain::summary(KIND, &verdict, "user alice", "GPU0 (NVIDIA H200)", ""),
        reason: explain::reason(KIND, &verdict),
        remedies: Some(explain::remedies(&case)),
        ..verdict
    }
}

fn involved(begin: u64, bytes: u64, pattern: &str) -> InvolvedRange {
    let pattern = Pattern { kind: pattern.to_owned(), stride_bytes: None, confidence: 0.98, steps: 1234 };
    let (begin, end) = (format!("{begin:#x}"), format!("{:#x}", begin + bytes));
    InvolvedRange { begin, end, bytes, pattern, traffic_ratio: 1.0, refetch_ratio: 0.92 }
}

const STREAMED: u64 = 0x7f2a_4000_0000;

/// Verdict about the thrashing process.
#[must_use]
pub fn verdicts() -> Verdicts {
    let victim = VerdictVictim {
        pid: 180,
        name: "fits".to_owned(),
        bytes_per_second: 11 * MIB,
        inferred: true,
        ..VerdictVictim::default()
    };
    let active = vec![
        verdict(&streams(), 200 * MIB, involved(STREAMED, 128 * MIB, "cyclic"), vec![victim]),
        verdict(&fits(), 24 * MIB, involved(0x7f36_0000_0000, 24 * MIB, "random"), Vec::new()),
    ];
    Verdicts { time: NOW.to_owned(), active, ..Verdicts::default() }
}

fn ranges_with(begin: u64, bytes: u64, pattern: &str, resident: Residency) -> Ranges {
    let InvolvedRange { begin, end, pattern, .. } = involved(begin, bytes, pattern);
    let reuse = Reuse { fetched_bytes: 200 * MIB, refetched_bytes: 184 * MIB, ..Reuse::default() };
    let counts = RangeCounts { fault_entries: Some(1000), cpu_faults: Some(0), reuse, ..RangeCounts::default() };
    let range = Range { begin, end, bytes, mapped: true, pattern, resident: Some(resident), counts };
    let limits =
        vec!["How often memory is used that is in GPU memory: an access that hits raises no fault.".to_owned()];
    Ranges { time: NOW.to_owned(), ranges: vec![range], ranges_known: 1, caveats: limits, ..Ranges::default() }
}

/// Heat map of the thrashing process.
#[must_use]
pub fn heat() -> HeatMap {
    let cell = |at: u64| HeatCell {
        fault_entries: Some(at * 10),
        cpu_faults: Some(0),
        fetched_bytes: at * 2 * MIB,
        refetched_bytes: at * MIB,
        resident: Some(exactly(if at.is_multiple_of(2) { 2 * MIB } else { 0 })),
        idle_seconds: (at > 0).then_some(0.5),
        ..HeatCell::default()
    };
    let begin = format!("{STREAMED:#x}");
    let end = format!("{:#x}", STREAMED + 128 * MIB);
    let range = HeatRange { begin, end, cell_bytes: 8 * MIB, cells: (0..16).map(cell).collect() };
    HeatMap { time: NOW.to_owned(), ranges: vec![range], ranges_omitted: 0 }
}

/// GPUs of the node.
#[must_use]
pub fn gpus() -> Gpus {
    let gpu = Gpu { id: gpu_id(), name: Some("NVIDIA H200".to_owned()), counts: nothing() };
    let gpu = GpuDetail {
        gpu,
        pci_address: Some("0000:17:00.0".to_owned()),
        memory_bytes: Some(64 * MIB),
        memory_used_bytes: Some(63 * MIB),
        managed_capacity_bytes: Some(63 * MIB),
        managed_bytes: 154 * MIB,
        resident: Some(exactly(62 * MIB)),
        oversubscription_ratio: Some(2.406),
        reuse: Some(Reuse { fetched_bytes: 400 * MIB, refetched_bytes: 368 * MIB, ..Reuse::default() }),
        source: Some("nvml".to_owned()),
    };
    Gpus { time: NOW.to_owned(), gpus: vec![gpu] }
}

fn party(process: &Process) -> Party {
    let Process { pid, start_ticks, name, .. } = process;
    Party {
        kind: "process".to_owned(),
        pid: Some(*pid),
        start_ticks: Some(*start_ticks),
        name: Some(name.clone()),
        owner: None,
    }
}

/// Evictions between the processes.
#[must_use]
pub fn evictions(time: &str, streamed_bytes: u64) -> Evictions {
    let pair = |victim: &Process, evictor: &Process, bytes: u64| EvictionPair {
        gpu_uuid: Some(UUID.to_owned()),
        victim: party(victim),
        evictor: party(evictor),
        cause: "fault".to_owned(),
        evictions: bytes / (2 * MIB),
        bytes,
    };
    let pairs = vec![
        pair(&streams(), &streams(), streamed_bytes),
        pair(&fits(), &streams(), 588 * MIB),
        pair(&streams(), &fits(), 500 * MIB),
    ];
    Evictions { time: time.to_owned(), inferred: true, pairs: Some(pairs), ..Evictions::default() }
}

/// Ranges of a process.
#[must_use]
pub fn ranges_of(pid: u32) -> Ranges {
    match pid {
        182 => ranges_with(STREAMED, 128 * MIB, "cyclic", exactly(44 * MIB)),
        180 => ranges_with(0x7f36_0000_0000, 24 * MIB, "random", exactly(16 * MIB)),
        _ => Ranges::default(),
    }
}

/// Status of the service and its node.
#[must_use]
pub fn status() -> Status {
    let gpu = gpus().gpus.remove(0).gpu;
    Status {
        version: "1.2.3".to_owned(),
        hostname: "gpu-17".to_owned(),
        time: NOW.to_owned(),
        backend: "ebpf".to_owned(),
        state: "counting".to_owned(),
        counting_started_at: Some(SINCE.to_owned()),
        driver: Some("580.159.04".to_owned()),
        gpus: vec![gpu],
        ..Status::default()
    }
}

/// Processes, the busiest first.
#[must_use]
pub fn processes() -> Processes {
    Processes { time: NOW.to_owned(), processes: vec![streams(), fits(), idle()], ..Processes::default() }
}

/// Detail of a process, of the idle one if there is none of this pid.
#[must_use]
pub fn detail_of(pid: u32) -> ProcessDetail {
    let process = processes().processes.into_iter().find(|process| process.pid == pid).unwrap_or_else(idle);
    ProcessDetail { process, command_line: Some("/opt/bin/run --fast".to_owned()), ..ProcessDetail::default() }
}
