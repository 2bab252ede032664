//! Metrics of each process with series. Such series are few, and have separate names, so that sums
//! over the others stay right.

use model::{Counters, Direction};

use crate::metrics::{
    definition::{Definition, Sample, Samples},
    figures::{Figures, Row},
    labels::{CGROUP, DIRECTION, GPU, Label, PID, PROCESS, UUID},
};

const PROCESS_ON_GPU: &[&Label] = &[&GPU, &UUID, &PID, &PROCESS, &CGROUP];

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_process_gpu_faults_total",
        labels: PROCESS_ON_GPU,
        help: "GPU page faults of a process, as in uvm_gpu_faults_total. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            each_gpu(figures, |gpu, counters| vec![gpu.sample([], counters.fault_entries.total())])
        }),
    },
    Definition {
        name: "uvm_process_migrated_bytes_total",
        labels: &[&GPU, &UUID, &PID, &PROCESS, &CGROUP, &DIRECTION],
        help: "Bytes copied to migrate memory of a process, for whatever cause. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            each_gpu(figures, |gpu, counters| {
                gpu.each(Direction::ALL, Direction::name, |direction| counters.bytes(direction).total())
            })
        }),
    },
    Definition {
        name: "uvm_process_evicted_bytes_total",
        labels: PROCESS_ON_GPU,
        help: "Bytes of a process's memory evicted from the GPU, for itself or for another process. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            each_gpu(figures, |gpu, counters| vec![gpu.sample([], counters.evicted_bytes())])
        }),
    },
    Definition {
        name: "uvm_process_induced_eviction_bytes_total",
        labels: PROCESS_ON_GPU,
        help: "Bytes evicted from the GPU because a process needed memory, its own included. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            each_gpu(figures, |gpu, counters| vec![gpu.sample([], counters.induced_eviction_bytes)])
        }),
    },
    Definition {
        name: "uvm_process_refetched_bytes_total",
        labels: PROCESS_ON_GPU,
        help: "As uvm_refetched_bytes_total, of a process. Requires `metrics.per_process`.",
        samples: Samples::Counter(|figures| {
            let rows = figures.processes.iter().flat_map(|process| &process.gpus);
            rows.map(|row| row.sample([], row.reuse.refetched_bytes)).collect()
        }),
    },
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

fn each_gpu<T>(figures: &Figures<'_>, samples: impl Fn(&Row<'_>, &Counters) -> Vec<Sample<T>>) -> Vec<Sample<T>> {
    let rows = figures.processes.iter().flat_map(|process| &process.gpus);
    rows.flat_map(|row| samples(row, &row.counters)).collect()
}
