//! Memory available to a process, given that of other processes.

use std::time::Duration;

use model::{Block, Party, Process, ProcessId, Step, Verdict, VerdictKind, block::BLOCK_BYTES, verdict::Victim};

use crate::act::{
    intervals::Intervals,
    limits::Limits,
    scene::{Sight, block_at, range_with},
};

/// Time since the last activity of a process within which it may refetch lost memory.
const LATELY: Duration = Duration::from_secs(10);

/// GPU memory in bytes that the process may fill or retain; `None` if the total is unknown. Other
/// processes keep what they use, but the process always has an even share.
pub(crate) fn room_bytes(sight: &Sight<'_>, limits: &Limits) -> Option<u64> {
    let all = sight.memory_bytes?;
    let managed = sight.scene.snapshot.processes.iter().filter_map(|process| process.residency.get(&sight.key()));
    let managed = managed.map(|resident| resident.bytes).fold(0, u64::saturating_add);
    let used = sight.scene.snapshot.gpus.get(&sight.key()).and_then(|gpu| gpu.memory_used_bytes);
    // Memory of unmanaged allocations.
    let unmanaged = used.map_or(0, |used| used.saturating_sub(managed));
    let reserve = all / limits.gpu_reserve_part.max(1);
    let free_for_managed = all.saturating_sub(reserve).saturating_sub(unmanaged);
    let hot: Vec<u64> = sight.others().map(|(other, blocks)| hot_bytes(other, blocks, sight)).collect();
    let unused = free_for_managed.saturating_sub(hot.iter().copied().fold(0, u64::saturating_add));
    let tenants = hot.iter().filter(|bytes| **bytes > 0).count() as u64 + 1;
    Some(unused.max(free_for_managed / tenants))
}

/// GPU memory in bytes that another process reuses: what it has refetched if it streams, otherwise
/// all of its memory.
fn hot_bytes(other: &Process, blocks: &[Block], sight: &Sight<'_>) -> u64 {
    let key = sight.key();
    let resident = other.residency.get(&key).map_or(0, |resident| resident.bytes);
    if !streams(other, sight) || blocks.is_empty() {
        return resident;
    }
    let again = blocks.iter().filter(|block| block.gpu == Some(key) && block.refetched_bytes > 0);
    again.map(|block| block.resident.bytes).fold(0, u64::saturating_add).min(resident)
}

fn streams(process: &Process, sight: &Sight<'_>) -> bool {
    let is_its = |verdict: &&Verdict| verdict.process == process.id && verdict.gpu == sight.key();
    sight.scene.verdicts.active.iter().filter(is_its).any(|verdict| verdict.kind == VerdictKind::Streaming)
}

/// Whether the process uses more memory than the GPU has. All memory of a streaming process counts,
/// as it may have passed only a part so far.
pub(crate) fn exceeds_gpu(sight: &Sight<'_>) -> bool {
    let will_use = || sight.process.managed_bytes.filter(|_| streams(sight.process, sight)).unwrap_or(0);
    sight.memory_bytes.is_some_and(|all| used_bytes(&sight.blocks, sight).max(will_use()) > all)
}

/// Other processes at the GPU whose memory would fit.
pub(crate) fn fitting_others(sight: &Sight<'_>) -> impl Iterator<Item = ProcessId> {
    let fits = |blocks: &[Block]| sight.memory_bytes.is_some_and(|all| used_bytes(blocks, sight) <= all);
    sight.others().filter(move |(_, blocks)| fits(blocks)).map(|(other, _)| other.id)
}

/// Whether another process has lost at least two blocks to this one, in the last window, or ever if
/// it was recently active. When a walk is first detected, the window in which others lose memory to
/// it has not ended, and a process without losses for a moment is still affected.
pub(crate) fn takes_from(sight: &Sight<'_>, other: ProcessId) -> bool {
    let me = sight.process.id;
    let is_taken = |victim: &Victim| victim.evictor == me && victim.victim == other && victim.bytes >= 2 * BLOCK_BYTES;
    sight.at_gpu.victims.iter().any(is_taken)
        || taken_in_total(sight, other) >= 2 * BLOCK_BYTES && was_recently_active(sight, other)
}

/// Bytes that another process has lost to this one in total.
fn taken_in_total(sight: &Sight<'_>, other: ProcessId) -> u64 {
    let (me, key) = (Party::Process(sight.process.id), sight.key());
    let pairs = sight.scene.snapshot.evictions.iter();
    let its = pairs.filter(|pair| pair.gpu == key && pair.evictor == me && pair.victim == Party::Process(other));
    its.map(|pair| pair.bytes).fold(0, u64::saturating_add)
}

/// Whether memory of a process at the GPU was recently active. False if its blocks are unknown:
/// they are read only for processes with a directive.
fn was_recently_active(sight: &Sight<'_>, other: ProcessId) -> bool {
    let (now, key) = (sight.scene.snapshot.taken, sight.key());
    let blocks = sight.others().find(|(process, _)| process.id == other).map(|(_, blocks)| *blocks);
    let is_recent = |block: &Block| now.duration_since(block.last_seen_at).is_ok_and(|ago| ago <= LATELY);
    let here = |blocks: &[Block]| blocks.iter().any(|block| block.gpu == Some(key) && is_recent(block));
    blocks.is_some_and(here)
}

fn used_bytes(blocks: &[Block], sight: &Sight<'_>) -> u64 {
    let has_arrived = |block: &&Block| block.bytes_htod.saturating_add(block.populated_bytes) > 0;
    let here = blocks.iter().filter(|block| block.gpu == Some(sight.key())).filter(has_arrived);
    (here.count() as u64).saturating_mul(BLOCK_BYTES)
}

/// Whether any part of the block at this address is at the GPU.
pub(crate) fn is_resident(address: u64, sight: &Sight<'_>) -> bool {
    let block = block_at(&sight.blocks, address);
    block.is_some_and(|block| block.gpu == Some(sight.key()) && block.resident.bytes > 0)
}

/// Bytes of a step's memory that may be resident at the GPU, and therefore need host memory.
pub(crate) fn resident_bytes(step: &Step, sight: &Sight<'_>) -> u64 {
    if sight.blocks.is_empty() {
        return step.bytes();
    }
    let inside = sight
        .blocks
        .iter()
        .filter(|block| block.address < step.end && step.begin < block.address.saturating_add(BLOCK_BYTES));
    let most = inside.map(|block| block.resident.max_bytes.min(BLOCK_BYTES)).fold(0, u64::saturating_add);
    most.min(step.bytes())
}

/// Bytes of a set of addresses that may be resident in these blocks of any process.
pub(crate) fn resident_within(memory: &Intervals, blocks: &[Block]) -> u64 {
    if memory.bytes() == 0 || blocks.is_empty() {
        return memory.bytes();
    }
    let inside = blocks.iter().filter(|block| memory.touches(block.address, block.address.saturating_add(BLOCK_BYTES)));
    let most = inside.map(|block| block.resident.max_bytes.min(BLOCK_BYTES)).fold(0, u64::saturating_add);
    most.min(memory.bytes())
}

/// Whether the directive covers all of a step's memory.
pub(crate) fn is_covered(step: &Step, sight: &Sight<'_>) -> bool {
    let directive = sight.directive;
    let in_range = directive.range.is_none_or(|range| range.begin <= step.begin && step.end <= range.end);
    let in_large = directive.allocation_larger_than_bytes.is_none()
        || range_with(&sight.ranges, step.begin).is_some_and(|range| step.end <= range.end);
    in_range && in_large
}
