//! Generator of docs/metrics.md from the definitions.

use std::fmt::Write;

use model::DropReason;

use crate::markdown::paragraph;

use super::{
    definition::{Definition, Samples},
    definitions,
    labels::{CGROUP, GPU, HOSTNAME, Label, PID, PROCESS, UUID, owner_labels},
};

/// Labels of many metrics, in the order of the document.
const COMMON: &[&Label] = owner_labels!([HOSTNAME, GPU, UUID], [PID, PROCESS, CGROUP]);

const INTRODUCTION: &str = "\
# Metrics

`GET /metrics` in the Prometheus text format. Metrics of the driver begin with `uvm_`, those of uvmd
itself with `uvmd_` or `process_`. This page is generated from the definitions in the code by
`UPDATE_DOCS=1 cargo test -p web --test http metrics_doc`.

Counters start at 0 when uvmd starts. They include the counts of exited processes. They decrease in
one case: if the self-test finds that the driver's structures are not those of its version, uvmd
drops the counts of processes that still use the driver, and `uvmd_state{state=\"refused\"}` is 1 from
then on.

A counter of a known GPU is 0 from the first sight of that GPU. Metrics of a GPU are absent, not 0,
if the driver lacks the function that is probed for them: `probes` in `/api/v1/status` names the
missing ones. The JSON API has `null` for populated and resident memory then, and 0 for the others.

No label names a process, unless [enabled](#processes): `/api/v1/processes` lists them
([api.md](api.md)). Counts outlive processes by their [owners](#owners).

## Common labels

Labels with one meaning on all metrics. Each metric below lists its labels, and describes the others.
";

const OWNERS: &str = "\
## Owners

The metrics whose names begin with `uvm_owner_`, and `uvm_thrashing`, name pods, Slurm jobs,
containers and systemd units, from the cgroups of processes. A process counts to its pod, else to its
job, else to its container, else to its unit. Its counts stay there after its exit, so that `rate()`
covers the last seconds of a short job too. An owner has series from its first process on until it is
idle. The number of owners is bounded: further ones count to `owner_kind=\"other\"`, as do processes
without a known owner. `/api/v1/owners` lists the owners.

Pairs of owners in `uvm_owner_pair_evicted_bytes_total` and `uvm_owner_pair_evicted_chunks_total`
are bounded too (`collector.max_eviction_pairs` in the [configuration](configuration.md)): the
largest have series, and the rest is in `victim_kind=\"other\", evictor_kind=\"other\"`. So sums by GPU
and cause are exact, and those by victim or evictor are lower bounds if such a series exists.
`uvm_owner_evicted_bytes_total` and `uvm_owner_induced_eviction_bytes_total` include all pairs.

With [uvmd-fleet](fleet.md), series of pods have `namespace`, `pod` and `container`. Without it, and
for names of jobs, join with other exporters:

```promql
# Thrashing pods, by name, with kube-state-metrics
max by (pod_uid, verdict) (uvm_thrashing == 1)
  * on (pod_uid) group_left (namespace, pod)
  max by (pod_uid, namespace, pod) (label_replace(kube_pod_info, \"pod_uid\", \"$1\", \"uid\", \"(.*)\"))
```

";

const PROCESSES: &str = "\
## Processes

The metrics whose names begin with `uvm_process_` exist only if `metrics.per_process` in the
[configuration](configuration.md) is true, and for at most `metrics.max_processes` processes: each
process is a new set of series in the database. They are additional: the other metrics count every
process, with or without these.

The processes with most faults and migrated bytes since uvmd counts have series. A process keeps
them while it runs, and after its exit until it is forgotten or another process needs its place.
`uvmd_processes_omitted` is the number of running processes without series.
";

const REASONS: &str = "\
## Reasons

The values of `reason` in `uvmd_events_dropped_total`, and the names in `dropped_events_by_reason`
of `/api/v1/status`.

| reason | what is counted |
| --- | --- |
";

const QUERIES: &str = "\
## Queries to start from

```promql
# GPU faults a second, by GPU
sum by (hostname, UUID) (rate(uvm_gpu_faults_total[1m]))

# Bytes a second from host to GPU
sum by (hostname, UUID) (rate(uvm_migrated_bytes_total{direction=\"htod\"}[1m]))

# Bytes a second evicted to the host to free memory of a GPU
sum by (hostname, UUID) (rate(uvm_migrated_bytes_total{direction=\"dtoh\", cause=\"eviction\"}[1m]))

# Evicted bytes per fetched byte: near 1, more memory is in use than the GPU holds
sum by (UUID) (rate(uvm_migrated_bytes_total{direction=\"dtoh\", cause=\"eviction\"}[5m]))
  / sum by (UUID) (rate(uvm_migrated_bytes_total{direction=\"htod\"}[5m]))

# Service time of fault batches in seconds, 99th percentile
histogram_quantile(0.99, sum by (UUID, le) (rate(uvm_fault_batch_duration_seconds_bucket[5m])))

# Mean faults of a batch: near 1, each fault costs a full pass through the driver
sum by (UUID) (rate(uvm_fault_batch_entries_sum[5m])) / sum by (UUID) (rate(uvm_fault_batch_entries_count[5m]))

# Refetched share of fetched bytes: the cost of thrashing
sum by (UUID) (rate(uvm_refetched_bytes_total[5m])) / sum by (UUID) (rate(uvm_fetched_bytes_total[5m]))

# Thrashing owners
uvm_thrashing == 1

# Share of the last hour for which an owner thrashed
sum without (verdict) (increase(uvm_owner_verdict_seconds_total{verdict!~\"streaming|first_touch_storm\"}[1h])) / 3600

# Evictions by victim and evictor, in bytes per second
topk(5, sum by (hostname, victim_kind, victim, evictor_kind, evictor) (rate(uvm_owner_pair_evicted_bytes_total[5m])))

# Oversubscribed GPUs, and their memory's share with managed memory
uvm_oversubscription_ratio > 1
uvm_resident_bytes / uvm_gpu_memory_bytes

# Cost of uvmd: CPUs, CPUs in its probes, and memory
rate(process_cpu_seconds_total[5m])
sum by (instance) (rate(uvmd_probe_run_seconds_total[5m]))
process_resident_memory_bytes

# Share of time in throttles by the driver; several at once add up
sum by (hostname) (rate(uvm_throttled_seconds_total[5m]))

# With per-process metrics: evictors and victims, in bytes per second
topk(5, sum by (hostname, pid, process) (rate(uvm_process_induced_eviction_bytes_total[5m])))
topk(5, sum by (hostname, pid, process) (rate(uvm_process_evicted_bytes_total[5m])))

# uvmd runs, but does not count
uvmd_state{state=\"counting\"} == 0

# Faults a second of GPUs that DCGM's exporter finds busy
sum by (UUID) (rate(uvm_gpu_faults_total[1m])) and on (UUID) DCGM_FI_DEV_GPU_UTIL > 50

# Figures are lower bounds
sum by (instance) (increase(uvmd_events_dropped_total[5m])) > 0
```
";

/// Text of docs/metrics.md.
#[must_use]
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    table(&mut text, COMMON);
    for definition in definitions::all() {
        section(&mut text, definition);
    }
    text.push_str(OWNERS);
    text.push_str(PROCESSES);
    text.push_str(REASONS);
    for reason in DropReason::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {} |", reason.name(), reason.counts());
    }
    text.push('\n');
    text.push_str(QUERIES);
    text
}

fn table(text: &mut String, labels: &[&Label]) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| label | meaning |\n| --- | --- |");
    for label in labels {
        let _ = writeln!(text, "| `{}` | {} |", label.name, label.help);
    }
    text.push('\n');
}

/// Whether a label is one of [`COMMON`], which are described once.
fn is_common(label: &Label) -> bool {
    COMMON.iter().any(|common| std::ptr::eq(*common, label))
}

fn section(text: &mut String, definition: &Definition) {
    let kind = match definition.samples {
        Samples::Counter(_) | Samples::Count(_) => "Counter",
        Samples::Gauge(_) => "Gauge",
        Samples::Histogram(..) => "Histogram",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "## `{}`\n\n{}\n", definition.name, paragraph(&format!("{kind}. {}", definition.help)));
    let names: Vec<_> = [&HOSTNAME].into_iter().chain(definition.labels.iter().copied()).collect();
    let list: Vec<_> = names.iter().map(|label| format!("`{}`", label.name)).collect();
    let _ = writeln!(text, "{}\n", paragraph(&format!("Labels: {}.", list.join(", "))));
    let own: Vec<_> = names.into_iter().filter(|label| !is_common(label)).collect();
    if !own.is_empty() {
        table(text, &own);
    }
    if let Samples::Histogram(buckets, _) = definition.samples {
        let bounds: Vec<_> = buckets.bounds.iter().map(|bound| buckets.scaled(*bound).to_string()).collect();
        let _ = writeln!(
            text,
            "{}\n",
            paragraph(&format!("Buckets up to {}, and one without a bound.", bounds.join(", ")))
        );
    }
}
