//! Counts of each GPU.

use model::{Access, Cause, Counters, Direction, Quantity, RemoteCause, counters::PerVariant, single_counts};

use crate::metrics::{
    definition::{Buckets, Definition, Rows, Sample, Samples, counted},
    figures::{Figures, Row},
    labels::{CAUSE, COPY_DIRECTION, DIRECTION, GPU, GPU_ACCESS, PROCESSOR_UUID, REMOTE_CAUSE, UUID},
};

/// Bounds of 10 µs to 10 s: a batch that only maps memory takes tens of microseconds, one that
/// evicts first many milliseconds.
const DURATIONS: Buckets = Buckets {
    bounds: &[
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        10_000_000_000,
    ],
    units_per_one: 1_000_000_000,
};

/// Bounds for fault entries of a batch: the driver fetches at most 256 by default.
const ENTRIES: Buckets = Buckets { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], units_per_one: 1 };

/// Bounds from a small page to a block.
const SIZES: Buckets = Buckets {
    bounds: &[4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576, 2_097_152],
    units_per_one: 1,
};

const GPUS: Rows = Rows { labels: &[&GPU, &UUID], of: |figures| figures.gpus.iter().collect() };
/// GPUs, and the CPUs.
const PROCESSORS: Rows = Rows { labels: &[&GPU, &PROCESSOR_UUID], of: |figures| figures.processors().collect() };

/// Defines metrics of the rows that have one.
macro_rules! definitions {
    (
        {}
        $($(#[$doc:meta])* $field:ident: $quantity:ident $(, $rows:ident $name:literal $help:literal)?;)*
    ) => {
        /// Metrics of counts that are one number each.
        pub(super) const SINGLE: &[Definition] =
            &[$($($rows.count_if(Quantity::$quantity, $name, |row| row.counters.$field, $help),)?)*];
    };
}

single_counts! { definitions {} }

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_gpu_faults_total",
        labels: &[&GPU, &UUID, &GPU_ACCESS],
        help: "GPU page faults that the UVM driver handled, after it merged equal faults of a batch: on managed memory, and under HMM or ATS \
               on any other; fatal ones too.",
        samples: Samples::Counter(|figures| {
            by_access(figures, |counters| &counters.fault_entries)
        }),
    },
    Definition {
        name: "uvm_gpu_fault_instances_total",
        labels: &[&GPU, &UUID, &GPU_ACCESS],
        help: "GPU page faults as the hardware reported them, before merging.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::FaultInstances, || by_access(figures, |counters| &counters.fault_instances))
        }),
    },
    Definition {
        name: "uvm_fault_batch_duration_seconds",
        labels: GPUS.labels,
        help: "Time from the first fault of a batch to its replay. The driver handles GPU faults in batches. Sum and count are exact, \
               a bucket's bound is right to an eighth.",
        samples: Samples::Histogram(&DURATIONS, |figures| {
            counted(figures, Quantity::Batches, || {
                each_gpu(figures, |gpu, counters| vec![gpu.distribution([], &counters.batches.service_ns)])
            })
        }),
    },
    Definition {
        name: "uvm_fault_batch_entries",
        labels: GPUS.labels,
        help: "GPU page faults in a batch, after merging. Sum and count are exact, a bucket's bound above 16 is right to an eighth.",
        samples: Samples::Histogram(&ENTRIES, |figures| {
            counted(figures, Quantity::Batches, || {
                each_gpu(figures, |gpu, counters| vec![gpu.distribution([], &counters.batches.entries)])
            })
        }),
    },
    Definition {
        name: "uvm_fault_handler_duration_seconds",
        labels: GPUS.labels,
        help: "Time of each run of the driver's GPU fault handler, which handles several batches, and whatever else it does in between.",
        samples: Samples::Histogram(&DURATIONS, |figures| {
            counted(figures, Quantity::HandlerRuns, || {
                each_gpu(figures, |gpu, counters| vec![gpu.distribution([], &counters.fault_handler_duration_ns)])
            })
        }),
    },
    Definition {
        name: "uvm_migrated_bytes_total",
        labels: &[&GPU, &UUID, &DIRECTION, &CAUSE],
        help: "Bytes that the UVM driver copied to or from the GPU to migrate memory. First touches of new memory copy nothing and do not count.",
        samples: Samples::Counter(|figures| {
            let has_causes = figures.capabilities.has(Quantity::CopyCauses);
            each_gpu(figures, |gpu, counters| {
                let by_cause = |direction: &Direction| -> Vec<Sample> {
                    let bytes = counters.bytes(*direction);
                    let sample = |cause: Cause, bytes| gpu.sample([direction.name(), cause.name()], bytes);
                    if !has_causes {
                        return vec![sample(Cause::Other, bytes.total())];
                    }
                    Cause::ALL.map(|cause| sample(cause, bytes[cause])).into()
                };
                figures.directions().iter().flat_map(by_cause).collect()
            })
        }),
    },
    Definition {
        name: "uvm_migration_size_bytes",
        labels: &[&GPU, &UUID, &COPY_DIRECTION],
        help: "Bytes of each copy between host and GPU that migrates memory: of pages that follow each other, within a block of 2 MiB. Sum and count \
               are exact, a bucket's bound is right to an eighth.",
        samples: Samples::Histogram(&SIZES, |figures| {
            counted(figures, Quantity::CopyCauses, || {
                each_gpu(figures, |gpu, counters| {
                    [("htod", &counters.migration_size_htod_bytes), ("dtoh", &counters.migration_size_dtoh_bytes)]
                        .map(|(direction, sizes)| gpu.distribution([direction], sizes))
                        .into()
                })
            })
        }),
    },
    GPUS.count_if(
        Quantity::Reuse,
        "uvm_fetched_bytes_total",
        |row| row.reuse.fetched_bytes,
        "Bytes copied to the GPU, by block records: the denominator of the next two metrics. While \
               uvmd_block_records_dropped_total grows, it is below uvm_migrated_bytes_total.",
    ),
    GPUS.count_if(
        Quantity::Reuse,
        "uvm_refetched_bytes_total",
        |row| row.reuse.refetched_bytes,
        "Fetched bytes that had been evicted before, by VA block of 2 MiB: the cost of thrashing.",
    ),
    GPUS.count_if(
        Quantity::Reuse,
        "uvm_cpu_reclaimed_bytes_total",
        |row| row.reuse.cpu_reclaimed_bytes,
        "Fetched bytes that a CPU fault had migrated to the host before, by VA block of 2 MiB: the cost of sharing with the CPU.",
    ),
    Definition {
        name: "uvm_throttled_seconds_total",
        labels: PROCESSORS.labels,
        help: "Time for which the driver throttled processors.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::ThrottledTime, || {
                each_processor(figures, |row, counters| vec![row.number(counters.throttled_ns as f64 / NANOSECONDS)])
            })
        }),
    },
    Definition {
        name: "uvm_remote_mappings_total",
        labels: &[&GPU, &PROCESSOR_UUID, &REMOTE_CAUSE],
        help: "Mappings that the driver gave the processor to memory that stays on another, while a tool such as a profiler was attached to the \
               process: the driver reports them to such tools only.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::RemoteMappings, || {
                each_processor(figures, |row, counters| {
                    row.each(&RemoteCause::ALL, RemoteCause::name, |cause| counters.remote_mappings[cause])
                })
            })
        }),
    },
    Definition {
        name: "uvm_remote_mapped_bytes_total",
        labels: &[&GPU, &PROCESSOR_UUID, &REMOTE_CAUSE],
        help: "Bytes of such mappings; a repeated mapping counts again. The bytes then read or written over the bus are unknown.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::RemoteMappings, || {
                each_processor(figures, |row, counters| {
                    row.each(&RemoteCause::ALL, RemoteCause::name, |cause| counters.remote_mapped_bytes[cause])
                })
            })
        }),
    },
];

const NANOSECONDS: f64 = 1e9;

fn each_gpu<T>(figures: &Figures<'_>, samples: impl Fn(&Row<'_>, &Counters) -> Vec<Sample<T>>) -> Vec<Sample<T>> {
    figures.gpus.iter().flat_map(|row| samples(row, &row.counters)).collect()
}

/// Faults of GPUs by access type; all in one where that is not counted.
fn by_access(figures: &Figures<'_>, faults: fn(&Counters) -> &PerVariant<6>) -> Vec<Sample> {
    let has_access = figures.capabilities.has(Quantity::FaultAccess);
    each_gpu(figures, |gpu, counters| {
        let faults = faults(counters);
        if !has_access {
            return vec![gpu.sample([Access::Unknown.name()], faults.total())];
        }
        gpu.each(faults.accesses(), Access::name, |access| faults[access])
    })
}

fn each_processor(figures: &Figures<'_>, samples: impl Fn(&Row<'_>, &Counters) -> Vec<Sample>) -> Vec<Sample> {
    figures.processors().flat_map(|row| samples(row, &row.counters)).collect()
}
