//! Every metric: name, type, labels, help, and where its samples come from. The exposition and docs/metrics.md are both made of this.
//!
//! Counters come from the snapshot's totals, which keep what a forgotten process did, so they do not go back while uvmd counts (docs/metrics.md names the one exception).
//! A series for every access type, direction and cause is there from the first sight of its GPU, with 0, so that `rate()` sees the first increase.

use model::{Access, Cause, Counters, Direction, GpuKey, Snapshot, SourceState};

use crate::{Node, gpus};

/// How a metric's value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only up, until uvmd restarts.
    Counter,
    /// Up and down.
    Gauge,
}

/// One label.
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

/// One metric.
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static Label],
    pub(super) help: &'static str,
    pub(super) samples: fn(&Node, &Snapshot) -> Vec<Sample>,
}

/// One series' value, with its label values in the order of the definition's labels.
pub(super) struct Sample {
    pub(super) labels: Vec<String>,
    pub(super) value: f64,
}

const GPU: Label = Label {
    name: "gpu",
    help: "The number, from 1, that the UVM driver gave the GPU when uvmd first saw it. It is not nvidia-smi's index, and two GPUs may have had \
           the same: sum and join on `UUID`.",
};
const UUID: Label = Label {
    name: "UUID",
    help: "The GPU's UUID, written as DCGM's exporter does. `unknown`, with an empty `gpu`: what was counted on GPUs that uvmd could not \
           learn the UUID of, because a process used them too briefly or the driver's procfs could not be read.",
};
const HOSTNAME: Label = Label { name: "hostname", help: "The node." };
const GPU_ACCESS: Label = Label {
    name: "access",
    help: "`prefetch` (a GPU prefetch instruction), `read`, `write`, `atomic_weak`, `atomic_strong`.",
};
const CPU_ACCESS: Label = Label { name: "access", help: "`read`, `write`." };
const DIRECTION: Label = Label {
    name: "direction",
    help: "`htod` (host to GPU), `dtoh` (GPU to host), `dtod` (from another GPU; counted at the one that receives).",
};
const CAUSE: Label = Label {
    name: "cause",
    help: "`fault`, `tree_prefetch` (the driver's own prefetcher around a fault), `eviction`, `api` (prefetch and advice calls), `tool` (the same, asked by another process: uvmd itself, a profiler), \
           `access_counter`, `other`.",
};
const REASON: Label = Label {
    name: "reason",
    help: "Why, and so what is counted: see [below](#reasons). Every reason is always present.",
};
const PROBE: Label = Label { name: "probe", help: "The driver function probed." };
const VERSION: Label = Label { name: "version", help: "uvmd's version." };
const BACKEND: Label = Label { name: "backend", help: "The source of events: `ebpf`." };
const DRIVER: Label = Label { name: "driver", help: "The driver's version; empty while there is none." };
const LAYOUT: Label =
    Label { name: "layout", help: "The family of driver struct layouts in use; empty while there is none." };

/// All metrics, in the order they are shown.
pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_gpu_faults_total",
        kind: Kind::Counter,
        labels: &[&GPU, &UUID, &HOSTNAME, &GPU_ACCESS],
        help: "GPU page faults that the UVM driver handled, after it merged equal faults of a batch: on managed memory, and under HMM or ATS \
               on any other; fatal ones too.",
        samples: |node, snapshot| {
            each_gpu(node, snapshot, |gpu, counters| {
                Access::ALL.map(|access| gpu.sample([access.name()], counters.fault_entries[access])).into()
            })
        },
    },
    Definition {
        name: "uvm_gpu_fault_instances_total",
        kind: Kind::Counter,
        labels: &[&GPU, &UUID, &HOSTNAME, &GPU_ACCESS],
        help: "The same GPU page faults as the hardware reported them, before merging.",
        samples: |node, snapshot| {
            each_gpu(node, snapshot, |gpu, counters| {
                Access::ALL.map(|access| gpu.sample([access.name()], counters.fault_instances[access])).into()
            })
        },
    },
    Definition {
        name: "uvm_cpu_faults_total",
        kind: Kind::Counter,
        labels: &[&HOSTNAME, &CPU_ACCESS],
        help: "CPU page faults that the UVM driver handled: on managed memory, and under HMM on any other that a GPU holds.",
        samples: |node, snapshot| {
            let host = &snapshot.host_totals;
            [(Access::Read, host.cpu_read_faults), (Access::Write, host.cpu_write_faults)]
                .map(|(access, faults)| Sample::new([&node.hostname, access.name()], faults as f64))
                .into()
        },
    },
    Definition {
        name: "uvm_migrated_bytes_total",
        kind: Kind::Counter,
        labels: &[&GPU, &UUID, &HOSTNAME, &DIRECTION, &CAUSE],
        help: "Bytes that the UVM driver copied to or from the GPU to migrate memory. First touches of new memory copy nothing and are not in here.",
        samples: |node, snapshot| {
            each_gpu(node, snapshot, |gpu, counters| {
                let sample = |direction: Direction, cause: Cause| {
                    gpu.sample([direction.name(), cause.name()], counters.bytes(direction)[cause])
                };
                Direction::ALL.iter().flat_map(|direction| Cause::ALL.map(|cause| sample(*direction, cause))).collect()
            })
        },
    },
    Definition {
        name: "uvmd_up",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while uvmd counts; 0 while it waits for the driver or refuses it, as /readyz and /api/v1/status explain.",
        samples: |_, snapshot| {
            let counting = matches!(snapshot.source.state, SourceState::Counting { .. });
            vec![Sample::new([], f64::from(u8::from(counting)))]
        },
    },
    Definition {
        name: "uvmd_build_info",
        kind: Kind::Gauge,
        labels: &[&VERSION],
        help: "Always 1; the labels tell which uvmd this is.",
        samples: |node, _| vec![Sample::new([node.version], 1.0)],
    },
    Definition {
        name: "uvmd_backend_info",
        kind: Kind::Gauge,
        labels: &[&BACKEND, &DRIVER, &LAYOUT],
        help: "Always 1; the labels tell what is watched, and how.",
        samples: |_, snapshot| {
            let source = &snapshot.source;
            let (version, layout) = source
                .driver
                .as_ref()
                .map_or(("", ""), |driver| (driver.version.as_str(), driver.layout.as_deref().unwrap_or_default()));
            vec![Sample::new([source.backend, version, layout], 1.0)]
        },
    },
    Definition {
        name: "uvmd_events_dropped_total",
        kind: Kind::Counter,
        labels: &[&REASON],
        help: "What was not counted, by reason; most are driver events. While this grows, the uvm_ metrics are lower bounds.",
        samples: |_, snapshot| {
            let dropped = &snapshot.source.dropped_events;
            dropped.iter().map(|(reason, events)| Sample::new([*reason], *events as f64)).collect()
        },
    },
    Definition {
        name: "uvmd_probe_hits_total",
        kind: Kind::Counter,
        labels: &[&PROBE],
        help: "How often a probe ran.",
        samples: |_, snapshot| {
            let probes = &snapshot.source.probes;
            probes.iter().map(|probe| Sample::new([&probe.name], probe.hits as f64)).collect()
        },
    },
    Definition {
        name: "uvmd_probe_run_seconds_total",
        kind: Kind::Counter,
        labels: &[&PROBE],
        help: "Time spent in a probe: what watching costs. Present where the kernel measures it (kernel.bpf_stats_enabled=1).",
        samples: |_, snapshot| {
            let timed = snapshot.source.probes.iter().filter_map(|probe| Some((probe, probe.run_time?)));
            timed.map(|(probe, time)| Sample::new([&probe.name], time.as_secs_f64())).collect()
        },
    },
];

/// The samples of every GPU seen, whether or not anything was counted there yet, and of those not known, as one.
fn each_gpu(node: &Node, snapshot: &Snapshot, samples: impl Fn(&GpuLabels, &Counters) -> Vec<Sample>) -> Vec<Sample> {
    let gpus = gpus::totals(snapshot);
    let mut all = Vec::new();
    let mut add = |id: Option<u32>, uuid: String, total: &Counters| {
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        all.extend(samples(&GpuLabels([id, uuid, node.hostname.clone()]), total));
    };
    for gpu in &gpus {
        if let Some(uuid) = gpus::uuid(gpu.key) {
            add(gpu.first_id, uuid, &gpu.total);
        }
    }
    // What is pending will be in one or the other; shown before, it would have to be taken back, and a counter cannot be.
    let unknown = snapshot.gpu_totals.iter().filter(|(key, _)| matches!(key, GpuKey::Unknown(_)));
    if !gpus.is_empty() {
        add(None, UNKNOWN_UUID.to_owned(), &unknown.map(|(_, total)| total).sum());
    }
    all
}

/// Stands for the UUIDs of GPUs that it was never learned of.
const UNKNOWN_UUID: &str = "unknown";

/// The values of the labels that every metric of a GPU begins with.
struct GpuLabels([String; 3]);

impl GpuLabels {
    fn sample<const N: usize>(&self, more: [&str; N], value: u64) -> Sample {
        let labels = self.0.iter().cloned().chain(more.map(str::to_owned)).collect();
        Sample { labels, value: value as f64 }
    }
}

impl Sample {
    fn new<const N: usize>(labels: [&str; N], value: f64) -> Self {
        Self { labels: labels.map(str::to_owned).into(), value }
    }
}
