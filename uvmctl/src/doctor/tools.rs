//! Check of the driver's tools, the source of counts where probes cannot be used.

use api::Status;
use sys::{
    capabilities::{Capabilities, Capability},
    driver::Module,
    preconditions::Missing,
    uvm::tracker::Layout,
};

use super::{Check, Verdict};
use crate::text;

const NAME: &str = "tools";

/// Checks of requirements of the probes alone.
const OF_PROBES: [&str; 6] = ["BPF", "kprobes", "lockdown", "kernel types", "driver", "functions"];

/// Process whose state or capabilities decide: the daemon, or the caller of `uvmctl`.
pub(super) enum Subject<'a> {
    Daemon(&'a Status),
    Caller(Option<Capabilities>),
}

/// Check of the tools; `None` where they are not the source, and would not be after a start.
pub(super) fn check(subject: &Subject<'_>, module: Option<&Module>, lacking: &[Missing]) -> Option<Check> {
    const ADVICE: &str = "resolve the warnings of the probes to get all figures; docs/sources.md compares the sources";
    match subject {
        Subject::Daemon(status) if status.state == "counting" && status.backend == "tools" => {
            Some(Check::ok(NAME, "uvmd counts by the driver's tools, which count less than probes"))
        }
        Subject::Caller(capabilities) if !lacking.is_empty() && !lacking.contains(&Missing::Driver) => {
            let version = module.and_then(|module| module.version.as_deref()).unwrap_or_default();
            if Layout::of(version).is_err() {
                return Some(Check::missing(
                    NAME,
                    format!("uvmd does not know the tools interface of driver {}", text::printable(version)),
                    "use driver 515 or later, or resolve what the probes lack",
                ));
            }
            let may_attach = capabilities.is_some_and(|capabilities| {
                capabilities.has(Capability::SysPtrace) && capabilities.has(Capability::DacReadSearch)
            });
            Some(if may_attach {
                Check::warning(NAME, "uvmd would count by the driver's tools, which count less than probes", ADVICE)
            } else {
                Check::unknown(
                    NAME,
                    "whether uvmd can count by the driver's tools is unknown",
                    "run uvmctl doctor as root",
                )
            })
        }
        _ => None,
    }
}

/// Downgrades missing requirements of the probes to warnings: the tools do not have them.
pub(super) fn downgrade_probe_checks(checks: &mut [Check]) {
    for check in checks.iter_mut().filter(|check| OF_PROBES.contains(&check.name)) {
        if check.verdict == Verdict::Missing {
            check.verdict = Verdict::Warning;
        }
    }
}
