//! Test data in the form of a daemon's responses.

use std::{collections::BTreeMap, time::Instant};

use api::{
    Block, Counts, Distribution, Gpu, GpuDetail, GpuId, Gpus, Process, ProcessDetail, ProcessGpu, Processes, Residency,
    Status, Verdicts,
};

use super::{
    columns::{self, Figures},
    fetch::{Detail, Detailed, Response, Sample},
    process_key::ProcessKey,
    state::{Settings, State},
};

const GPU_UUID: &str = "GPU-abababab-abab-abab-abab-abababababab";

pub(super) fn settings() -> Settings {
    Settings {
        interval: std::time::Duration::from_secs(2),
        figures: Figures::Rates,
        sort: columns::named("faults").unwrap(),
        inverted: false,
        filter: String::new(),
        ended: false,
    }
}

pub(super) fn time(second: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 + second);
    humantime::format_rfc3339_millis(at).to_string()
}

/// Counts of `faults` faults, each of which migrated 64 KiB to the GPU and evicted as much.
pub(super) fn counts(faults: u64) -> Counts {
    let bytes = faults << 16;
    let distribution = |typical: u64| Distribution {
        count: faults / 64,
        sum: faults / 64 * typical,
        p50: typical,
        p90: typical * 2,
        p99: typical * 3,
        max: typical * 4,
    };
    let causes = |cause: &str| BTreeMap::from([(cause.to_owned(), bytes)]);
    Counts {
        fault_entries: faults,
        populated_bytes: Some(0),
        bytes_dtod: Some(0),
        freed_blocks: Some(0),
        api_calls: Some(0),
        fault_instances: Some(faults * 2),
        bytes_htod: bytes,
        bytes_dtoh: bytes,
        evicted_bytes: Some(bytes),
        evictions: Some(faults / 32),
        induced_evictions: Some(0),
        induced_eviction_bytes: Some(0),
        replays: Some(0),
        thrashing_pages: Some(0),
        throttles: Some(0),
        throttled_ns: Some(0),
        remote_mappings: Some(0),
        remote_mapped_bytes: Some(0),
        batches: Some(faults / 64),
        batch_entries: Some(distribution(60)),
        batch_duration_ns: Some(distribution(400_000)),
        bytes_by_cause: Some(BTreeMap::from([
            ("htod".to_owned(), causes("tree_prefetch")),
            ("dtoh".to_owned(), causes("eviction")),
        ])),
        ..Counts::default()
    }
}

pub(super) fn process(pid: u32, name: &str, faults: u64) -> Process {
    Process {
        pid,
        start_ticks: 1,
        started_at: Some(time(0)),
        name: name.to_owned(),
        uid: 1000,
        user: Some("alice".to_owned()),
        cgroup: Some(format!("/kubepods.slice/pod-{pid}")),
        state: "running".to_owned(),
        managed_bytes: Some(64 << 30),
        resident: Some(exactly(0)),
        counts: counts(faults),
        gpus: vec![ProcessGpu { id: gpu_id(), counts: counts(faults), ..ProcessGpu::default() }],
        ..Process::default()
    }
}

fn gpu_id() -> GpuId {
    GpuId { gpu: Some(0), processor_id: Some(1), uuid: Some(GPU_UUID.to_owned()) }
}

pub(super) fn ended(process: Process) -> Process {
    Process { state: "exited".to_owned(), exited_at: Some(time(1)), ..process }
}

/// Sample with all processes on one GPU.
pub(super) fn sample(second: u64, processes: Vec<Process>) -> Sample {
    let faults = processes.iter().map(|process| process.counts.fault_entries).sum();
    let gpu = Gpu { id: gpu_id(), name: Some("NVIDIA H200".to_owned()), counts: counts(faults) };
    let status = Status {
        version: "1.2.3".to_owned(),
        hostname: "gpu-17".to_owned(),
        time: time(second),
        backend: "ebpf".to_owned(),
        state: "counting".to_owned(),
        counting_started_at: Some(time(0)),
        driver: Some("580.159.04".to_owned()),
        layout: Some("580-595".to_owned()),
        gpus: vec![gpu],
        total: counts(faults),
        ..Status::default()
    };
    Sample {
        gpus: Gpus { time: time(second), gpus: status.gpus.iter().map(memory).collect() },
        verdicts: Verdicts { time: time(second), ..Verdicts::default() },
        evictions: None,
        status,
        processes: Processes { time: time(second), processes, ..Processes::default() },
        acting: None,
        detail: None,
    }
}

/// Oversubscribed GPU.
fn memory(gpu: &Gpu) -> GpuDetail {
    GpuDetail {
        gpu: gpu.clone(),
        memory_bytes: Some(141 << 30),
        memory_used_bytes: Some(118 << 30),
        managed_bytes: 226 << 30,
        resident: Some(exactly(90 << 30)),
        oversubscription_ratio: Some(1.603),
        ..GpuDetail::default()
    }
}

fn exactly(bytes: u64) -> Residency {
    Residency { bytes, min_bytes: bytes, max_bytes: bytes }
}

pub(super) fn state(sample: Sample) -> State {
    State::new(settings(), sample, Instant::now())
}

impl State {
    pub(super) fn take_sample(&mut self, sample: Sample) {
        self.take(Response::Sample(Ok(Box::new(sample))), Instant::now());
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.rows().iter().map(|row| row.process.pid).collect()
    }
}

/// Details with blocks, each half as busy as the previous one.
pub(super) fn detail(process: Process, blocks: u64) -> Detail {
    let block = |at: u64| Block {
        address: format!("{:#x}", 0x7f2a_4000_0000 + (at << 21)),
        gpu_uuid: Some(GPU_UUID.to_owned()),
        fault_entries: Some(4096 >> at),
        cpu_faults: Some(12),
        bytes_htod: (1 << 30) >> at,
        bytes_dtoh: (1 << 30) >> at,
        evicted_bytes: (1 << 30) >> at,
        evictions: Some(512 >> at),
        ..Block::default()
    };
    let detail = ProcessDetail {
        blocks: (0..blocks).map(block).collect(),
        blocks_known: 340,
        block_records_sampled_out: 120,
        process,
        ..ProcessDetail::default()
    };
    let key = ProcessKey::of(&detail.process);
    Detail { key, response: Ok(Box::new(Detailed { process: detail, ranges: None, heat: None })) }
}
