//! What the loop is told at each interval, and what of it concerns one process at one GPU.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use model::{
    Block, GpuKey, GpuUuid, LinkBytes, Process, ProcessId, Range, Snapshot, Verdict, Verdicts, Wish, verdict::Victim,
};

use super::{
    limits::{Limits, RENEWAL_BYTES, RENEWALS_PART},
    reactor::{Accessed, View},
};

/// Everything at one moment. The clock is the snapshot's.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// What was counted.
    pub snapshot: &'a Snapshot,
    /// What is wrong.
    pub verdicts: &'a Verdicts,
    /// All known blocks of the processes that [`super::Acting::wants_blocks`] named, by address.
    pub blocks: &'a BTreeMap<ProcessId, Vec<Block>>,
    /// What went over each GPU's link; a GPU of which that cannot be told is not in here.
    pub links: &'a BTreeMap<GpuUuid, LinkBytes>,
    /// Host memory that each process may still take: the node's, or less where a cgroup above it allows less. One that is not in here may take none.
    pub headroom_bytes: &'a BTreeMap<ProcessId, u64>,
    /// Host memory that the node has left, for all of them together; none where that cannot be told.
    pub node_headroom_bytes: u64,
    /// What is wanted for whom.
    pub wishes: &'a BTreeMap<ProcessId, Wish>,
    /// Whether uvmd may act: the kill switch.
    pub on: bool,
}

/// What is seen of one process at one GPU.
#[derive(Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) process: &'a Process,
    pub(crate) gpu: GpuUuid,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) verdicts: Vec<&'a Verdict>,
    pub(crate) victims: Vec<Victim>,
    pub(crate) ranges: Vec<&'a Range>,
    pub(crate) blocks: Cow<'a, [Block]>,
    pub(crate) others: Vec<(&'a Process, &'a [Block])>,
    /// The other processes at this GPU for which uvmd is doing something.
    pub(crate) acted_on: BTreeSet<ProcessId>,
    pub(crate) wish: &'a Wish,
    pub(crate) scene: &'a Scene<'a>,
}

impl<'a> Sight<'a> {
    pub(crate) fn of(
        scene: &'a Scene<'a>,
        process: &'a Process,
        gpu: GpuUuid,
        wish: &'a Wish,
        acted_on: BTreeSet<ProcessId>,
    ) -> Self {
        let key = GpuKey::Known(gpu);
        let at_gpu = |verdict: &&Verdict| verdict.gpu == key && verdict.process == process.id;
        let blocks_of = |process: ProcessId| scene.blocks.get(&process).map(Vec::as_slice).unwrap_or_default();
        let others = scene
            .snapshot
            .processes
            .iter()
            .filter(|other| other.id != process.id && other.ended.is_none() && other.gpus.contains_key(&key));
        let ranges: Vec<&Range> = process
            .ranges
            .busiest
            .iter()
            .filter(|range| range.mapped && is_meant(wish, range.begin, range.end))
            .collect();
        let blocks = blocks_of(process.id);
        // Most wishes are about all memory, and then nothing is copied.
        let blocks = if wish.range.is_none() && wish.allocation_larger_than_bytes.is_none() {
            Cow::Borrowed(blocks)
        } else {
            let meant =
                |block: &&Block| ranges.iter().any(|range| range.begin <= block.address && block.address < range.end);
            let inside =
                |block: &&Block| wish.range.is_none_or(|(begin, end)| begin <= block.address && block.address < end);
            Cow::Owned(blocks.iter().filter(meant).filter(inside).cloned().collect())
        };
        Self {
            process,
            gpu,
            memory_bytes: scene.snapshot.gpus.get(&key).and_then(|gpu| gpu.memory_bytes),
            verdicts: scene.verdicts.active.iter().filter(at_gpu).collect(),
            victims: scene.verdicts.victims.iter().filter(|victim| victim.gpu == key).copied().collect(),
            ranges,
            blocks,
            others: others.map(|other| (other, blocks_of(other.id))).collect(),
            acted_on,
            wish,
            scene,
        }
    }

    /// What a reactor sees of it.
    pub(crate) fn view(&self, accessed: Option<Accessed>, limits: &Limits) -> View<'_> {
        let budget = self.wish.budget.bytes_per_second.unwrap_or(u64::MAX);
        let bytes_per_second = budget.min(limits.process_bytes_per_second).min(limits.node_bytes_per_second);
        View {
            now: self.scene.snapshot.taken,
            process: self.process,
            gpu: self.gpu,
            gpu_memory_bytes: self.memory_bytes,
            verdicts: &self.verdicts,
            victims: &self.victims,
            accessed,
            ranges: &self.ranges,
            blocks: &self.blocks,
            others: &self.others,
            gpu_totals: self.scene.snapshot.gpu_totals.get(&self.key()),
            renewals_per_second: bytes_per_second / RENEWAL_BYTES / RENEWALS_PART,
            parameters: &self.wish.parameters,
        }
    }

    pub(crate) const fn key(&self) -> GpuKey {
        GpuKey::Known(self.gpu)
    }
}

/// The block at this address, of blocks by address.
pub(crate) fn block_at(blocks: &[Block], address: u64) -> Option<&Block> {
    blocks.get(blocks.binary_search_by_key(&address, |block| block.address).ok()?)
}

/// Whether a wish is about anything of this range.
fn is_meant(wish: &Wish, begin: u64, end: u64) -> bool {
    wish.range.is_none_or(|(from, until)| begin < until && from < end)
        && wish.allocation_larger_than_bytes.is_none_or(|least| end.saturating_sub(begin) > least)
}
