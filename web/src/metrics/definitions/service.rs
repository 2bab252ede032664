//! What is told about uvmd itself.

use std::sync::atomic::Ordering;

use model::{RecordFigures, SourceState};

use crate::metrics::{
    definition::{Definition, Sample, Samples},
    labels::{BACKEND, DRIVER, LAYOUT, LOSS, PROBE, REASON, VERSION},
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvmd_up",
        labels: &[],
        help: "1 while uvmd counts; 0 while it waits for the driver or refuses it, as /readyz and /api/v1/status explain.",
        samples: Samples::Gauge(|figures| {
            let counting = matches!(figures.snapshot.source.state, SourceState::Counting { .. });
            vec![Sample::new([], f64::from(u8::from(counting)))]
        }),
    },
    Definition {
        name: "uvmd_build_info",
        labels: &[&VERSION],
        help: "Always 1; the labels tell which uvmd this is.",
        samples: Samples::Gauge(|figures| vec![Sample::new([figures.node.version], 1.0)]),
    },
    Definition {
        name: "uvmd_backend_info",
        labels: &[&BACKEND, &DRIVER, &LAYOUT],
        help: "Always 1; the labels tell what is watched, and how.",
        samples: Samples::Gauge(|figures| {
            let source = &figures.snapshot.source;
            let (version, layout) = source
                .driver
                .as_ref()
                .map_or(("", ""), |driver| (driver.version.as_str(), driver.layout.as_deref().unwrap_or_default()));
            vec![Sample::new([source.backend, version, layout], 1.0)]
        }),
    },
    Definition {
        name: "uvmd_events_dropped_total",
        labels: &[&REASON],
        help: "What was not counted, by reason; most are driver events. While this grows, the uvm_ metrics are lower bounds.",
        samples: Samples::Counter(|figures| {
            let dropped = &figures.snapshot.source.dropped_events;
            dropped.iter().map(|(reason, events)| Sample::new([*reason], *events as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_auth_failures_total",
        labels: &[],
        help: "Requests with a token that is wrong. While this grows, somebody is misconfigured, or guesses.",
        samples: Samples::Counter(|figures| vec![Sample::new([], figures.node.access.failures() as f64)]),
    },
    Definition {
        name: "uvmd_log_lines_dropped_total",
        labels: &[],
        help: "Lines of uvmd's own log that could not be written, as on a full disk. Nothing else suffers.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.node.log_lines_dropped.load(Ordering::Relaxed) as f64)]
        }),
    },
    Definition {
        name: "uvmd_block_records_total",
        labels: &[],
        help: "Records of single 2 MiB blocks that the probes wrote. /api/v1/processes/{pid} is made of them, and no metric.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.snapshot.source.block_records.written as f64)]
        }),
    },
    Definition {
        name: "uvmd_block_records_lost_total",
        labels: &[&LOSS],
        help: "Block records that there are not. While this grows, the counts of blocks are lower bounds, and nothing else.",
        samples: Samples::Counter(|figures| {
            let RecordFigures { sampled_out, dropped, .. } = figures.snapshot.source.block_records;
            vec![Sample::new(["sampled_out"], sampled_out as f64), Sample::new(["dropped"], dropped as f64)]
        }),
    },
    Definition {
        name: "uvmd_processes_left_out",
        labels: &[],
        help: "Running processes that have counts and no series of their own, because as many as were asked for have. Only on request.",
        samples: Samples::Gauge(|figures| {
            figures.left_out.map(|processes| Sample::new([], processes as f64)).into_iter().collect()
        }),
    },
    Definition {
        name: "uvmd_probe_hits_total",
        labels: &[&PROBE],
        help: "How often a probe ran.",
        samples: Samples::Counter(|figures| {
            let probes = &figures.snapshot.source.probes;
            probes.iter().map(|probe| Sample::new([&probe.name], probe.hits as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_probe_run_seconds_total",
        labels: &[&PROBE],
        help: "Time spent in a probe: what watching costs. Present where the kernel measures it (kernel.bpf_stats_enabled=1).",
        samples: Samples::Counter(|figures| {
            let timed = figures.snapshot.source.probes.iter().filter_map(|probe| Some((probe, probe.run_time?)));
            timed.map(|(probe, time)| Sample::new([&probe.name], time.as_secs_f64())).collect()
        }),
    },
];
