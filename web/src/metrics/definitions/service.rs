//! What is told about uvmd itself.

use std::{sync::atomic::Ordering, time::UNIX_EPOCH};

use model::{DegradedReason, QuotaRefusals, RecordFigures, SourceState};

use crate::{
    Warning,
    metrics::{
        definition::{Definition, Sample, Samples},
        labels::{
            BACKEND, DEGRADED_REASON, DRIVER, LAYOUT, LOSS, PROBE, REASON, RESOURCE, STATE, UID, VERSION, WARNING,
        },
    },
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
        name: "uvmd_state",
        labels: &[&STATE],
        help: "1 for the state of the source, 0 for the others.",
        samples: Samples::Gauge(|figures| {
            let state = match figures.snapshot.source.state {
                SourceState::Waiting { .. } => "waiting",
                SourceState::Refused { .. } => "refused",
                SourceState::Counting { .. } => "counting",
            };
            let all = ["waiting", "refused", "counting"];
            all.into_iter().map(|each| Sample::new([each], f64::from(u8::from(each == state)))).collect()
        }),
    },
    Definition {
        name: "uvmd_degraded",
        labels: &[&DEGRADED_REASON],
        help: "1 while uvmd counts less than it should for this reason, else 0. /readyz and /api/v1/status name who caused it.",
        samples: Samples::Gauge(|figures| {
            let degraded = &figures.snapshot.source.degraded;
            let is = |reason| f64::from(u8::from(degraded.iter().any(|each| each.reason == reason)));
            DegradedReason::ALL.into_iter().map(|reason| Sample::new([reason.name()], is(reason))).collect()
        }),
    },
    Definition {
        name: "uvmd_quota_refusals_total",
        labels: &[&RESOURCE, &UID],
        help: "Entries of the kernel's maps that a user's processes were refused, once for each quota that was reached. Only of users that were.",
        samples: Samples::Counter(|figures| refusals(&figures.snapshot.source.quota_refusals)),
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
        name: "uvmd_audit_lines_dropped_total",
        labels: &[],
        help: "Lines of the audit log that could not be written, as on a full disk. What only reduces what uvmd does is not held back by that.",
        samples: Samples::Counter(|figures| {
            vec![Sample::new([], figures.node.audit_lines_dropped.load(Ordering::Relaxed) as f64)]
        }),
    },
    Definition {
        name: "uvmd_warning_active",
        labels: &[&WARNING],
        help: "1 while this is wrong with uvmd itself, named under `warnings` of /api/v1/status; else 0.",
        samples: Samples::Gauge(|figures| {
            let is_active = |warning| f64::from(u8::from(figures.node.warnings.is_active(warning)));
            Warning::ALL.map(|warning| Sample::new([warning.name()], is_active(warning))).into()
        }),
    },
    Definition {
        name: "uvmd_config_last_reload_successful",
        labels: &[],
        help: "1 where the configuration was valid when it was read last, at the start or on SIGHUP; 0 where it was not, and an earlier one is in force.",
        samples: Samples::Gauge(|figures| {
            vec![Sample::new([], f64::from(u8::from(figures.node.reloads.is_successful())))]
        }),
    },
    Definition {
        name: "uvmd_config_last_reload_success_timestamp_seconds",
        labels: &[],
        help: "When the configuration was read with success last, in seconds since 1970.",
        samples: Samples::Gauge(|figures| {
            let since = figures.node.reloads.succeeded_at().duration_since(UNIX_EPOCH).unwrap_or_default();
            vec![Sample::new([], since.as_secs_f64())]
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
        name: "uvmd_block_records_dropped_total",
        labels: &[&LOSS],
        help: "Block records that there are not. While this grows, the counts of blocks are lower bounds, and nothing else.",
        samples: Samples::Counter(|figures| {
            let RecordFigures { sampled_out, dropped, .. } = figures.snapshot.source.block_records;
            vec![Sample::new(["sampled_out"], sampled_out as f64), Sample::new(["dropped"], dropped as f64)]
        }),
    },
    Definition {
        name: "uvmd_processes_omitted",
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

fn refusals(refusals: &[QuotaRefusals]) -> Vec<Sample<f64>> {
    let uid = |each: &QuotaRefusals| each.uid.map(|uid| uid.to_string()).unwrap_or_default();
    refusals.iter().map(|each| Sample::new([each.resource, &uid(each)], each.refusals as f64)).collect()
}
