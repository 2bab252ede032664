//! Every label, with what docs/metrics.md says of it.

/// One label.
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

pub(super) const GPU: Label = Label {
    name: "gpu",
    help: "The number, from 1, that the UVM driver gave the GPU when uvmd first saw it. It is not nvidia-smi's index, and two GPUs may have had \
           the same: sum and join on `UUID`.",
};
pub(super) const UUID: Label = Label {
    name: "UUID",
    help: "The GPU's UUID, written as DCGM's exporter does. `unknown`, with an empty `gpu`: what was counted on GPUs that uvmd could not \
           learn the UUID of, because a process used them too briefly or the driver's procfs could not be read.",
};
pub(super) const PROCESSOR_UUID: Label = Label {
    name: "UUID",
    help: "The GPU's UUID, or `unknown`, as for the metrics above. `cpu`, with an empty `gpu`: what concerns a CPU, or no processor alone.",
};
pub(super) const HOSTNAME: Label = Label { name: "hostname", help: "The node." };
pub(super) const PID: Label = Label {
    name: "pid",
    help: "The process id in uvmd's pid namespace. Pids are reused: the series of one process ends before another's begins.",
};
pub(super) const PROCESS: Label =
    Label { name: "process", help: "The process's short name (comm), as it was when the series began." };
pub(super) const CGROUP: Label = Label {
    name: "cgroup",
    help: "The process's cgroup, as it was when the series began; it names the pod or the unit. Empty if not known.",
};
pub(super) const GPU_ACCESS: Label = Label {
    name: "access",
    help: "`prefetch` (a GPU prefetch instruction), `read`, `write`, `atomic_weak`, `atomic_strong`.",
};
pub(super) const CPU_ACCESS: Label = Label { name: "access", help: "`read`, `write`." };
pub(super) const DIRECTION: Label = Label {
    name: "direction",
    help: "`htod` (host to GPU), `dtoh` (GPU to host), `dtod` (from another GPU; counted at the one that receives).",
};
pub(super) const CAUSE: Label = Label {
    name: "cause",
    help: "`fault`, `tree_prefetch` (the driver's own prefetcher around a fault), `eviction`, `api` (prefetch and advice calls), \
           `tool` (the same, asked by another process: uvmd itself, a profiler), `access_counter`, `other`.",
};
pub(super) const REMOTE_CAUSE: Label = Label {
    name: "cause",
    help: "`coherence` (the memory must stay where it is), `thrashing` (the driver pinned a page that went back and forth), `policy` (the \
           application's advice), `out_of_memory`, `eviction` (evicted, but still mapped), `other`.",
};
pub(super) const CALL: Label = Label {
    name: "call",
    help: "The driver's call that `cudaMemPrefetchAsync` and `cudaMemAdvise` end in: `prefetch`, `set_preferred_location`, \
           `unset_preferred_location`, `set_accessed_by`, `unset_accessed_by`, `enable_read_duplication`, `disable_read_duplication`, `discard`.",
};
pub(super) const REASON: Label = Label {
    name: "reason",
    help: "Why, and so what is counted: see [below](#reasons). Every reason is always present.",
};
pub(super) const LOSS: Label = Label {
    name: "reason",
    help: "`sampled_out` (too many came at once, so the probes left some out), `dropped` (there was no room).",
};
pub(super) const PROBE: Label = Label { name: "probe", help: "The driver function probed." };
pub(super) const VERSION: Label = Label { name: "version", help: "uvmd's version." };
pub(super) const BACKEND: Label = Label { name: "backend", help: "The source of events: `ebpf`." };
pub(super) const DRIVER: Label = Label { name: "driver", help: "The driver's version; empty while there is none." };
pub(super) const LAYOUT: Label =
    Label { name: "layout", help: "The family of driver struct layouts in use; empty while there is none." };
