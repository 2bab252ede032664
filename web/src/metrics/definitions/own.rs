//! Metrics of uvmd's resources, with the names that every Prometheus client library uses.

use crate::metrics::{
    definition::{Definition, Sample, Samples},
    figures::Figures,
    own::Own,
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "process_cpu_seconds_total",
        labels: &[],
        help: "CPU time of uvmd, user and system. The time of its probes in other processes is in uvmd_probe_run_seconds_total.",
        samples: Samples::Counter(|figures| own(figures, |own| Some(own.cpu_seconds))),
    },
    Definition {
        name: "process_resident_memory_bytes",
        labels: &[],
        help: "Memory of uvmd that is in RAM.",
        samples: Samples::Gauge(|figures| own(figures, |own| Some(own.resident_bytes as f64))),
    },
    Definition {
        name: "process_virtual_memory_bytes",
        labels: &[],
        help: "Memory that uvmd has mapped.",
        samples: Samples::Gauge(|figures| own(figures, |own| Some(own.virtual_bytes as f64))),
    },
    Definition {
        name: "process_threads",
        labels: &[],
        help: "Threads of uvmd.",
        samples: Samples::Gauge(|figures| own(figures, |own| Some(own.threads as f64))),
    },
    Definition {
        name: "process_open_fds",
        labels: &[],
        help: "Files that uvmd has open.",
        samples: Samples::Gauge(|figures| own(figures, |own| Some(own.open_fds as f64))),
    },
    Definition {
        name: "process_max_fds",
        labels: &[],
        help: "Maximum number of open files. Absent without a limit.",
        samples: Samples::Gauge(|figures| own(figures, |own| own.max_fds.map(|max| max as f64))),
    },
    Definition {
        name: "process_start_time_seconds",
        labels: &[],
        help: "Start time of uvmd, in seconds since 1970.",
        samples: Samples::Gauge(|figures| own(figures, |own| own.started_seconds)),
    },
];

fn own(figures: &Figures<'_>, value: impl Fn(&Own) -> Option<f64>) -> Vec<Sample> {
    figures.own.as_ref().and_then(value).map(|value| Sample::new([], value)).into_iter().collect()
}
