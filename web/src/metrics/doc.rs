//! docs/metrics.md, made of the definitions.

use std::fmt::Write;

use model::DropReason;

use super::{
    definition::{Definition, Samples},
    definitions,
};

const INTRODUCTION: &str = "\
# Metrics

`GET /metrics` in the Prometheus text format. `uvm_` is what is measured of the driver, `uvmd_` and `process_` are about uvmd itself.
This page is made of the code's own definitions: `UPDATE_DOCS=1 cargo test -p web --test http metrics_doc` writes it anew.

Counters start at 0 when uvmd starts and count what happens while it counts. They keep what ended processes did.
They go back in one case only: when the self-test finds that the driver's structures are not what its version says, what was counted for
processes that still use the driver is dropped, and `uvmd_up` is 0 from then on.
No label names a process, unless [asked for](#processes): `/api/v1/processes` tells who did it ([api.md](api.md)). What outlives processes are
their [owners](#owners).

";

const OWNERS: &str = "\
## Owners

The metrics whose names begin with `uvm_owner_`, and `uvm_thrashing` and `uvm_evicted_bytes_total`, name pods, Slurm jobs, containers and systemd units,
as processes' cgroups tell them. A process counts to the pod that it is in, else to the job, else to the container, else to the unit; its counts stay
there after its end, so that `rate()` is right for the last seconds of a short job too. An owner has series from its first
process on until it is idle; their number is bounded, and who finds no room counts to `owner_kind=\"other\"`, with processes of which nothing is known.
`/api/v1/owners` lists them.

Pairs of owners in `uvm_evicted_bytes_total` and `uvm_evicted_chunks_total` are bounded too (`collector.max_eviction_pairs` in the
[configuration](configuration.md)): of those that come at once the largest find room, the rest is summed up in `victim_kind=\"other\",
evictor_kind=\"other\"`, so that sums by GPU and cause are right, and those by victim or evictor lower bounds where there is such a series.
`uvm_owner_evicted_bytes_total` and `uvm_owner_induced_eviction_bytes_total` have everything.

Names of pods and jobs are not known on the node; others' metrics tell them:

```promql
# Thrashing pods, by name, with kube-state-metrics
max by (pod_uid, kind) (uvm_thrashing) == 1
  and on (pod_uid) label_replace(kube_pod_info, \"pod_uid\", \"$1\", \"uid\", \"(.*)\")
```

";

const PROCESSES: &str = "\
## Processes

The metrics whose names begin with `uvm_process_` are there only if `metrics.per_process` in the [configuration](configuration.md) is true, and for
at most `metrics.max_processes` processes: each process is a new set of series in the database. They come on top: the other metrics count every
process, with or without these.

Room goes to those that faulted on or moved most memory since uvmd counts. Who has series keeps them for as long as it runs, whatever others do; after its
end until it is forgotten, or until another needs the room. `uvmd_processes_omitted` says how many running ones have none.

";

const REASONS: &str = "\
## Reasons

The values of `reason` in `uvmd_events_dropped_total`, and the names in `dropped_events_by_reason` of `/api/v1/status`.

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

# Bytes a second evicted to the host because a GPU's memory was needed for something else
sum by (hostname, UUID) (rate(uvm_migrated_bytes_total{direction=\"dtoh\", cause=\"eviction\"}[1m]))

# Of the bytes that come to the GPU, the share that goes back by eviction: near 1 means that more is in use than fits
sum by (UUID) (rate(uvm_migrated_bytes_total{direction=\"dtoh\", cause=\"eviction\"}[5m]))
  / sum by (UUID) (rate(uvm_migrated_bytes_total{direction=\"htod\"}[5m]))

# Service time of fault batches, of 99 in 100 not more than this many seconds
histogram_quantile(0.99, sum by (UUID, le) (rate(uvm_fault_batch_duration_seconds_bucket[5m])))

# Faults that a batch holds on average: near 1, each fault costs a whole round through the driver
sum by (UUID) (rate(uvm_fault_batch_entries_sum[5m])) / sum by (UUID) (rate(uvm_fault_batch_entries_count[5m]))

# Of the bytes that come to the GPU, the share that had been there before: what thrashing costs
sum by (UUID) (rate(uvm_refetched_bytes_total[5m])) / sum by (UUID) (rate(uvm_fetched_bytes_total[5m]))

# Who thrashes
uvm_thrashing == 1

# Who pushes whose memory out, in bytes a second
topk(5, sum by (hostname, victim_kind, victim, evictor_kind, evictor) (rate(uvm_evicted_bytes_total[5m])))

# GPUs on which more memory is managed than they have, and how much of it is there
uvm_oversubscription_ratio > 1
uvm_resident_bytes / uvm_gpu_memory_bytes

# What uvmd costs: CPUs, its probes' share of that of others, and memory
rate(process_cpu_seconds_total[5m])
sum by (instance) (rate(uvmd_probe_run_seconds_total[5m]))
process_resident_memory_bytes

# Share of the time that the driver holds a processor back from thrashing pages; several at once add up
sum by (hostname) (rate(uvm_throttled_seconds_total[5m]))

# On request: who pushes others' memory out, in bytes a second, and who loses it
topk(5, sum by (hostname, pid, process) (rate(uvm_process_induced_eviction_bytes_total[5m])))
topk(5, sum by (hostname, pid, process) (rate(uvm_process_evicted_bytes_total[5m])))

# uvmd runs and does not count
uvmd_up == 0

# Figures are lower bounds
sum by (instance) (increase(uvmd_events_dropped_total[5m])) > 0
```
";

/// The whole of docs/metrics.md.
#[must_use]
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
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

fn section(text: &mut String, definition: &Definition) {
    let kind = match definition.samples {
        Samples::Counter(_) => "Counter",
        Samples::Gauge(_) => "Gauge",
        Samples::Histogram(..) => "Histogram",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "## `{}`\n\n{kind}. {}\n", definition.name, definition.help);
    if !definition.labels.is_empty() {
        let _ = writeln!(text, "| label | meaning |\n| --- | --- |");
        for label in definition.labels {
            let _ = writeln!(text, "| `{}` | {} |", label.name, label.help);
        }
        text.push('\n');
    }
    if let Samples::Histogram(buckets, _) = definition.samples {
        let bounds: Vec<_> = buckets.bounds.iter().map(|bound| buckets.scaled(*bound).to_string()).collect();
        let _ = writeln!(text, "Buckets up to {}, and one without a bound.\n", bounds.join(", "));
    }
}
