//! Quantities that the running driver lets uvmd count. Others are reported as unknown, not as zero.

use crate::{GpuKey, Quantity, Snapshot, SourceStatus};

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
            return Some(match self.tools_level() {
                Some(level) => format!(
                    "not counted by the driver's tools at this level: needs collector.tools_level \"{}\" or higher, or probes (see uvmctl doctor)",
                    level.name()
                ),
                None => "not counted by the driver's tools: needs probes (see uvmctl doctor)".to_owned(),
            });
        }
        let missing = self.probes().iter().find(|name| is_missing(&snapshot.source, name));
        Some(missing.map_or_else(
            || "not counted on this driver or with this configuration".to_owned(),
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

    /// The same for the counts of one GPU. With the driver's tools, what has no record is known for all
    /// GPUs together: thrashing pages at each level, fault instances below `faults`, and throttles below
    /// `moves`.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the array has one element for each quantity")]
    pub fn of_a_gpu(mut self, snapshot: &Snapshot) -> Self {
        let are_several = snapshot.gpus.keys().filter(|key| matches!(key, GpuKey::Known(_))).count() > 1;
        let is_of_tools = snapshot.source.backend == "tools";
        for (quantity, is_apart) in [
            (Quantity::ThrashingPages, !are_several),
            (Quantity::FaultInstances, !are_several || self.has(Quantity::FaultAccess)),
            (Quantity::Throttles, self.has(Quantity::ThrottledTime)),
        ] {
            self.0[quantity as usize] &= !is_of_tools || is_apart;
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
    use crate::{Gpu, GpuUuid, ProbeStatus, SourceState, ToolsLevel};

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
                "not counted by the driver's tools at this level: needs collector.tools_level \"faults\" or higher, or probes"
            ),
            "{text}"
        );
        let text = Quantity::Resident.unavailable(&of_tools).unwrap();
        assert!(text.starts_with("not counted by the driver's tools: needs probes"), "{text}");
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
        let set = |snapshot: &mut Snapshot, level: ToolsLevel| snapshot.source.not_counted = level.not_counted();
        let of_a_gpu = |snapshot: &Snapshot| {
            let of_a_gpu = Capabilities::of(snapshot).of_a_gpu(snapshot);
            [Quantity::FaultInstances, Quantity::ThrashingPages, Quantity::Throttles]
                .map(|quantity| of_a_gpu.has(quantity))
        };
        snapshot.source.backend = "tools";
        set(&mut snapshot, ToolsLevel::Moves);
        let gpu = |number| GpuKey::Known(GpuUuid([number; 16]));
        snapshot.gpus.insert(gpu(1), Gpu::default());
        // What belongs to no GPU.
        snapshot.gpus.insert(GpuKey::Unknown(u32::MAX), Gpu::default());
        assert_eq!(of_a_gpu(&snapshot), [true; 3]);
        snapshot.gpus.insert(gpu(2), Gpu::default());
        assert_eq!(of_a_gpu(&snapshot), [false, false, true]);
        assert!(Capabilities::of(&snapshot).has(Quantity::FaultInstances));
        set(&mut snapshot, ToolsLevel::Faults);
        assert_eq!(of_a_gpu(&snapshot), [true, false, true]);
        set(&mut snapshot, ToolsLevel::Kinds);
        assert_eq!(of_a_gpu(&snapshot), [false; 3]);
        snapshot.source.backend = "ebpf";
        set(&mut snapshot, ToolsLevel::Faults);
        snapshot.source.not_counted.clear();
        assert_eq!(of_a_gpu(&snapshot), [true; 3]);
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
