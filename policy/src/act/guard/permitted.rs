//! Conditions for advice and migrations of a process, and actions denied for certain drivers or
//! GPUs.

use std::cmp::Ordering;

use model::{Action, ApiCall, Place, Quantity, SourceState, counters::RarePerVariant};

use super::denied::{DENIED, Denied, DeniedActions};
use crate::act::scene::Target;

/// Calls of the driver that give or withdraw advice.
const ADVICE_CALLS: [ApiCall; 6] = [
    ApiCall::SetPreferredLocation,
    ApiCall::UnsetPreferredLocation,
    ApiCall::SetAccessedBy,
    ApiCall::UnsetAccessedBy,
    ApiCall::EnableReadDuplication,
    ApiCall::DisableReadDuplication,
];

/// Advice calls of uvmd about a process, as the probes count them; `None` while further ones may be
/// in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnCalls {
    /// Calls from outside the process.
    pub(crate) by_tool: Option<u64>,
    /// Calls of the helper in the process, which the probes count as the program's.
    pub(crate) by_program: Option<u64>,
}

impl OwnCalls {
    pub(crate) const NONE: Self = Self { by_tool: Some(0), by_program: Some(0) };
}

/// Reason why memory of the process may be read-duplicated. Such memory must not be migrated: the
/// driver maps migrated pages that no processor has mapped for writing, even if they are copies
/// (`block_migrate_map_unmapped_pages` in `uvm_migrate.c`). Writes of the GPU then raise no fault,
/// and are lost when the copy is evicted.
pub(crate) fn may_be_duplicated(target: &Target<'_>) -> Option<&'static str> {
    let source = &target.scene.snapshot.source;
    let is_relevant = |probe: &str| probe.contains("read_duplication");
    let total = target.process.total();
    let enable = ApiCall::EnableReadDuplication;
    if source.not_counted.contains(&Quantity::ApiCalls) {
        return Some(
            "the source does not count calls of the driver: memory may be read-duplicated, which must not be migrated",
        );
    }
    if source.not_counted.contains(&Quantity::Resident) {
        return Some("the source does not count resident memory, which bounds migrations");
    }
    if target.process.counted_from.is_some() {
        return Some(
            "the process used the driver before uvmd counted: its memory may be read-duplicated, which must not be migrated",
        );
    }
    if source.probes.iter().any(|probe| probe.missing.is_some() && is_relevant(&probe.name)) {
        return Some("a probe is missing: memory may be read-duplicated, which must not be migrated");
    }
    if total.dropped_events > 0 {
        return Some(
            "events of the process were dropped: its memory may be read-duplicated, which must not be migrated",
        );
    }
    (total.api_calls[enable] > 0 || total.tool_calls[enable] > 0)
        .then_some("memory of the process is read-duplicated, which must not be migrated")
}

/// Reason why the advice in force on the process's memory is unknown, apart from uvmd's
/// `own_calls`. The driver has no query for advice, and a withdrawal by uvmd would also remove the
/// application's advice.
pub(crate) fn unknown_advice(target: &Target<'_>, own_calls: OwnCalls) -> Option<&'static str> {
    let source = &target.scene.snapshot.source;
    if !matches!(source.state, SourceState::Counting { .. }) {
        return Some("nothing is counted");
    }
    if source.not_counted.contains(&Quantity::ApiCalls) {
        return Some("the source does not count calls of the driver: the application's own advice is unknown");
    }
    if target.process.counted_from.is_some() {
        return Some("the process used the driver before uvmd counted: its earlier advice is unknown");
    }
    if source.probes.iter().any(|probe| probe.missing.is_some() && is_of_advice(&probe.name)) {
        return Some("a probe is missing: advice may be missed");
    }
    let total = target.process.total();
    if total.dropped_events > 0 {
        return Some("events of the process were dropped: advice may have been missed");
    }
    let advice = |calls: &RarePerVariant<8>| ADVICE_CALLS.iter().map(|call| calls[*call]).fold(0, u64::saturating_add);
    let exceeds = |calls, own: Option<u64>| own.is_some_and(|own| advice(calls) > own);
    if exceeds(&total.api_calls, own_calls.by_program) {
        return Some("the application advises the driver itself");
    }
    exceeds(&total.tool_calls, own_calls.by_tool).then_some("another program advised the driver about the process")
}

fn is_of_advice(probe: &str) -> bool {
    ["preferred_location", "accessed_by", "read_duplication"].iter().any(|advice| probe.contains(advice))
}

/// Public report because of which this action is denied.
pub(crate) fn denied(action: Action, target: &Target<'_>) -> Option<&'static Denied> {
    let version = target.scene.snapshot.source.driver.as_ref().map(|driver| driver.version.as_str());
    let name = target.scene.snapshot.gpus.get(&target.key()).and_then(|gpu| gpu.name.as_deref());
    DENIED.iter().find(|row| matches(row, version, name) && covers(row.actions, action))
}

/// Whether a row applies to a driver version and a GPU. Unknown ones match.
fn matches(row: &Denied, version: Option<&str>, gpu: Option<&str>) -> bool {
    let is_named = |gpu: &str| row.gpus.iter().any(|name| gpu.to_lowercase().contains(&name.to_lowercase()));
    version.is_none_or(|version| has_version(row, version)) && gpu.is_none_or(is_named)
}

fn has_version(row: &Denied, version: &str) -> bool {
    let from = compare(version, row.driver_from) != Ordering::Less;
    // Inclusive: "550" covers all versions of 550.
    let until = row.driver_until.is_none_or(|until| {
        let parts = until.split('.').count();
        compare(&version.split('.').take(parts).collect::<Vec<_>>().join("."), until) != Ordering::Greater
    });
    from && until
}

const fn covers(actions: DeniedActions, action: Action) -> bool {
    match actions {
        DeniedActions::Everything => !matches!(action, Action::Withdraw(_)),
        DeniedActions::ToGpu => matches!(action, Action::Migrate(Place::Gpu(_)) | Action::Touch(_)),
    }
}

/// Compares driver versions by component.
fn compare(one: &str, other: &str) -> Ordering {
    let numbers = |version: &str| version.split('.').map(|part| part.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use model::GpuUuid;

    use super::*;

    const ROW: Denied = Denied {
        driver_from: "535.54.03",
        driver_until: Some("550"),
        gpus: &["h100", "H200"],
        actions: DeniedActions::ToGpu,
        why: "it hangs",
        url: "https://example.org/1",
    };

    #[test]
    fn row_matches_its_versions_and_gpus_and_unknown_ones() {
        for (version, gpu, expected) in [
            ("535.54.03", Some("NVIDIA H100 NVL"), true),
            ("535.54.02", Some("NVIDIA H100 NVL"), false),
            ("535.104", Some("NVIDIA H100 NVL"), true),
            ("550.163.01", Some("NVIDIA H100 NVL"), true),
            ("551.1", Some("NVIDIA H100 NVL"), false),
            ("550.163.01", Some("NVIDIA H200"), true),
            ("550.163.01", Some("NVIDIA A100"), false),
            ("550.163.01", None, true),
        ] {
            assert_eq!(matches(&ROW, Some(version), gpu), expected, "{version} {gpu:?}");
        }
        assert!(matches(&ROW, None, Some("NVIDIA H100 NVL")) && !matches(&ROW, None, Some("NVIDIA A100")));
    }

    #[test]
    fn architecture_is_recognised_by_product_names() {
        let is_denied = |gpu| DENIED.iter().any(|row| matches(row, Some("595.71.05"), Some(gpu)));
        for gpu in
            ["NVIDIA RTX PRO 4500 Blackwell", "NVIDIA B200", "NVIDIA GB200", "NVIDIA GeForce RTX 5090 Laptop GPU"]
        {
            assert!(is_denied(gpu), "{gpu}");
        }
        for gpu in ["NVIDIA RTX 5000 Ada Generation", "Quadro RTX 5000", "NVIDIA H200", "NVIDIA GeForce RTX 4090"] {
            assert!(!is_denied(gpu), "{gpu}");
        }
    }

    #[test]
    fn denials_never_cover_withdrawals() {
        let gpu = GpuUuid([1; 16]);
        assert!(covers(DeniedActions::ToGpu, Action::Touch(gpu)));
        assert!(!covers(DeniedActions::ToGpu, Action::Migrate(Place::Host)));
        assert!(covers(DeniedActions::Everything, Action::Migrate(Place::Host)));
        assert!(!covers(DeniedActions::Everything, Action::Withdraw(model::Advice::ReadDuplication)));
    }

    #[test]
    fn every_row_has_a_public_report_and_ordered_versions() {
        for row in DENIED {
            assert!(row.url.starts_with("https://github.com/"), "{row:?}");
            assert!(
                row.driver_until.is_none_or(|until| compare(row.driver_from, until) != Ordering::Greater),
                "{row:?}"
            );
        }
    }
}
