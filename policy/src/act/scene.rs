//! Input of the loop at each interval, and its part for one process at one GPU.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use model::{
    Block, Directive, Following, GpuKey, GpuUuid, LinkBytes, Memory, Mode, Process, ProcessId, Range, Snapshot,
    Verdict, Verdicts,
};

use super::{gpu_context::GpuContext, limits::RANGES_MAX};

/// Input of the loop at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Time of the scene by a monotonic clock, for durations. Reports have the calendar time of the
    /// snapshot.
    pub now: SystemTime,
    /// Snapshot of the counts.
    pub snapshot: &'a Snapshot,
    /// Verdicts on the snapshot.
    pub verdicts: &'a Verdicts,
    /// Memory of the processes in [`super::Engine::required_memory`].
    pub memory: &'a BTreeMap<ProcessId, Memory>,
    /// Bytes over each GPU's link; a GPU that cannot be metered is absent.
    pub links: &'a BTreeMap<GpuUuid, LinkBytes>,
    /// Host memory in bytes that each process may still take: that of the node, or of an ancestor
    /// cgroup if that is less. A missing process may take none.
    pub headroom_bytes: &'a BTreeMap<ProcessId, u64>,
    /// Free host memory of the node in bytes, for all processes together; 0 if unknown.
    pub node_headroom_bytes: u64,
    /// Processes whose calls are followed for plans.
    pub following: &'a BTreeMap<ProcessId, Following>,
    /// Processes whose evaluation is deferred, as their user's share of processor time is used up. One that uvmd acts
    /// on without permission is evaluated all the same.
    pub deferred: &'a BTreeSet<ProcessId>,
    /// Directives by process.
    pub directives: &'a BTreeMap<ProcessId, Directive>,
    /// Whether the kill switch lets uvmd act.
    pub acting_enabled: bool,
}

impl<'a> Scene<'a> {
    /// Processes at these GPUs.
    pub(crate) fn gpu_contexts(&self, gpus: impl Iterator<Item = GpuUuid>) -> BTreeMap<GpuUuid, GpuContext<'a>> {
        GpuContext::all(gpus, self.snapshot, self.verdicts, self.memory)
    }

    /// Known blocks of a process, by address.
    pub(crate) fn blocks_of(&self, process: ProcessId) -> &'a [Block] {
        self.memory.get(&process).map(|memory| memory.blocks.as_slice()).unwrap_or_default()
    }

    /// Ranges of a process, by address, and the number of omitted mapped ones. For an idle process
    /// whose memory was not read, the ranges of the snapshot suffice.
    fn ranges_of(&self, process: &'a Process) -> (Vec<&'a Range>, u64) {
        let all = self.memory.get(&process.id).map_or(&process.ranges.busiest, |memory| &memory.ranges);
        let mut ranges: Vec<&Range> = all.iter().collect();
        let mapped = ranges.iter().filter(|range| range.mapped).count();
        if ranges.len() > RANGES_MAX {
            ranges.select_nth_unstable_by_key(RANGES_MAX, |range| (!range.mapped, Reverse(range.counts.activity())));
            ranges.truncate(RANGES_MAX);
        }
        let skipped = mapped.saturating_sub(RANGES_MAX) as u64;
        ranges.sort_unstable_by_key(|range| range.begin);
        (ranges, skipped)
    }
}

/// View of one process at one GPU.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) process: &'a Process,
    pub(crate) gpu: GpuUuid,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) verdicts: &'a [&'a Verdict],
    pub(crate) ranges: Vec<&'a Range>,
    /// Number of omitted ranges, which policies do not know.
    pub(crate) skipped_ranges: u64,
    pub(crate) blocks: Cow<'a, [Block]>,
    pub(crate) gpu_context: &'a GpuContext<'a>,
    /// Processes at this GPU that uvmd acts on.
    acted_on: &'a BTreeSet<ProcessId>,
    pub(crate) directive: &'a Directive,
    pub(crate) scene: &'a Scene<'a>,
}

impl<'a> Target<'a> {
    /// Checks whether directive and kill switch let uvmd act on the process.
    ///
    /// # Errors
    /// If not: the reason.
    pub(crate) fn permits_acting(&self) -> Result<(), String> {
        if self.directive.mode != Mode::Act {
            Err("the mode for this process is not act".to_owned())
        } else if !self.scene.acting_enabled {
            Err("acting is switched off".to_owned())
        } else {
            Ok(())
        }
    }

    pub(crate) fn of(
        scene: &'a Scene<'a>,
        process: &'a Process,
        gpu: GpuUuid,
        directive: &'a Directive,
        gpu_context: &'a GpuContext<'a>,
        acted_on: &'a BTreeSet<ProcessId>,
    ) -> Self {
        let key = GpuKey::Known(gpu);
        let (mut ranges, skipped_ranges) = scene.ranges_of(process);
        ranges.retain(|range| range.mapped && covers_any(directive, range.begin, range.end));
        let blocks = scene.blocks_of(process.id);
        // Most directives cover all memory, which needs no copy.
        let blocks = if directive.range.is_none() && directive.allocation_larger_than_bytes.is_none() {
            Cow::Borrowed(blocks)
        } else {
            let is_in_ranges = |block: &&Block| range_at(&ranges, block.address).is_some();
            let inside = |block: &&Block| {
                directive.range.is_none_or(|range| range.begin <= block.address && block.address < range.end)
            };
            Cow::Owned(blocks.iter().filter(is_in_ranges).filter(inside).cloned().collect())
        };
        Self {
            process,
            gpu,
            memory_bytes: scene.snapshot.gpus.get(&key).and_then(|gpu| gpu.memory_bytes),
            verdicts: gpu_context.verdicts(process.id),
            ranges,
            skipped_ranges,
            blocks,
            gpu_context,
            acted_on,
            directive,
            scene,
        }
    }

    pub(crate) const fn key(&self) -> GpuKey {
        GpuKey::Known(self.gpu)
    }

    /// Other processes at the GPU that uvmd acts on.
    pub(crate) fn others_acted_on(&self) -> impl Iterator<Item = ProcessId> {
        self.acted_on.iter().copied().filter(|other| *other != self.process.id)
    }
}

/// Block at this address. `blocks`: sorted by address.
pub(crate) fn block_at(blocks: &[Block], address: u64) -> Option<&Block> {
    blocks.get(blocks.binary_search_by_key(&address, |block| block.address).ok()?)
}

/// Range that contains this address. `ranges`: mapped, sorted by address.
pub(crate) fn range_at<'a>(ranges: &[&'a Range], address: u64) -> Option<&'a Range> {
    let after = ranges.partition_point(|range| range.begin <= address);
    ranges.get(after.checked_sub(1)?).copied().filter(|range| address < range.end)
}

/// Whether a directive covers any part of this range.
fn covers_any(directive: &Directive, begin: u64, end: u64) -> bool {
    directive.range.is_none_or(|range| begin < range.end && range.begin < end)
        && directive.allocation_larger_than_bytes.is_none_or(|least| end.saturating_sub(begin) > least)
}
