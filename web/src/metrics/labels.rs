//! All labels, with their description in docs/metrics.md.

/// Name and description of a label.
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

pub(super) static GPU: Label = Label {
    name: "gpu",
    help: "NVML's index of the GPU, from 0, as nvidia-smi and DCGM's exporter show it; empty while NVML does not report it. Join on `UUID`.",
};
pub(super) static UUID: Label = Label {
    name: "UUID",
    help: "The GPU's UUID, written as DCGM's exporter does. `unknown`, with an empty `gpu`: counts of GPUs whose UUID uvmd could not \
           read, because a process used them too briefly or the driver's procfs could not be read.",
};
pub(super) static PROCESSOR_UUID: Label = Label {
    name: "UUID",
    help: "The GPU's UUID, or `unknown`, as for the metrics above. `cpu`, with an empty `gpu`: counts of a CPU, or of no single processor.",
};
/// Name of the node. Every metric has this label, so no definition lists it.
pub(super) static HOSTNAME: Label =
    Label { name: "hostname", help: "Name of the node: `hostname` in the configuration." };
pub(super) static OWNER_KIND: Label = Label {
    name: "owner_kind",
    help: "Kind of owner: `pod`, `job`, `container`, `unit`; or `other`, for owners beyond the limit and processes without a known owner. \
           Only the label of that kind is not empty.",
};
pub(super) static POD_UID: Label =
    Label { name: "pod_uid", help: "UID of the Kubernetes pod: DCGM's `pod_uid`, and `uid` of `kube_pod_info`." };
pub(super) static HPC_JOB: Label = Label { name: "hpc_job", help: "Slurm job, as DCGM's exporter calls it." };
pub(super) static CONTAINER_ID: Label = Label { name: "container_id", help: "Id of a container that is in no pod." };
pub(super) static UNIT: Label = Label { name: "unit", help: "systemd unit." };
pub(super) static NAMESPACE: Label = Label {
    name: "namespace",
    help: "Namespace of the Kubernetes pod, as DCGM's exporter calls it; empty where the pod's names are not known ([fleet](fleet.md)).",
};
pub(super) static POD: Label = Label { name: "pod", help: "Name of the Kubernetes pod; empty likewise." };
pub(super) static CONTAINER: Label =
    Label { name: "container", help: "Name of the pod's only container; empty for a pod with several." };
pub(super) static WORKLOAD: Label =
    Label { name: "workload", help: "Controller of the pod, such as `Deployment/llm`; empty without one." };
pub(super) static VERDICT: Label = Label {
    name: "verdict",
    help: "Kind of the [verdict](verdicts.md): `capacity_thrash` (evicted memory is fetched again), `ping_pong` (memory goes back and forth between \
           CPU and GPU), `driver_throttling` (the driver throttles access to such pages), and, for the seconds alone, `streaming` and `first_touch_storm`.",
};
pub(super) static VICTIM_KIND: Label = Label {
    name: "victim_kind",
    help: "Kind of the owner whose memory was evicted, as `owner_kind`; `unknown` where the probes cannot attribute it.",
};
pub(super) static VICTIM: Label =
    Label { name: "victim", help: "Identifier of that pod, job, container or unit; empty for `other` and `unknown`." };
pub(super) static EVICTOR_KIND: Label =
    Label { name: "evictor_kind", help: "Kind of the owner that needed the memory, likewise." };
pub(super) static EVICTOR: Label = Label { name: "evictor", help: "Identifier of that owner, likewise." };
pub(super) static EVICTION_CAUSE: Label = Label {
    name: "cause",
    help: "Cause of the eviction: `fault` (a GPU fault), `api` (a migration that the evictor requested), `tool` (a migration that another process requested \
           for it, such as uvmd), `device_allocation` (memory that is not managed), `other`.",
};
pub(super) static PID: Label = Label {
    name: "pid",
    help: "The process id in uvmd's pid namespace. Pids are reused: the series of one process ends before another's begins.",
};
pub(super) static PROCESS: Label =
    Label { name: "process", help: "The process's short name (comm), as it was when the series began." };
pub(super) static CGROUP: Label = Label {
    name: "cgroup",
    help: "The process's cgroup, as it was when the series began; it names the pod or the unit. Empty if not known.",
};
pub(super) static GPU_ACCESS: Label = Label {
    name: "access",
    help: "`prefetch` (a GPU prefetch instruction), `read`, `write`, `atomic_weak`, `atomic_strong`; or `unknown` alone, where the source does not count \
           access types.",
};
pub(super) static CPU_ACCESS: Label = Label {
    name: "access",
    help: "`read`, `write`; or `unknown` alone, where the source does not count access types.",
};
pub(super) static DIRECTION: Label = Label {
    name: "direction",
    help: "`htod` (host to GPU), `dtoh` (GPU to host), `dtod` (from another GPU; counted at the one that receives; absent where the source \
           does not count it).",
};
pub(super) static COPY_DIRECTION: Label =
    Label { name: "direction", help: "`htod` (host to GPU), `dtoh` (GPU to host)." };
pub(super) static CAUSE: Label = Label {
    name: "cause",
    help: "`fault`, `tree_prefetch` (the driver's own prefetcher around a fault), `eviction`, `api` (prefetch and advice calls), \
           `tool` (such calls by another process: uvmd itself, a profiler), `access_counter`, `other`. `other` alone, with all bytes, where the source does not count causes.",
};
pub(super) static REMOTE_CAUSE: Label = Label {
    name: "cause",
    help: "`coherence` (the memory must stay where it is), `thrashing` (the driver pinned a thrashing page), `policy` (the \
           application's advice), `out_of_memory`, `eviction` (evicted, but still mapped), `other`.",
};
pub(super) static CALL: Label = Label {
    name: "call",
    help: "The driver's call that `cudaMemPrefetchAsync` and `cudaMemAdvise` end in: `prefetch`, `set_preferred_location`, \
           `unset_preferred_location`, `set_accessed_by`, `unset_accessed_by`, `enable_read_duplication`, `disable_read_duplication`, `discard`.",
};
pub(super) static REASON: Label =
    Label { name: "reason", help: "Reason of the drop: see [below](#reasons). Every reason is always present." };
pub(super) static STATE: Label = Label {
    name: "state",
    help: "`waiting` (for the driver or another prerequisite), `refused` (the driver is not supported, or not as its version promises), `counting`.",
};
pub(super) static DEGRADED_REASON: Label = Label {
    name: "reason",
    help: "`quota_reached` (a process or user reached its quota of entries in the kernel's maps), `registration_rate` (VA spaces are created too fast for uvmd to \
           distinguish them), `owner_quota_reached` (a user reached its quota of listed owners), `residency_unavailable` (populated and resident \
           memory cannot be counted on this driver), `source_reduced` (counts come from the driver's tools, which count less than probes), \
           `tools_quota` (a process or user reached its quota of VA spaces with trackers), `holder_hangs` (the process that holds a user's trackers hung), \
           `queue_full` (records of a process came faster than they were read), `attached_late` (a process may have used the driver for more than half a second before it was counted), \
           `sources_disagree` (the probes counted other numbers than the driver's own counters), \
           `cgroup_namespace` (uvmd is in a cgroup namespace of its own, so that owners may be wrong).",
};
pub(super) static FIGURE: Label = Label {
    name: "figure",
    help: "`fault_entries` (GPU faults), `cpu_faults`, `bytes_htod`, `bytes_dtoh` (bytes from host to GPU and back).",
};
pub(super) static COMPARISON_RESULT: Label = Label {
    name: "result",
    help: "`agreed`, `disagreed`, `inconclusive` (the probes dropped events meanwhile, or a deviation is new). Each is always present.",
};
pub(super) static RESOURCE: Label = Label {
    name: "resource",
    help: "`va_spaces`, `processes` (with VA spaces), `counts`, `distributions`, `evictor_pairs`, `evictions` (of unknown evictors), `calls` (threads \
           inside the driver), `users`, `cpu_fault_sites`.",
};
pub(super) static UID: Label =
    Label { name: "uid", help: "Real user id; empty for users with refusals beyond the first 16." };
pub(super) static RECORD_DROP_REASON: Label = Label {
    name: "reason",
    help: "`sampled_out` (omitted by sampling, as too many came at once), `dropped` (the ring buffer was full).",
};
pub(super) static PROBE: Label = Label { name: "probe", help: "The driver function probed." };
pub(super) static WARNING: Label = Label {
    name: "warning",
    help: "`tcp_unavailable` (`listen` is unavailable, and is retried), `metrics_listener_unavailable` (so is `metrics.listen`), `state_unavailable` (`policy.state_dir` cannot be used), \
           `audit_unavailable` (the audit log cannot be written), `configuration_not_reloaded` (it was invalid at the last SIGHUP), `owner_names_unavailable` (the file of `owners.names` is missing, malformed or outdated). Each is always present.",
};
pub(super) static VERSION: Label = Label { name: "version", help: "Version of uvmd." };
pub(super) static COMMIT: Label =
    Label { name: "commit", help: "Commit that uvmd was built from; `unknown` if the build had no commit." };
pub(super) static PCI_BUS_ID: Label =
    Label { name: "pci_bus_id", help: "PCI address, as the kernel writes it: `0000:17:00.0`. Empty if not known." };
pub(super) static MODEL_NAME: Label = Label { name: "modelName", help: "Product name. Empty if not known." };
pub(super) static DRIVER_VERSION: Label =
    Label { name: "driver_version", help: "Version of the driver; empty without a driver." };
pub(super) static BACKEND: Label = Label { name: "backend", help: "Source of events: `ebpf` or `tools`." };
pub(super) static DRIVER: Label = Label { name: "driver", help: "Version of the driver; empty without a driver." };
pub(super) static LAYOUT: Label =
    Label { name: "layout", help: "Family of driver structure layouts in use; empty without a driver." };
pub(super) static POLICY: Label =
    Label { name: "policy", help: "Name of the policy; empty for withdrawals of advice that a former run left." };
pub(super) static ACTION: Label = Label {
    name: "action",
    help: "`migrate_to_gpu`, `migrate_to_host`, `touch` (makes the driver evict a block later), `prefer_host`, `prefer_gpu`, `accessed_by`, `read_duplication`, and \
           the withdrawals of advice: `unset_preferred_location`, `unset_accessed_by`, `disable_read_duplication`.",
};
pub(super) static RESULT: Label = Label {
    name: "result",
    help: "`done`, `not_mapped` (no managed memory there), `replaced` (advice, by the program's own), `exited` (the process), `host_memory` (too little), `cancelled` (by the kill \
           switch, a rollback or a stop), `shadow` (not executed), `denied` (by uvmd, as for want of budget), `failed` (in the driver or the kernel).",
};
pub(super) static MIGRATION_DIRECTION: Label =
    Label { name: "direction", help: "`htod` (to the GPU), `dtoh` (to the host)." };
pub(super) static STAGE: Label = Label {
    name: "stage",
    help: "`denied` (by the guard), `shadow` (not executed), `trial` (in effect, not verified yet), `confirmed` (verified), `rolled_back` (did not help), \
           `ended` (its cause is over).",
};
pub(super) static ROUTE: Label = Label {
    name: "route",
    help: "Path of the API, with `{}` around variable parts: `/api/v1/processes/{pid}`. `unmatched`: all paths that are not served.",
};
pub(super) static CODE: Label = Label { name: "code", help: "Status code of the response." };
pub(super) static CLOSED: Label = Label {
    name: "reason",
    help: "`displaced` (another connection needed its place, and it had been idle longest, or was the first to get a response), `queue_full` (it waited for a place with too many \
           others), `write_timeout` (its peer accepted no byte for 10 s), `send_timeout` (its peer took more than a minute for one response), `memory_pressure` (its \
           peer accepted no byte while memory for responses was short), `head_timeout` (no request came in time), `expired` (it was 5 minutes old, and its last \
           request had not ended in time), `handshake_timeout` (the handshake of TLS did not end in time), \
           `stream_displaced` (all event streams were open, and another peer had fewer).",
};
pub(super) static REJECTED: Label = Label {
    name: "reason",
    help: "`build_queue` (64 other responses waited to be built, or the peer's share of them), `connections` (all places were taken for a quarter of a second), `response_memory` (responses to slow clients had all the memory for responses), \
           `recorded_calls` (the maximum of traces or of lists of calls was being made), \
           `event_streams` (the maximum of streams was open), `passwords` (the passwords of others were being verified).",
};
pub(super) static RESPONSE_KIND: Label =
    Label { name: "kind", help: "`api` or `metrics`, which have separate slots and memory." };

/// Labels of an owner, between others: a list in the order of
/// [`names`](super::figures::names).
macro_rules! owner_labels {
    ([$($before:ident),*], [$($after:ident),*]) => {
        &[
            $(&$before,)*
            &$crate::metrics::labels::OWNER_KIND,
            &$crate::metrics::labels::POD_UID,
            &$crate::metrics::labels::HPC_JOB,
            &$crate::metrics::labels::CONTAINER_ID,
            &$crate::metrics::labels::UNIT,
            &$crate::metrics::labels::NAMESPACE,
            &$crate::metrics::labels::POD,
            &$crate::metrics::labels::CONTAINER,
            $(&$after,)*
        ]
    };
}
pub(super) use owner_labels;
