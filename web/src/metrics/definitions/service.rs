//! Metrics of uvmd itself.

use std::{sync::atomic::Ordering, time::UNIX_EPOCH};

use model::{CheckedFigure, ComparisonResult, Crosschecks, DegradedReason, QuotaRefusals, RecordFigures, SourceState};

use crate::{
    Warning,
    metrics::{
        definition::{Definition, Sample, Samples},
        labels::{
            BACKEND, COMMIT, COMPARISON_RESULT, DEGRADED_REASON, DRIVER, FIGURE, LAYOUT, PROBE, REASON,
            RECORD_DROP_REASON, RESOURCE, STATE, UID, VERSION, WARNING,
        },
    },
};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvmd_state",
        labels: &[&STATE],
        help: "1 for the state of uvmd, 0 for the others. uvmd counts in the state `counting` only; /readyz and /api/v1/status explain the others.",
        samples: Samples::Gauge(|figures| {
            let state = figures.snapshot.source.state.name();
            SourceState::NAMES.map(|each| Sample::new([each], f64::from(u8::from(each == state)))).into()
        }),
    },
    Definition {
        name: "uvmd_last_reading_timestamp_seconds",
        labels: &[],
        help: "Time of the last reading of the kernel's maps, in seconds since 1970. Absent while uvmd does not count.",
        samples: Samples::Gauge(|figures| {
            let is_counting = matches!(figures.snapshot.source.state, SourceState::Counting { .. });
            let since = figures.snapshot.taken.duration_since(UNIX_EPOCH).ok().filter(|_| is_counting);
            since.map(|since| Sample::new([], since.as_secs_f64())).into_iter().collect()
        }),
    },
    Definition {
        name: "uvmd_degraded",
        labels: &[&DEGRADED_REASON],
        help: "1 while counts are incomplete for this reason, else 0. /readyz and /api/v1/status name the cause.",
        samples: Samples::Gauge(|figures| {
            let degraded = &figures.snapshot.source.degraded;
            let is = |reason| f64::from(u8::from(degraded.iter().any(|each| each.reason == reason)));
            DegradedReason::ALL.into_iter().map(|reason| Sample::new([reason.name()], is(reason))).collect()
        }),
    },
    Definition {
        name: "uvmd_quota_refusals_total",
        labels: &[&RESOURCE, &UID],
        help: "Entries of the kernel's maps refused to a user's processes, counted once for each quota that was reached. Only for users with refusals.",
        samples: Samples::Counter(|figures| refusals(&figures.snapshot.source.quota_refusals)),
    },
    Definition {
        name: "uvmd_build_info",
        labels: &[&VERSION, &COMMIT],
        help: "Always 1; the labels have the build.",
        samples: Samples::Gauge(|figures| vec![Sample::new([figures.node.version, figures.node.commit], 1.0)]),
    },
    Definition {
        name: "uvmd_backend_info",
        labels: &[&BACKEND, &DRIVER, &LAYOUT],
        help: "Always 1; the labels have the source of events, the driver and the layout.",
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
        help: "Events dropped, by reason; most are driver events. While this grows, the uvm_ metrics are lower bounds.",
        samples: Samples::Counter(|figures| {
            let dropped = &figures.snapshot.source.dropped_events;
            dropped.iter().map(|(reason, events)| Sample::new([*reason], *events as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_crosscheck_comparisons_total",
        labels: &[&FIGURE, &COMPARISON_RESULT],
        help: "Comparisons of what the probes counted of a process with what the driver itself counted. Only with `collector.crosscheck`.",
        samples: Samples::Counter(|figures| figures.snapshot.source.crosschecks.iter().flat_map(comparisons).collect()),
    },
    Definition {
        name: "uvmd_unjudged_windows_total",
        labels: &[],
        help: "Windows without a judgement: a late reading merged them into one, which shows no verdict. While this grows, uvmd gets too little processor time, and verdicts may be missing.",
        samples: Samples::Counter(|figures| vec![Sample::new([], figures.verdicts.unjudged_windows as f64)]),
    },
    Definition {
        name: "uvmd_auth_failures_total",
        labels: &[],
        help: "Requests with a wrong token, or with a wrong password where the metrics require one. While this grows, a client is misconfigured, or guesses.",
        samples: Samples::Counter(|figures| vec![Sample::new([], figures.node.access.failures() as f64)]),
    },
    Definition {
        name: "uvmd_log_lines_dropped_total",
        labels: &[],
        help: "Lines of uvmd's own log dropped, as on a full disk. Nothing else is affected.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.node.log_lines_dropped.load(Ordering::Relaxed) as f64)]
        }),
    },
    Definition {
        name: "uvmd_audit_lines_dropped_total",
        labels: &[],
        help: "Lines of the audit log dropped, as on a full disk. Changes that only reduce what uvmd does proceed without them.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.node.audit_lines_dropped.load(Ordering::Relaxed) as f64)]
        }),
    },
    Definition {
        name: "uvmd_warning_active",
        labels: &[&WARNING],
        help: "1 while this warning of `warnings` in /api/v1/status is active, else 0.",
        samples: Samples::Gauge(|figures| {
            let is_active = |warning| f64::from(u8::from(figures.node.warnings.is_active(warning)));
            Warning::ALL.map(|warning| Sample::new([warning.name()], is_active(warning))).into()
        }),
    },
    Definition {
        name: "uvmd_config_last_reload_successful",
        labels: &[],
        help: "1 if the last read of the configuration, at the start or on SIGHUP, succeeded; 0 if it failed, and an earlier configuration is in effect.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.node.reloads.is_successful())))]
        }),
    },
    Definition {
        name: "uvmd_config_last_reload_success_timestamp_seconds",
        labels: &[],
        help: "Time of the last successful read of the configuration, in seconds since 1970.",
        samples: Samples::Gauge(|figures| {
            let since = figures.node.reloads.succeeded_at().duration_since(UNIX_EPOCH).unwrap_or_default();
            vec![Sample::new([], since.as_secs_f64())]
        }),
    },
    Definition {
        name: "uvmd_config_hash",
        labels: &[],
        help: "Hash of the configuration in effect: the first 48 bits of `configuration.etag` in /api/v1/status. Equal on nodes with equal configurations.",
        samples: Samples::Gauge(|figures| vec![Sample::new([], figures.node.reloads.hash() as f64)]),
    },
    Definition {
        name: "uvmd_block_records_total",
        labels: &[],
        help: "Records of single 2 MiB blocks that the probes wrote. The source of /api/v1/processes/{pid}, and of no metric.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.snapshot.source.block_records.written as f64)]
        }),
    },
    Definition {
        name: "uvmd_block_records_dropped_total",
        labels: &[&RECORD_DROP_REASON],
        help: "Block records dropped. While this grows, counts of blocks are lower bounds; with the driver's tools, all figures from records are.",
        samples: Samples::Counter(|figures| {
            let RecordFigures { sampled_out, dropped, .. } = figures.snapshot.source.block_records;
            vec![Sample::new(["sampled_out"], sampled_out as f64), Sample::new(["dropped"], dropped as f64)]
        }),
    },
    Definition {
        name: "uvmd_processes_omitted",
        labels: &[],
        help: "Running processes without series, beyond `metrics.max_processes`. Requires `metrics.per_process`.",
        samples: Samples::Gauge(|figures| {
            figures.omitted.map(|processes| Sample::new([], processes as f64)).into_iter().collect()
        }),
    },
    Definition {
        name: "uvmd_probe_hits_total",
        labels: &[&PROBE],
        help: "Runs of a probe.",
        samples: Samples::Counter(|figures| {
            let probes = &figures.snapshot.source.probes;
            probes.iter().map(|probe| Sample::new([&probe.name], probe.hits as f64)).collect()
        }),
    },
    Definition {
        name: "uvmd_probe_run_seconds_total",
        labels: &[&PROBE],
        help: "Run time of a probe: the overhead in the probed processes. Present if the kernel measures it (kernel.bpf_stats_enabled=1).",
        samples: Samples::Counter(|figures| {
            let timed = figures.snapshot.source.probes.iter().filter_map(|probe| Some((probe, probe.run_time?)));
            timed.map(|(probe, time)| Sample::new([&probe.name], time.as_secs_f64())).collect()
        }),
    },
];

fn comparisons(done: &Crosschecks) -> impl Iterator<Item = Sample<f64>> + '_ {
    CheckedFigure::ALL.into_iter().flat_map(move |figure| {
        ComparisonResult::ALL.map(|result| Sample::new([figure.name(), result.name()], done.of(figure, result) as f64))
    })
}

fn refusals(refusals: &[QuotaRefusals]) -> Vec<Sample<f64>> {
    let uid = |each: &QuotaRefusals| each.uid.map(|uid| uid.to_string()).unwrap_or_default();
    refusals.iter().map(|each| Sample::new([each.resource, &uid(each)], each.refusals as f64)).collect()
}
