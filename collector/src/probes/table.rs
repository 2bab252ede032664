//! Functions of the probes, and the uncounted events without them. A new one is a program of the
//! probes' crate and a row here.

use abi::Probe;

/// Row of a probe.
pub(super) struct Row {
    pub(super) probe: Probe,
    /// Name in the object.
    pub(super) program: &'static str,
    /// Function of the driver, and its other names in versions; the first existing one is used.
    pub(super) functions: &'static [&'static str],
    pub(super) need: Need,
}

/// Whether a driver that lacks the function is refused.
#[derive(Clone, Copy)]
pub(super) enum Need {
    Always,
    /// Optional; expected from this major version on, as earlier ones have nothing to count there.
    /// `uncounted`: events missing without it, with a verb.
    Without {
        since: u32,
        uncounted: &'static str,
    },
}

impl Row {
    /// Whether it runs at the function's return.
    pub(super) fn at_return(&self) -> bool {
        self.probe.name().ends_with("(return)")
    }

    /// Whether it needs the residency of a block's pages.
    pub(super) const fn is_of_residency(&self) -> bool {
        matches!(
            self.probe,
            Probe::Resident
                | Probe::ResidentReturn
                | Probe::Duplicate
                | Probe::DuplicateReturn
                | Probe::Split
                | Probe::SplitReturn
        )
    }
}

const fn row(probe: Probe, program: &'static str, functions: &'static [&'static str], need: Need) -> Row {
    Row { probe, program, functions, need }
}

const fn without(uncounted: &'static str) -> Need {
    Need::Without { since: 0, uncounted }
}

/// Reasons why probes are not attached.
pub(super) const NO_RESIDENCY: &str = "populated and resident memory is not counted: where this version of the driver keeps residency is unknown, \
    and the kernel does not show the driver's types in /sys/kernel/btf/nvidia_uvm";

const HANDLER: &[&str] = &["uvm_gpu_service_replayable_faults", "uvm_parent_gpu_service_replayable_faults"];
const WITHOUT_HANDLER: Need = without("runs of the fault handler, and the evictors of its evictions, are");
const WITHOUT_THROTTLES: Need = without("throttles are");
const WITHOUT_POPULATED: Need = without("populated and resident memory is");
const WITHOUT_DUPLICATED: Need = without("populated and resident memory is, where reads may be duplicated,");
const WITHOUT_SPLIT: Need = without("resident memory of blocks that advice covers in part is");
const ALLOC_PAGES: &[&str] = &["uvm_pmm_gpu_pma_evict_pages_wrapper_entry"];
const ALLOC_RANGE: &[&str] = &["uvm_pmm_gpu_pma_evict_range_wrapper_entry"];
const WITHOUT_ALLOCATIONS: Need = without("evictions caused by device allocations are");
const WITHOUT_CALLS: Need = without("calls of the application of this kind are");

/// Probes in the order of attachment. From the first on, events are dropped as those of unknown VA
/// spaces, and no VA space may be created before its end can be seen. The last one is therefore the
/// one that registers them, when all others are attached.
pub(super) const PROBES: &[Row] = &[
    row(Probe::HandlerReturn, "uvm_handled", HANDLER, WITHOUT_HANDLER),
    row(Probe::Handler, "uvm_handler", HANDLER, WITHOUT_HANDLER),
    row(Probe::Replay, "uvm_replay", &["uvm_tools_broadcast_replay"], without("replays are")),
    row(Probe::Thrashing, "uvm_thrashing", &["uvm_tools_record_thrashing"], without("thrashing pages are")),
    row(Probe::ThrottleEnd, "uvm_throttled", &["uvm_tools_record_throttling_end"], WITHOUT_THROTTLES),
    row(Probe::ThrottleStart, "uvm_throttle", &["uvm_tools_record_throttling_start"], WITHOUT_THROTTLES),
    row(Probe::MapRemote, "uvm_map_remote", &["uvm_tools_record_map_remote"], without("remote mappings are")),
    row(
        Probe::Evict,
        "uvm_evict",
        &["uvm_va_block_evict_chunks"],
        without("evictions, except for their copied bytes, are"),
    ),
    row(Probe::ResidentReturn, "uvm_resident_done", &["uvm_va_block_make_resident_copy"], WITHOUT_POPULATED),
    row(Probe::Resident, "uvm_resident", &["uvm_va_block_make_resident_copy"], WITHOUT_POPULATED),
    row(
        Probe::DuplicateReturn,
        "uvm_duplicate_done",
        &["uvm_va_block_make_resident_read_duplicate"],
        WITHOUT_DUPLICATED,
    ),
    row(Probe::Duplicate, "uvm_duplicate", &["uvm_va_block_make_resident_read_duplicate"], WITHOUT_DUPLICATED),
    row(Probe::SplitReturn, "uvm_split_done", &["uvm_va_block_split"], WITHOUT_SPLIT),
    row(Probe::Split, "uvm_split", &["uvm_va_block_split"], WITHOUT_SPLIT),
    row(Probe::AllocPagesReturn, "uvm_alloc_pages_done", ALLOC_PAGES, WITHOUT_ALLOCATIONS),
    row(Probe::AllocPages, "uvm_alloc_pages", ALLOC_PAGES, WITHOUT_ALLOCATIONS),
    row(Probe::AllocRangeReturn, "uvm_alloc_range_done", ALLOC_RANGE, WITHOUT_ALLOCATIONS),
    row(Probe::AllocRange, "uvm_alloc_range", ALLOC_RANGE, WITHOUT_ALLOCATIONS),
    row(
        Probe::FatalError,
        "uvm_fatal_error",
        &["uvm_global_set_fatal_error_impl"],
        without("a fatal error of the driver, where uvmd may not open /dev/nvidia-uvm-tools, is"),
    ),
    row(Probe::MigrateReturn, "uvm_migrated", &["uvm_api_migrate"], without("evictions caused by page tables are")),
    row(Probe::Migrate, "uvm_migrate", &["uvm_api_migrate"], WITHOUT_CALLS),
    row(Probe::SetPreferredLocation, "uvm_set_preferred_location", &["uvm_api_set_preferred_location"], WITHOUT_CALLS),
    row(
        Probe::UnsetPreferredLocation,
        "uvm_unset_preferred_location",
        &["uvm_api_unset_preferred_location"],
        WITHOUT_CALLS,
    ),
    row(Probe::SetAccessedBy, "uvm_set_accessed_by", &["uvm_api_set_accessed_by"], WITHOUT_CALLS),
    row(Probe::UnsetAccessedBy, "uvm_unset_accessed_by", &["uvm_api_unset_accessed_by"], WITHOUT_CALLS),
    row(
        Probe::EnableReadDuplication,
        "uvm_enable_read_duplication",
        &["uvm_api_enable_read_duplication"],
        WITHOUT_CALLS,
    ),
    row(
        Probe::DisableReadDuplication,
        "uvm_disable_read_duplication",
        &["uvm_api_disable_read_duplication"],
        WITHOUT_CALLS,
    ),
    row(
        Probe::Discard,
        "uvm_discard",
        &["uvm_api_discard"],
        Need::Without { since: 580, uncounted: "calls of the application to discard memory are" },
    ),
    row(Probe::Notify, "uvm_notify", &["uvm_perf_event_notify"], Need::Always),
    row(Probe::DestroyReturn, "uvm_destroyed", &["uvm_va_space_destroy"], Need::Always),
    row(Probe::DestroyEntry, "uvm_destroy", &["uvm_va_space_destroy"], Need::Always),
    row(Probe::Register, "uvm_register", &["uvm_va_space_mm_register"], Need::Always),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_one_row() {
        let mut probes: Vec<_> = PROBES.iter().map(|row| row.probe).collect();
        probes.sort_unstable();
        assert_eq!(probes, Probe::ALL);
    }

    #[test]
    fn functions_checked_by_the_doctor_are_those_needed_here() {
        let is_needed = |row: &&Row| matches!(row.need, Need::Always) && !row.at_return();
        let mut here: Vec<_> = PROBES.iter().filter(is_needed).map(|row| row.probe).collect();
        let mut there = sys::symbols::NEEDED.to_vec();
        here.sort_unstable();
        there.sort_unstable();
        assert_eq!(here, there);
        // A needed one has only one name, which the search uses.
        assert!(PROBES.iter().filter(is_needed).all(|row| row.functions == [row.probe.name()]));
    }

    #[test]
    fn probe_is_named_after_its_first_function() {
        for row in PROBES {
            assert_eq!(Some(&row.probe.name().trim_end_matches(" (return)")), row.functions.first());
        }
    }
}
