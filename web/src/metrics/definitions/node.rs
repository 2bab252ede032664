//! Metrics without a GPU.

use model::{Access, ApiCall, Counters, Quantity, counters::PerVariant};
use sys::host_memory::HostMemory;

use crate::metrics::{
    definition::{Definition, Sample, Samples, counted},
    figures::Figures,
    labels::{CALL, CPU_ACCESS},
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_cpu_faults_total",
        labels: &[&CPU_ACCESS],
        help: "CPU page faults that the UVM driver handled: on managed memory, and under HMM on any other that a GPU holds.",
        samples: Samples::Counter(|figures| {
            let by_access = cpu_faults(figures, &figures.snapshot.host_totals).into_iter();
            by_access.map(|(access, faults)| Sample::new([access.name()], faults as f64)).collect()
        }),
    },
    Definition {
        name: "uvm_freed_blocks_total",
        labels: &[],
        help: "Freed blocks of managed memory, of at most 2 MiB, as by `cudaFree` and at exit. Programs that allocate and free all the time \
               keep it growing: `uvmctl explain` names them.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::FreedBlocks, || {
                vec![Sample::new([], figures.snapshot.host_totals.freed_blocks as f64)]
            })
        }),
    },
    Definition {
        name: "uvm_api_calls_total",
        labels: &[&CALL],
        help: "Calls of applications about their managed memory: prefetches and advice.",
        samples: Samples::Counter(|figures| by_call(figures, |total| &total.api_calls)),
    },
    Definition {
        name: "uvm_api_bytes_total",
        labels: &[&CALL],
        help: "Bytes in the ranges that those calls named, whether or not they caused migrations.",
        samples: Samples::Counter(|figures| by_call(figures, |total| &total.api_bytes)),
    },
    Definition {
        name: "uvm_tool_calls_total",
        labels: &[&CALL],
        help: "Such calls of another process about a process's memory: uvmd itself, a profiler.",
        samples: Samples::Counter(|figures| by_call(figures, |total| &total.tool_calls)),
    },
    Definition {
        name: "uvm_tool_bytes_total",
        labels: &[&CALL],
        help: "Bytes in the ranges that those calls named.",
        samples: Samples::Counter(|figures| by_call(figures, |total| &total.tool_bytes)),
    },
    Definition {
        name: "uvm_driver_fatal_error",
        labels: &[],
        help: "1 while nvidia-uvm has a global fatal error, after which it refuses every new CUDA program until it is reloaded; 0 otherwise, including where the state is unknown. \
               /api/v1/status has the error and the remedy.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.snapshot.source.fatal_error.is_some())))]
        }),
    },
    Definition {
        name: "uvm_host_memory_bytes",
        labels: &[],
        help: "Total memory of the host: `MemTotal` of /proc/meminfo.",
        samples: Samples::Gauge(|figures| host(figures, |host| host.total_bytes)),
    },
    Definition {
        name: "uvm_host_memory_available_bytes",
        labels: &[],
        help: "Memory of the host that programs can take without swapping: `MemAvailable` of /proc/meminfo. Managed memory that is evicted or first \
               touched by a CPU takes of it.",
        samples: Samples::Gauge(|figures| host(figures, |host| host.available_bytes)),
    },
    Definition {
        name: "uvm_managed_bytes",
        labels: &[],
        help: "Managed memory that running processes have mapped, touched or not: of those whose mappings uvmd could read.",
        samples: Samples::Gauge(|figures| {
            let running = figures.snapshot.processes.iter().filter(|process| process.exited_at.is_none());
            let bytes: u64 = running.filter_map(|process| process.managed_bytes).sum();
            vec![Sample::new([], bytes as f64)]
        }),
    },
];

fn host(figures: &Figures<'_>, value: impl Fn(HostMemory) -> u64) -> Vec<Sample> {
    figures.host.map(|host| Sample::new([], value(host) as f64)).into_iter().collect()
}

/// CPU faults by access type; all in one where that is not counted.
pub(super) fn cpu_faults(figures: &Figures<'_>, host: &Counters) -> Vec<(Access, u64)> {
    if !figures.capabilities.has(Quantity::CpuFaultAccess) {
        return vec![(Access::Unknown, host.cpu_faults())];
    }
    host.cpu_faults_by_access().collect()
}

fn by_call(figures: &Figures<'_>, counts: fn(&Counters) -> &PerVariant<8>) -> Vec<Sample> {
    counted(figures, Quantity::ApiCalls, || {
        let total = figures.total();
        ApiCall::ALL.map(|call| Sample::new([call.name()], counts(&total)[call] as f64)).into()
    })
}
