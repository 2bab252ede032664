//! Memory available to a process, given that of other processes.

use std::time::Duration;

use model::{Block, ProcessId, Step, block::BLOCK_BYTES};

use crate::act::{
    at_gpu::{Evicted, used_bytes},
    intervals::Intervals,
    limits::Limits,
    scene::{Sight, block_at, range_with},
};

/// Time since the last activity of a process within which it may refetch lost memory.
const LATELY: Duration = Duration::from_secs(10);
/// Memory that an affected process has lost, at least.
const LOST_BYTES_MIN: u64 = 2 * BLOCK_BYTES;

/// GPU memory in bytes that the process may fill or retain; `None` if the total is unknown. Other
/// processes keep what they use, but the process always has an even share.
pub(crate) fn room_bytes(sight: &Sight<'_>, limits: &Limits) -> Option<u64> {
    let all = sight.memory_bytes?;
    let used = sight.scene.snapshot.gpus.get(&sight.key()).and_then(|gpu| gpu.memory_used_bytes);
    // Memory of unmanaged allocations.
    let unmanaged = used.map_or(0, |used| used.saturating_sub(sight.at_gpu.resident_bytes));
    let reserve = all / limits.gpu_reserve_part.max(1);
    let free_for_managed = all.saturating_sub(reserve).saturating_sub(unmanaged);
    let (hot_bytes, others) = sight.at_gpu.demand(sight.key()).hot_of_others(sight.process.id);
    Some(free_for_managed.saturating_sub(hot_bytes).max(free_for_managed / (others + 1)))
}

/// Whether the process uses more memory than the GPU has. All memory of a streaming process counts,
/// as it may have passed only a part so far.
pub(crate) fn exceeds_gpu(sight: &Sight<'_>) -> bool {
    let will_use = || sight.process.managed_bytes.filter(|_| sight.at_gpu.streams(sight.process.id)).unwrap_or(0);
    sight.memory_bytes.is_some_and(|all| used_bytes(&sight.blocks, sight.key()).max(will_use()) > all)
}

/// Whether another process is at the GPU, and its memory would fit.
pub(crate) fn is_fitting_other(sight: &Sight<'_>, other: ProcessId) -> bool {
    let fits = || sight.memory_bytes.is_some_and(|all| sight.at_gpu.demand(sight.key()).used_bytes(other) <= all);
    other != sight.process.id && sight.at_gpu.ids.contains(&other) && fits()
}

/// Processes that have lost at least two blocks to this one, in the last window, or ever if they were recently
/// active. When a walk is first detected, the window in which others lose memory to it has not ended, and a
/// process without losses for a moment is still affected.
pub(crate) fn takes_from<'a>(sight: &'a Sight<'_>) -> impl Iterator<Item = ProcessId> + 'a {
    let evicted = sight.at_gpu.evicted_by(sight.process.id);
    let is_affected = |other: ProcessId, evicted: Evicted| {
        evicted.in_window_bytes >= LOST_BYTES_MIN
            || evicted.total_bytes >= LOST_BYTES_MIN && was_recently_active(sight, other)
    };
    evicted.filter(move |(other, evicted)| is_affected(*other, *evicted)).map(|(other, _)| other)
}

/// Whether memory of a process at the GPU was recently active. False if its blocks are unknown:
/// they are read only for processes with a directive.
fn was_recently_active(sight: &Sight<'_>, other: ProcessId) -> bool {
    let (now, key) = (sight.scene.snapshot.taken, sight.key());
    let is_recent = |block: &Block| now.duration_since(block.last_seen_at).is_ok_and(|ago| ago <= LATELY);
    sight.scene.blocks_of(other).iter().any(|block| block.gpu == Some(key) && is_recent(block))
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
    // Blocks are sorted by address.
    let first = sight.blocks.partition_point(|block| block.address.saturating_add(BLOCK_BYTES) <= step.begin);
    let inside = sight.blocks.iter().skip(first).take_while(|block| block.address < step.end);
    let most = inside.map(|block| block.resident.max_bytes.min(BLOCK_BYTES)).fold(0, u64::saturating_add);
    most.min(step.bytes())
}

/// Bytes of a set of addresses that may be resident in these blocks of any process.
pub(crate) fn resident_within(memory: &Intervals, blocks: &[Block]) -> u64 {
    let bytes = memory.bytes();
    if bytes == 0 || blocks.is_empty() {
        return bytes;
    }
    let inside = blocks.iter().filter(|block| memory.touches(block.address, block.address.saturating_add(BLOCK_BYTES)));
    let most = inside.map(|block| block.resident.max_bytes.min(BLOCK_BYTES)).fold(0, u64::saturating_add);
    most.min(bytes)
}

/// Whether the directive covers all of a step's memory.
pub(crate) fn is_covered(step: &Step, sight: &Sight<'_>) -> bool {
    let directive = sight.directive;
    let in_range = directive.range.is_none_or(|range| range.begin <= step.begin && step.end <= range.end);
    let in_large = directive.allocation_larger_than_bytes.is_none()
        || range_with(&sight.ranges, step.begin).is_some_and(|range| step.end <= range.end);
    in_range && in_large
}
