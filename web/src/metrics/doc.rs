//! docs/metrics.md, made of the definitions.

use std::fmt::Write;

use model::DropReason;

use super::definitions::{DEFINITIONS, Definition, Kind};

const INTRODUCTION: &str = "\
# Metrics

`GET /metrics` in the Prometheus text format. `uvm_` is what is measured of the driver, `uvmd_` is about uvmd itself.
This page is made of the code's own definitions: `UPDATE_DOCS=1 cargo test -p web --test http metrics_doc` writes it anew.

Counters start at 0 when uvmd starts and count what happens while it counts. They keep what ended processes did.
They go back in one case only: when the self-test finds that the driver's structures are not what its version says, what was counted for
processes that still use the driver is dropped, and `uvmd_up` is 0 from then on.
No label names a process: `/api/v1/processes` tells who did it ([api.md](api.md)).

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
    for definition in DEFINITIONS {
        section(&mut text, definition);
    }
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
    let kind = match definition.kind {
        Kind::Counter => "Counter",
        Kind::Gauge => "Gauge",
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
}
