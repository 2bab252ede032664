//! Check of the driver's tools, by which uvmd counts where the kernel does not let it probe.

use model::api::Status;
use sys::{
    capabilities::{Capabilities, Capability},
    preconditions::Missing,
};

use super::{Check, Verdict};

const NAME: &str = "tools";

/// Checks that only probes have to meet.
const OF_PROBES: [&str; 6] = ["BPF", "kprobes", "lockdown", "kernel types", "driver", "functions"];

/// Daemon, or whoever may start one.
pub(super) enum Subject<'a> {
    Daemon(&'a Status),
    Caller(Option<Capabilities>),
}

/// The check, where tools count, or would count once uvmd is started.
pub(super) fn check(subject: &Subject<'_>, lacking: &[Missing]) -> Option<Check> {
    const ADVICE: &str = "to count all, do what the checks of the probes say; docs/sources.md has what each counts";
    match subject {
        Subject::Daemon(status) if status.state == "counting" && status.backend == "tools" => {
            Some(Check::ok(NAME, "uvmd counts by the driver's tools, which count less than probes"))
        }
        Subject::Caller(capabilities) if !lacking.is_empty() && !lacking.contains(&Missing::Driver) => {
            let may_attach = capabilities.is_some_and(|capabilities| {
                capabilities.has(Capability::SysPtrace) && capabilities.has(Capability::DacReadSearch)
            });
            Some(if may_attach {
                Check::warning(NAME, "uvmd would count by the driver's tools, which count less than probes", ADVICE)
            } else {
                Check::unknown(NAME, "uvmd may be able to count by the driver's tools", "run this as root")
            })
        }
        _ => None,
    }
}

/// Turns what probes lack into warnings, as tools count without it.
pub(super) fn replace_probes(checks: &mut [Check]) {
    for check in checks.iter_mut().filter(|check| OF_PROBES.contains(&check.name)) {
        if check.verdict == Verdict::Missing {
            check.verdict = Verdict::Warning;
        }
    }
}
