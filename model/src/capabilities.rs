//! Quantities that the running driver lets uvmd count. Others are reported as unknown, not as zero.

use crate::{Quantity, Snapshot, SourceStatus};

impl Quantity {
    fn is_counted(self, snapshot: &Snapshot) -> bool {
        let source = &snapshot.source;
        let has_types = source.driver.as_ref().is_none_or(|driver| driver.residency_unavailable.is_none());
        if source.not_counted.contains(&self) {
            return false;
        }
        match self {
            Self::Reuse => !source.block_records.is_off,
            Self::Populated => has_types,
            // Also by block records.
            Self::Resident => has_types && !source.block_records.is_off,
            _ => !self.probes().iter().any(|name| is_missing(source, name)),
        }
    }

    /// Reason why the quantity is not counted, and what would count it; `None` if it is counted.
    #[must_use]
    pub fn unavailable(self, snapshot: &Snapshot) -> Option<String> {
        if self.is_counted(snapshot) {
            return None;
        }
        if snapshot.source.not_counted.contains(&self) {
            let of_level = self.tools_level().map_or_else(String::new, |level| {
                format!(" at this level, but from collector.tools_level \"{}\" on, and", level.name())
            });
            return Some(format!(
                "not counted by the driver's tools{}by probes: these need a kernel with kprobes or fentry, and collector.source \"auto\" or \"probes\"",
                if of_level.is_empty() { ", but ".to_owned() } else { of_level + " " }
            ));
        }
        let missing = self.probes().iter().find(|name| is_missing(&snapshot.source, name));
        Some(missing.map_or_else(
            || "not counted on this driver, or as configured".to_owned(),
            |probe| format!("not counted, as the probe of {probe} is missing (see uvmctl status)"),
        ))
    }
}

fn is_missing(source: &SourceStatus, probe: &str) -> bool {
    source.probes.iter().any(|each| each.name == probe && each.missing.is_some())
}

/// Quantities that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities([bool; Quantity::ALL.len()]);

impl Capabilities {
    /// Capabilities of a driver that has every function.
    pub const ALL: Self = Self([true; Quantity::ALL.len()]);

    /// Capabilities of the running driver.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self(Quantity::ALL.map(|quantity| quantity.is_counted(snapshot)))
    }

    /// The same for the counts of one GPU. Where there are several and faults have no records, as with
    /// the driver's tools below level `faults`, these quantities are known for all of them together.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub fn of_a_gpu(mut self, snapshot: &Snapshot) -> Self {
        if snapshot.gpus.len() > 1 && !self.has(Quantity::FaultAccess) {
            for quantity in [Quantity::FaultInstances, Quantity::ThrashingPages] {
                self.0[quantity as usize] = false;
            }
        }
        self
    }

    /// Names of the quantities that are not counted.
    pub fn not_counted(self) -> impl Iterator<Item = &'static str> {
        Quantity::ALL.into_iter().filter(move |quantity| !self.has(*quantity)).map(Quantity::name)
    }

    /// Whether the quantity is counted.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub fn has(self, quantity: Quantity) -> bool {
        self.0[quantity as usize]
    }

    /// The value, if the quantity is counted.
    #[must_use]
    pub fn counted<T>(self, quantity: Quantity, value: T) -> Option<T> {
        self.has(quantity).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Gpu, GpuKey, ProbeStatus, SourceState, ToolsLevel};

    fn snapshot() -> Snapshot {
        let since = SystemTime::UNIX_EPOCH;
        Snapshot::empty(since, SourceStatus::new(SourceState::Counting { since }))
    }

    #[test]
    fn what_is_not_counted_has_a_reason_and_what_would_count_it() {
        let reason = |snapshot: &Snapshot| Quantity::EvictionPairs.unavailable(snapshot);
        let mut of_tools = snapshot();
        assert_eq!(reason(&of_tools), None);
        of_tools.source.not_counted = ToolsLevel::Moves.not_counted();
        let text = reason(&of_tools).unwrap();
        assert!(
            text.starts_with(
                "not counted by the driver's tools at this level, but from collector.tools_level \"faults\" on, and by probes: these"
            ),
            "{text}"
        );
        let text = Quantity::Resident.unavailable(&of_tools).unwrap();
        assert!(text.starts_with("not counted by the driver's tools, but by probes: these"), "{text}");
        let mut without_probe = snapshot();
        without_probe.source.probes = vec![ProbeStatus {
            name: "uvm_va_block_evict_chunks".to_owned(),
            hits: 0,
            run_time: None,
            missing: Some("evictions are not counted".to_owned()),
        }];
        let text = reason(&without_probe).unwrap();
        assert_eq!(text, "not counted, as the probe of uvm_va_block_evict_chunks is missing (see uvmctl status)");
    }

    #[test]
    fn instances_without_records_belong_to_a_gpu_only_if_there_is_one() {
        let mut snapshot = snapshot();
        snapshot.source.not_counted = ToolsLevel::Moves.not_counted();
        let of_a_gpu =
            |snapshot: &Snapshot| Capabilities::of(snapshot).of_a_gpu(snapshot).has(Quantity::FaultInstances);
        snapshot.gpus.insert(GpuKey::Unknown(1), Gpu::default());
        assert!(of_a_gpu(&snapshot));
        snapshot.gpus.insert(GpuKey::Unknown(2), Gpu::default());
        assert!(!of_a_gpu(&snapshot) && Capabilities::of(&snapshot).has(Quantity::FaultInstances));
        snapshot.source.not_counted = ToolsLevel::Faults.not_counted();
        assert!(of_a_gpu(&snapshot));
    }

    #[test]
    fn faults_of_blocks_sites_and_pairs_are_not_counted_by_tools() {
        let mut snapshot = snapshot();
        snapshot.source.not_counted = ToolsLevel::Moves.not_counted();
        let names: Vec<_> = Capabilities::of(&snapshot).not_counted().collect();
        for name in ["block_faults", "cpu_fault_sites", "eviction_pairs"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
}
