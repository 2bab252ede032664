//! Metrics of each pod, job, container and unit, which outlive its processes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use model::{Access, Direction, Quantity, VerdictKind, VerdictTimeKey};

use super::node::cpu_faults;
use crate::metrics::{
    definition::{Definition, Rows, Sample, Samples},
    figures::{Figures, OwnerRows, Row, labels_of_gpu, listed, names},
    labels::{CPU_ACCESS, DIRECTION, GPU, Label, UUID, VERDICT, WORKLOAD, owner_labels},
};

const OWNER: &[&Label] = owner_labels!([], []);
/// Owners on each GPU.
const ON_GPUS: Rows = Rows {
    labels: owner_labels!([GPU, UUID], []),
    of: |figures| figures.owners.iter().flat_map(|owner| &owner.gpus).collect(),
};

/// Kinds of verdict that are thrashing. The others are not faults, and only the API exposes them.
const THRASHING: [VerdictKind; 3] = [VerdictKind::CapacityThrash, VerdictKind::PingPong, VerdictKind::DriverThrottling];

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_thrashing",
        labels: owner_labels!([GPU, UUID], [VERDICT]),
        help: "1 while a process of the owner thrashes on the GPU, else 0; absent for kinds that cannot be judged by what is counted. /api/v1/verdicts has the process, the start and the evidence.",
        samples: Samples::Gauge(thrashing),
    },
    Definition {
        name: "uvm_owner_verdict_seconds_total",
        labels: owner_labels!([GPU, UUID], [VERDICT]),
        help: "Time for which a verdict held, summed over the processes of an owner, from its start. It grows with each window that confirms the verdict. \
               The series exists, with 0, from the first time that the owner is seen at the GPU.",
        samples: Samples::Counter(verdict_seconds),
    },
    ON_GPUS.count(
        "uvm_owner_gpu_faults_total",
        |row| row.counters.fault_entries.total(),
        "GPU page faults of an owner's processes, as in uvm_gpu_faults_total.",
    ),
    Definition {
        name: "uvm_owner_cpu_faults_total",
        labels: owner_labels!([], [CPU_ACCESS]),
        help: "CPU page faults of an owner's processes, as in uvm_cpu_faults_total.",
        samples: Samples::Counter(|figures| {
            let by_access = |owner: &OwnerRows<'_>| -> Vec<Sample> {
                let sample = |(access, faults): (Access, u64)| {
                    let labels = owner.labels.iter().cloned().chain([access.name().to_owned()]).collect();
                    Sample { labels, value: faults as f64 }
                };
                cpu_faults(figures, owner.host).into_iter().map(sample).collect()
            };
            figures.owners.iter().flat_map(by_access).collect()
        }),
    },
    Definition {
        name: "uvm_owner_migrated_bytes_total",
        labels: owner_labels!([GPU, UUID], [DIRECTION]),
        help: "Bytes copied to migrate memory of an owner's processes, for whatever cause.",
        samples: Samples::Counter(|figures| {
            let by_direction = |row: &Row<'_>| {
                row.each(figures.directions(), Direction::name, |direction| row.counters.bytes(direction).total())
            };
            (ON_GPUS.of)(figures).into_iter().flat_map(by_direction).collect()
        }),
    },
    ON_GPUS.count_if(
        Quantity::CopyCauses,
        "uvm_owner_evicted_bytes_total",
        |row| row.counters.evicted_bytes(),
        "Bytes of an owner's memory evicted from the GPU, for itself or for another owner.",
    ),
    ON_GPUS.count_if(
        Quantity::EvictionPairs,
        "uvm_owner_induced_eviction_bytes_total",
        |row| row.counters.induced_eviction_bytes,
        "Bytes evicted from the GPU because an owner's process needed memory, its own included.",
    ),
    ON_GPUS.count_if(
        Quantity::Reuse,
        "uvm_owner_fetched_bytes_total",
        |row| row.reuse.fetched_bytes,
        "As uvm_fetched_bytes_total, of an owner's processes.",
    ),
    ON_GPUS.count_if(
        Quantity::Reuse,
        "uvm_owner_refetched_bytes_total",
        |row| row.reuse.refetched_bytes,
        "As uvm_refetched_bytes_total, of an owner's processes.",
    ),
    ON_GPUS.count_if(
        Quantity::Reuse,
        "uvm_owner_cpu_reclaimed_bytes_total",
        |row| row.reuse.cpu_reclaimed_bytes,
        "As uvm_cpu_reclaimed_bytes_total, of an owner's processes.",
    ),
    Definition {
        name: "uvm_owner_resident_bytes",
        labels: ON_GPUS.labels,
        help: "Managed memory of an owner's running processes that is in the GPU's memory: an estimate, as uvm_resident_bytes is, and absent where that is.",
        samples: Samples::Gauge(|figures| {
            let all = figures.owners.iter().flat_map(|owner| &owner.resident);
            let all = figures.capabilities.counted(Quantity::Resident, all).into_iter().flatten();
            all.map(|(labels, resident)| Sample { labels: labels.clone(), value: resident.bytes as f64 }).collect()
        }),
    },
    Definition {
        name: "uvm_owner_managed_bytes",
        labels: OWNER,
        help: "Managed memory that an owner's running processes have mapped, touched or not: of those whose mappings uvmd could read.",
        samples: Samples::Gauge(|figures| each_owner(figures, |owner| owner.managed_bytes)),
    },
    Definition {
        name: "uvmd_owner_info",
        labels: owner_labels!([], [WORKLOAD]),
        help: "Always 1: the workload of a pod whose names are known, for joins. Absent for other owners.",
        samples: Samples::Gauge(|figures| {
            let info = |owner: &OwnerRows<'_>| {
                let names = figures.snapshot.owner_names.of(owner.key)?;
                let workload = names.workload.clone().unwrap_or_default();
                Some(Sample { labels: owner.labels.iter().cloned().chain([workload]).collect(), value: 1.0 })
            };
            figures.owners.iter().filter_map(info).collect()
        }),
    },
    Definition {
        name: "uvm_owner_processes",
        labels: OWNER,
        help: "Running processes of an owner that use managed memory.",
        samples: Samples::Gauge(|figures| each_owner(figures, |owner| owner.processes)),
    },
];

fn each_owner(figures: &Figures<'_>, value: impl Fn(&OwnerRows<'_>) -> u64) -> Vec<Sample> {
    let sample = |owner: &OwnerRows<'_>| Sample { labels: owner.labels.clone(), value: value(owner) as f64 };
    figures.owners.iter().map(sample).collect()
}

/// Durations of verdicts, of each kind for each owner and GPU. GPUs without a known UUID share a
/// series.
fn verdict_seconds(figures: &Figures<'_>) -> Vec<Sample> {
    let kinds = |row: &Row<'_>| {
        let labels = row.labels.clone();
        let judged = VerdictKind::ALL.into_iter().filter(|kind| kind.is_judged(figures.capabilities));
        judged.map(move |kind| labels.iter().cloned().chain([kind.name().to_owned()]).collect::<Vec<_>>())
    };
    let all = (ON_GPUS.of)(figures).into_iter().flat_map(kinds);
    let mut sums: BTreeMap<Vec<String>, Duration> = all.map(|labels| (labels, Duration::ZERO)).collect();
    for (VerdictTimeKey { owner, gpu, kind }, duration) in &figures.verdicts.verdict_time {
        let labels = labels_of_gpu(figures.snapshot, *gpu)
            .into_iter()
            .chain(names(figures.snapshot, owner))
            .chain([kind.name().to_owned()]);
        *sums.entry(labels.collect()).or_default() += *duration;
    }
    sums.into_iter().map(|(labels, duration)| Sample { labels, value: duration.as_secs_f64() }).collect()
}

/// Samples for each owner, GPU and kind, so that the end of a verdict is visible, too.
fn thrashing(figures: &Figures<'_>) -> Vec<Sample> {
    let processes: HashMap<_, _> = figures.snapshot.processes.iter().map(|process| (process.id, process)).collect();
    let active: HashSet<_> = figures
        .verdicts
        .active
        .iter()
        .filter_map(|verdict| {
            let process = processes.get(&verdict.process)?;
            Some((listed(figures.snapshot, process)?, verdict.gpu.uuid(), verdict.kind))
        })
        .collect();
    let judged: Vec<_> = THRASHING.into_iter().filter(|kind| kind.is_judged(figures.capabilities)).collect();
    let of_owner = |owner: &OwnerRows<'_>| -> Vec<Sample> {
        let of_gpu = |row: &Row<'_>| {
            row.each(&judged, VerdictKind::name, |kind| u64::from(active.contains(&(owner.key, row.uuid, kind))))
        };
        owner.gpus.iter().flat_map(of_gpu).collect()
    };
    figures.owners.iter().flat_map(of_owner).collect()
}
