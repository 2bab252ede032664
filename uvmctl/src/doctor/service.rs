//! Checks of the daemon and its configuration.

use std::io;

use api::{Crosscheck, Status};
use config::{ConfigError, Loaded};

use super::Check;
use crate::{client::Error, text};

/// Version of uvmctl; uvmd is released with the same.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Checks of the daemon by its status.
pub(super) fn checks(status: Result<&Status, &Error>) -> Vec<Check> {
    const NAME: &str = "uvmd";
    let error = match status {
        Ok(status) => return daemon_checks(status),
        Err(error) => error,
    };
    vec![match error {
        Error::Unreachable { endpoint, reason } => Check::missing(
            NAME,
            format!("cannot be reached at {endpoint}: {reason}"),
            "start it, or name its address with --url or UVMD_URL",
        ),
        Error::Untrusted { .. } => Check::missing(NAME, error.to_string(), "find out which program listens there"),
        error => Check::missing(NAME, error.to_string(), "see its log"),
    }]
}

/// Check of the configuration that was loaded.
pub(super) fn configuration(loaded: &Result<Loaded, ConfigError>) -> Check {
    const NAME: &str = "configuration";
    match loaded {
        Ok(loaded) => match loaded.names() {
            Some(files) => Check::ok(NAME, format!("{files} is in order")),
            None => Check::ok(NAME, format!("there is no {}: the defaults are in force", config::DEFAULT_FILE)),
        },
        Err(ConfigError::Unreadable { file, source }) if source.kind() == io::ErrorKind::PermissionDenied => {
            Check::unknown(NAME, format!("{} may not be read", file.display()), "run this as root")
        }
        Err(error) => Check::missing(
            NAME,
            text::printable(&error.to_string()),
            "correct it, as uvmd does not start with it; `uvmd --check-config` has details",
        ),
    }
}

fn daemon_checks(status: &Status) -> Vec<Check> {
    let mut checks = vec![state(status), version(status)];
    if status.degraded.iter().any(|each| each.reason == "cgroup_namespace") {
        checks.push(Check::warning(
            "owners",
            "uvmd runs in a cgroup namespace of its own: pods, jobs, containers and units may be unknown or wrong",
            "run it with CAP_SYS_ADMIN and the host's pid namespace, or in the host's cgroup namespace (--cgroupns=host)",
        ));
    }
    // A daemon that waits or refuses the driver has neither, and its state has the reason.
    if is_counting(status) {
        // The tools have no probes.
        checks.extend((!status.probes.is_empty()).then(|| probes(status)));
        checks.push(losses(status));
        let disagree = status.degraded.iter().any(|each| each.reason == "sources_disagree");
        checks.extend(status.source.crosscheck.as_ref().map(|done| crosscheck(done, disagree)));
    }
    checks
}

/// Check of the probes by the driver's own counters.
fn crosscheck(done: &Crosscheck, disagree: bool) -> Check {
    const NAME: &str = "crosscheck";
    let Crosscheck { checks, comparisons, disagreements, .. } = done;
    if disagree {
        return Check::warning(
            NAME,
            format!("{disagreements} of {comparisons} comparisons with the driver's own counters disagree"),
            "uvmctl status names the figure: do not trust it, and report it with the driver's version",
        );
    }
    match checks {
        0 => Check::ok(NAME, "no process has been cross-checked yet"),
        checks => Check::ok(
            NAME,
            format!(
                "{comparisons} comparisons with the driver's own counters in {checks} checks: {disagreements} disagree"
            ),
        ),
    }
}

fn is_counting(status: &Status) -> bool {
    status.state == "counting"
}

fn state(status: &Status) -> Check {
    const NAME: &str = "uvmd";
    let on = format!("on {}", text::printable(&status.hostname));
    let warnings = status.warnings.iter().map(|warning| &warning.message);
    let reasons: Vec<_> = status.reasons.iter().chain(warnings).map(|reason| text::printable(reason)).collect();
    let reasons = reasons.join("; ");
    match (status.state.as_str(), reasons.is_empty()) {
        ("counting", true) => Check::ok(NAME, format!("counts {on}, by {}", text::printable(&status.backend))),
        ("counting", false) => Check::warning(NAME, format!("counts {on}, but is degraded"), reasons),
        ("waiting", _) => Check::missing(NAME, format!("waits {on} and counts nothing"), reasons),
        _ => Check::missing(NAME, format!("refuses the driver {on} and counts nothing"), reasons),
    }
}

fn version(status: &Status) -> Check {
    const NAME: &str = "version";
    let daemon_version = text::printable(&status.version);
    if daemon_version == OWN_VERSION {
        return Check::ok(NAME, format!("uvmd and uvmctl are {OWN_VERSION}"));
    }
    Check::warning(
        NAME,
        format!("uvmd is {daemon_version} and uvmctl {OWN_VERSION}"),
        "restart uvmd if it was updated; else update the older of the two",
    )
}

fn probes(status: &Status) -> Check {
    const NAME: &str = "probes";
    let missing: Vec<_> = status
        .probes
        .iter()
        .filter_map(|probe| {
            Some(format!("{}: {}", text::printable(&probe.name), text::printable(probe.unavailable_reason.as_ref()?)))
        })
        .collect();
    if missing.is_empty() {
        return Check::ok(NAME, format!("all {} are attached", status.probes.len()));
    }
    Check::warning(NAME, format!("{} of {} are not attached", missing.len(), status.probes.len()), missing.join("; "))
}

fn losses(status: &Status) -> Check {
    const NAME: &str = "losses";
    let losses = [
        (status.dropped_events, "dropped events"),
        (status.block_records_dropped, "dropped block records"),
        (status.log_lines_dropped, "dropped lines of uvmd's log"),
        (status.audit_lines_dropped, "dropped lines of the audit log"),
    ];
    let losses: Vec<_> = losses
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", text::count(count)))
        .collect();
    if losses.is_empty() {
        return Check::ok(NAME, "no dropped events");
    }
    Check::warning(NAME, losses.join(", "), "`uvmctl status` has the reasons, docs/metrics.md their meaning")
}
