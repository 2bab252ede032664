//! Metrics of each known GPU, its memory, and managed memory in it.

use crate::metrics::{
    definition::{Definition, Sample, Samples},
    figures::{Figures, MemoryRow},
    labels::{DRIVER_VERSION, GPU, Label, MODEL_NAME, PCI_BUS_ID, UUID},
};

const ONE_GPU: &[&Label] = &[&GPU, &UUID];

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_gpu_info",
        labels: &[&GPU, &UUID, &PCI_BUS_ID, &MODEL_NAME, &DRIVER_VERSION],
        help: "Always 1, for each known GPU; the labels name it as DCGM's exporter does.",
        samples: Samples::Gauge(|figures| {
            let driver =
                figures.snapshot.source.driver.as_ref().map(|driver| driver.version.clone()).unwrap_or_default();
            let info = |row: &MemoryRow| {
                let more =
                    [row.pci_address.clone().unwrap_or_default(), row.name.clone().unwrap_or_default(), driver.clone()];
                Sample { labels: row.labels.iter().cloned().chain(more).collect(), value: 1.0 }
            };
            figures.memory.iter().map(info).collect()
        }),
    },
    Definition {
        name: "uvm_gpu_memory_bytes",
        labels: ONE_GPU,
        help: "Total memory of the GPU. Absent where neither NVML nor the driver's procfs reports it.",
        samples: Samples::Gauge(|figures| each(figures, |row| row.total_bytes.map(|bytes| bytes as f64))),
    },
    Definition {
        name: "uvm_gpu_memory_used_bytes",
        labels: ONE_GPU,
        help: "Used memory of the GPU, by managed memory and everything else. Absent likewise.",
        samples: Samples::Gauge(|figures| each(figures, |row| row.used_bytes.map(|bytes| bytes as f64))),
    },
    Definition {
        name: "uvm_gpu_managed_bytes",
        labels: ONE_GPU,
        help: "Managed memory mapped by the running processes that use the GPU, touched or not. A process that uses several GPUs counts at each.",
        samples: Samples::Gauge(|figures| each(figures, |row| Some(row.managed.managed_bytes as f64))),
    },
    Definition {
        name: "uvm_oversubscription_ratio",
        labels: ONE_GPU,
        help: "uvm_gpu_managed_bytes over uvm_gpu_memory_bytes: above 1, not all of it fits.",
        samples: Samples::Gauge(|figures| each(figures, |row| row.managed.oversubscription_ratio)),
    },
    Definition {
        name: "uvm_resident_bytes",
        labels: ONE_GPU,
        help: "Managed memory resident in the GPU's memory: an estimate, as the driver does not report it. The true value lies within the next two. Absent where it cannot be counted: see /api/v1/status.",
        samples: Samples::Gauge(|figures| {
            each(figures, |row| row.managed.resident.map(|resident| resident.bytes as f64))
        }),
    },
    Definition {
        name: "uvm_resident_min_bytes",
        labels: ONE_GPU,
        help: "Lower bound of uvm_resident_bytes. Absent likewise.",
        samples: Samples::Gauge(|figures| {
            each(figures, |row| row.managed.resident.map(|resident| resident.min_bytes as f64))
        }),
    },
    Definition {
        name: "uvm_resident_max_bytes",
        labels: ONE_GPU,
        help: "Upper bound of uvm_resident_bytes. Absent likewise.",
        samples: Samples::Gauge(|figures| {
            each(figures, |row| row.managed.resident.map(|resident| resident.max_bytes as f64))
        }),
    },
];

fn each(figures: &Figures<'_>, value: impl Fn(&MemoryRow) -> Option<f64>) -> Vec<Sample> {
    let known = figures.memory.iter().filter_map(|row| Some((row, value(row)?)));
    known.map(|(row, value)| Sample { labels: row.labels.clone(), value }).collect()
}
