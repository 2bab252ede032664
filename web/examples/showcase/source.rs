//! Source of events in the requested state.

use std::time::{Duration, SystemTime};

use model::{
    Degradation, DegradedReason, DriverInfo, DropReason, ProbeStatus, QuotaRefusals, SourceState, SourceStatus,
    ToolsLevel,
};

pub(crate) fn source(state: &str, seconds: f64) -> SourceStatus {
    let source_state = match state {
        "waiting" => SourceState::Waiting {
            missing: vec![
                "the driver nvidia-uvm is not loaded: load it with modprobe nvidia-uvm".to_owned(),
                "this kernel has no kprobes (CONFIG_KPROBES): boot one that has".to_owned(),
            ],
        },
        "refused" => SourceState::Refused {
            reason: "driver 610.12 is newer than what this uvmd knows (515 to 595): update uvmd".to_owned(),
        },
        _ => SourceState::Counting { since: SystemTime::now() - Duration::from_secs_f64(seconds + 40.0) },
    };
    let counting = matches!(source_state, SourceState::Counting { .. });
    let probe = |name: &str, rate: f64| ProbeStatus {
        name: name.to_owned(),
        hits: (rate * seconds) as u64,
        run_time: Some(Duration::from_secs_f64(rate * seconds * 412e-9)),
        missing: None,
    };
    SourceStatus {
        backend: if state == "tools" { "tools" } else { "ebpf" },
        not_counted: if state == "tools" { ToolsLevel::Moves.not_counted() } else { Vec::new() },
        degraded: match state {
            "degraded" => degradations(),
            "tools" => vec![reduced()],
            _ => Vec::new(),
        },
        quota_refusals: if state == "degraded" { refusals() } else { Vec::new() },
        driver: match state {
            "waiting" => None,
            "refused" => Some(DriverInfo { version: "610.12".to_owned(), layout: None, ..DriverInfo::default() }),
            _ => Some(DriverInfo {
                version: "580.159.04".to_owned(),
                layout: Some("580-595".to_owned()),
                attachment: Some("kprobe"),
                ..DriverInfo::default()
            }),
        },
        probes: if counting && state != "tools" {
            vec![
                probe("uvm_perf_event_notify", 26_000.0),
                probe("uvm_va_space_mm_register", 0.2),
                probe("uvm_va_space_destroy", 0.1),
            ]
        } else {
            Vec::new()
        },
        dropped_events: DropReason::ALL.map(|reason| (reason.name(), 0)).into(),
        ..SourceStatus::new(source_state)
    }
}

fn degradations() -> Vec<Degradation> {
    let mallory = |reason, pid, description: &str| Degradation {
        reason,
        uid: Some(1066),
        user: Some("mallory".to_owned()),
        pid,
        description: description.to_owned(),
    };
    vec![
        mallory(
            DegradedReason::QuotaReached,
            Some(47_640),
            "process 47640 of user mallory (uid 1066): 256 VA spaces are in use, of 256 that one may have; events beyond them are not counted",
        ),
        mallory(
            DegradedReason::RegistrationRate,
            None,
            "user mallory (uid 1066): VA spaces are created too fast to be distinguished, and are counted together",
        ),
    ]
}

fn reduced() -> Degradation {
    Degradation {
        reason: DegradedReason::SourceReduced,
        uid: None,
        user: None,
        pid: None,
        description: "counts come from the driver's tools, which count less than probes: this kernel has no kprobes (CONFIG_KPROBES)".to_owned(),
    }
}

fn refusals() -> Vec<QuotaRefusals> {
    vec![QuotaRefusals { uid: Some(1066), user: Some("mallory".to_owned()), resource: "va_spaces", refusals: 3_944 }]
}
