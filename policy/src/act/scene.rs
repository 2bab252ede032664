//! Input of the loop at each interval, and its part for one process at one GPU.

use std::{
    borrow::Cow,
    cell::OnceCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use model::{
    Block, Counters, Directive, Following, GpuKey, GpuUuid, LinkBytes, Memory, Mode, Party, Process, ProcessId, Range,
    Snapshot, Verdict, VerdictKind, Verdicts, block::BLOCK_BYTES, verdict::Victim,
};

use super::limits::RANGES_MAX;

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
    /// Memory of the processes in [`super::Acting::wants_memory`].
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
    /// Directives by process.
    pub directives: &'a BTreeMap<ProcessId, Directive>,
    /// Whether the kill switch lets uvmd act.
    pub on: bool,
}

impl<'a> Scene<'a> {
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
        let unseen = mapped.saturating_sub(RANGES_MAX) as u64;
        ranges.sort_unstable_by_key(|range| range.begin);
        (ranges, unseen)
    }
}

/// What the views of all processes at a GPU share. Computed once for a scene, as each process would look at all
/// others otherwise.
#[derive(Debug, Default)]
pub(crate) struct AtGpu<'a> {
    /// Live processes with counts at the GPU, and their known blocks.
    pub(crate) processes: Vec<(&'a Process, &'a [Block])>,
    pub(crate) ids: Arc<BTreeSet<ProcessId>>,
    verdicts: BTreeMap<ProcessId, Vec<&'a Verdict>>,
    pub(crate) victims: Vec<Victim>,
    /// Bytes of each victim evicted for each evictor, in the last window and in total.
    evicted: BTreeMap<ProcessId, BTreeMap<ProcessId, Evicted>>,
    /// Managed memory at the GPU, of all processes.
    pub(crate) resident_bytes: u64,
    demand: OnceCell<Demand>,
    /// Bytes that arrived for all of the processes.
    arrived_bytes: u64,
    /// Bytes of other processes evicted for each process.
    evicted_for: BTreeMap<ProcessId, u64>,
}

/// Bytes of one process evicted for another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evicted {
    pub(crate) in_window_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// GPU memory in bytes that each process needs, as far as its blocks are known.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Of the blocks in which anything has arrived.
    used: BTreeMap<ProcessId, u64>,
    /// Of what it reuses: what it has refetched if it streams, otherwise all of its memory.
    hot: BTreeMap<ProcessId, u64>,
    hot_bytes: u64,
}

impl Demand {
    fn of(at_gpu: &AtGpu<'_>, key: GpuKey) -> Self {
        let mut demand = Self::default();
        for (process, blocks) in &at_gpu.processes {
            demand.used.insert(process.id, used_bytes(blocks, key));
            let hot = hot_bytes(process, blocks, key, at_gpu.streams(process.id));
            if hot > 0 {
                demand.hot.insert(process.id, hot);
                demand.hot_bytes = demand.hot_bytes.saturating_add(hot);
            }
        }
        demand
    }

    /// Memory that the others reuse, and their number.
    pub(crate) fn hot_of_others(&self, process: ProcessId) -> (u64, u64) {
        let own = self.hot.get(&process);
        let others = self.hot.len().saturating_sub(usize::from(own.is_some()));
        (self.hot_bytes.saturating_sub(own.copied().unwrap_or_default()), others as u64)
    }

    /// Used memory of a process.
    pub(crate) fn used_bytes(&self, process: ProcessId) -> u64 {
        self.used.get(&process).copied().unwrap_or_default()
    }
}

/// GPU memory in bytes of the blocks in which anything has arrived.
pub(crate) fn used_bytes(blocks: &[Block], key: GpuKey) -> u64 {
    let has_arrived = |block: &&Block| block.bytes_htod.saturating_add(block.populated_bytes) > 0;
    let here = blocks.iter().filter(|block| block.gpu == Some(key)).filter(has_arrived);
    (here.count() as u64).saturating_mul(BLOCK_BYTES)
}

fn hot_bytes(process: &Process, blocks: &[Block], key: GpuKey, streams: bool) -> u64 {
    let resident = process.residency.get(&key).map_or(0, |resident| resident.bytes);
    if !streams || blocks.is_empty() {
        return resident;
    }
    let again = blocks.iter().filter(|block| block.gpu == Some(key) && block.refetched_bytes > 0);
    again.map(|block| block.resident.bytes).fold(0, u64::saturating_add).min(resident)
}

impl<'a> AtGpu<'a> {
    /// Shared parts of the views at these GPUs.
    pub(crate) fn all(scene: &Scene<'a>, gpus: impl Iterator<Item = GpuUuid>) -> BTreeMap<GpuUuid, Self> {
        let mut all: BTreeMap<GpuUuid, Self> = gpus.map(|gpu| (gpu, Self::default())).collect();
        for process in &scene.snapshot.processes {
            for (key, resident) in &process.residency {
                if let Some(at_gpu) = key.uuid().and_then(|gpu| all.get_mut(&gpu)) {
                    at_gpu.resident_bytes = at_gpu.resident_bytes.saturating_add(resident.bytes);
                }
            }
            if process.exited_at.is_some() {
                continue;
            }
            for (key, counters) in &process.gpus {
                let Some(at_gpu) = key.uuid().and_then(|gpu| all.get_mut(&gpu)) else { continue };
                at_gpu.processes.push((process, scene.blocks_of(process.id)));
                Arc::make_mut(&mut at_gpu.ids).insert(process.id);
                at_gpu.arrived_bytes = at_gpu.arrived_bytes.saturating_add(arrived_bytes(counters));
            }
        }
        for verdict in &scene.verdicts.active {
            if let Some(at_gpu) = verdict.gpu.uuid().and_then(|gpu| all.get_mut(&gpu)) {
                at_gpu.verdicts.entry(verdict.process).or_default().push(verdict);
            }
        }
        for victim in &scene.verdicts.victims {
            if let Some(at_gpu) = victim.gpu.uuid().and_then(|gpu| all.get_mut(&gpu)) {
                at_gpu.victims.push(*victim);
                let evicted = at_gpu.evicted.entry(victim.evictor).or_default().entry(victim.victim).or_default();
                evicted.in_window_bytes = evicted.in_window_bytes.max(victim.bytes);
            }
        }
        for pair in &scene.snapshot.evictions {
            let (Some(at_gpu), Party::Process(evictor)) =
                (pair.gpu.uuid().and_then(|gpu| all.get_mut(&gpu)), pair.evictor)
            else {
                continue;
            };
            if pair.victim != pair.evictor {
                let evicted = at_gpu.evicted_for.entry(evictor).or_default();
                *evicted = evicted.saturating_add(pair.bytes);
            }
            if let Party::Process(victim) = pair.victim {
                let evicted = at_gpu.evicted.entry(evictor).or_default().entry(victim).or_default();
                evicted.total_bytes = evicted.total_bytes.saturating_add(pair.bytes);
            }
        }
        all
    }

    /// Whether a process streams, by the active verdicts.
    pub(crate) fn streams(&self, process: ProcessId) -> bool {
        let verdicts = self.verdicts.get(&process).map(Vec::as_slice).unwrap_or_default();
        verdicts.iter().any(|verdict| verdict.kind == VerdictKind::Streaming)
    }

    /// Victims of a process, and what they have lost to it.
    pub(crate) fn evicted_by(&self, evictor: ProcessId) -> impl Iterator<Item = (ProcessId, Evicted)> {
        let victims = self.evicted.get(&evictor).into_iter().flatten();
        victims.map(|(victim, evicted)| (*victim, *evicted))
    }
}

/// Bytes that arrived at a GPU for a process, by its counts.
fn arrived_bytes(counters: &Counters) -> u64 {
    counters.bytes_htod.total().saturating_add(counters.populated_bytes)
}

/// View of one process at one GPU.
#[derive(Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) process: &'a Process,
    pub(crate) gpu: GpuUuid,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) verdicts: Vec<&'a Verdict>,
    pub(crate) ranges: Vec<&'a Range>,
    /// Number of omitted ranges, which policies do not know.
    pub(crate) unseen_ranges: u64,
    pub(crate) blocks: Cow<'a, [Block]>,
    pub(crate) at_gpu: &'a AtGpu<'a>,
    /// Processes at this GPU that uvmd acts on.
    acted_on: &'a BTreeSet<ProcessId>,
    pub(crate) directive: &'a Directive,
    pub(crate) scene: &'a Scene<'a>,
}

impl<'a> Sight<'a> {
    /// Checks whether directive and kill switch let uvmd act on the process.
    ///
    /// # Errors
    /// If not: the reason.
    pub(crate) fn permits_acting(&self) -> Result<(), String> {
        if self.directive.mode != Mode::Act {
            Err("the mode for this process is not act".to_owned())
        } else if !self.scene.on {
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
        at_gpu: &'a AtGpu<'a>,
        acted_on: &'a BTreeSet<ProcessId>,
    ) -> Self {
        let key = GpuKey::Known(gpu);
        let (mut ranges, unseen_ranges) = scene.ranges_of(process);
        ranges.retain(|range| range.mapped && is_covered(directive, range.begin, range.end));
        let blocks = scene.blocks_of(process.id);
        // Most directives cover all memory, which needs no copy.
        let blocks = if directive.range.is_none() && directive.allocation_larger_than_bytes.is_none() {
            Cow::Borrowed(blocks)
        } else {
            let is_in_ranges = |block: &&Block| range_with(&ranges, block.address).is_some();
            let inside = |block: &&Block| {
                directive.range.is_none_or(|range| range.begin <= block.address && block.address < range.end)
            };
            Cow::Owned(blocks.iter().filter(is_in_ranges).filter(inside).cloned().collect())
        };
        Self {
            process,
            gpu,
            memory_bytes: scene.snapshot.gpus.get(&key).and_then(|gpu| gpu.memory_bytes),
            verdicts: at_gpu.verdicts.get(&process.id).cloned().unwrap_or_default(),
            ranges,
            unseen_ranges,
            blocks,
            at_gpu,
            acted_on,
            directive,
            scene,
        }
    }

    pub(crate) const fn key(&self) -> GpuKey {
        GpuKey::Known(self.gpu)
    }

    /// Memory that the processes at the GPU need. Computed once for a scene.
    pub(crate) fn demand(&self) -> &Demand {
        self.at_gpu.demand.get_or_init(|| Demand::of(self.at_gpu, self.key()))
    }

    /// Other processes at the GPU that uvmd acts on.
    pub(crate) fn others_acted_on(&self) -> impl Iterator<Item = ProcessId> {
        self.acted_on.iter().copied().filter(|other| *other != self.process.id)
    }

    /// Bytes that arrived at the GPU for the others.
    pub(crate) fn others_arrived_bytes(&self) -> u64 {
        let own = self.process.gpus.get(&self.key()).map_or(0, arrived_bytes);
        self.at_gpu.arrived_bytes.saturating_sub(own)
    }

    /// Bytes of the others evicted for the process.
    pub(crate) fn others_evicted_bytes(&self) -> u64 {
        self.at_gpu.evicted_for.get(&self.process.id).copied().unwrap_or_default()
    }
}

/// Block at this address. `blocks`: sorted by address.
pub(crate) fn block_at(blocks: &[Block], address: u64) -> Option<&Block> {
    blocks.get(blocks.binary_search_by_key(&address, |block| block.address).ok()?)
}

/// Range that contains this address. `ranges`: mapped, sorted by address.
pub(crate) fn range_with<'a>(ranges: &[&'a Range], address: u64) -> Option<&'a Range> {
    let after = ranges.partition_point(|range| range.begin <= address);
    ranges.get(after.checked_sub(1)?).copied().filter(|range| address < range.end)
}

/// Whether a directive covers any part of this range.
fn is_covered(directive: &Directive, begin: u64, end: u64) -> bool {
    directive.range.is_none_or(|range| begin < range.end && range.begin < end)
        && directive.allocation_larger_than_bytes.is_none_or(|least| end.saturating_sub(begin) > least)
}
