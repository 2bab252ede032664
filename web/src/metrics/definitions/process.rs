//! Metrics of each process with series. Such series are few, and have separate names, so that sums
//! over the others stay right.

use model::{Direction, Quantity};

use crate::metrics::{
    definition::{Definition, Rows, Sample, Samples},
    figures::Row,
    labels::{CGROUP, DIRECTION, GPU, PID, PROCESS, UUID},
};

/// Processes on each GPU.
const ON_GPUS: Rows = Rows {
    labels: &[&GPU, &UUID, &PID, &PROCESS, &CGROUP],
    of: |figures| figures.processes.iter().flat_map(|process| &process.gpus).collect(),
};

pub(super) const DEFINITIONS: &[Definition] = &[
    ON_GPUS.count(
        "uvm_process_gpu_faults_total",
        |row| row.counters.fault_entries.total(),
        "GPU page faults of a process, as in uvm_gpu_faults_total. Requires `metrics.per_process`.",
    ),
    Definition {
        name: "uvm_process_migrated_bytes_total",
        labels: &[&GPU, &UUID, &PID, &PROCESS, &CGROUP, &DIRECTION],
        help: "Bytes copied to migrate memory of a process, for whatever cause. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            let by_direction = |row: &Row<'_>| {
                row.each(figures.directions(), Direction::name, |direction| row.counters.bytes(direction).total())
            };
            (ON_GPUS.of)(figures).into_iter().flat_map(by_direction).collect()
        }),
    },
    ON_GPUS.count_if(
        Quantity::CopyCauses,
        "uvm_process_evicted_bytes_total",
        |row| row.counters.evicted_bytes(),
        "Bytes of a process's memory evicted from the GPU, for itself or for another process. Requires `metrics.per_process`.",
    ),
    ON_GPUS.count_if(
        Quantity::EvictionPairs,
        "uvm_process_induced_eviction_bytes_total",
        |row| row.counters.induced_eviction_bytes,
        "Bytes evicted from the GPU because a process needed memory, its own included. Requires `metrics.per_process`.",
    ),
    ON_GPUS.count_if(
        Quantity::Reuse,
        "uvm_process_refetched_bytes_total",
        |row| row.reuse.refetched_bytes,
        "As uvm_refetched_bytes_total, of a process. Requires `metrics.per_process`.",
    ),
    Definition {
        name: "uvm_process_managed_bytes",
        labels: &[&PID, &PROCESS, &CGROUP],
        help: "Managed memory that a process has mapped, touched or not; absent after its exit or if it could not be read. Requires `metrics.per_process`.",
        samples: Samples::Gauge(|figures| {
            let running = figures.processes.iter().filter(|rows| rows.process.exited_at.is_none());
            let known = running.filter_map(|rows| Some((rows, rows.process.managed_bytes?)));
            known.map(|(rows, bytes)| Sample { labels: rows.labels.clone(), value: bytes as f64 }).collect()
        }),
    },
];
