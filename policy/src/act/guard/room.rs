//! Memory available to a process, given that of other processes.

use std::time::Duration;

use model::{Block, ProcessId, Step, block::BLOCK_BYTES};

use crate::act::{
    gpu_context::Evicted,
    intervals::Intervals,
    limits::Limits,
    scene::{Target, block_at, range_at},
};

/// Time since the last activity of a process within which it may refetch lost memory.
const RECENT: Duration = Duration::from_secs(10);
/// Minimum memory that an affected process has lost.
const LOST_BYTES_MIN: u64 = 2 * BLOCK_BYTES;

/// GPU memory in bytes that the process may fill or retain; `None` if the total is unknown. Other
/// processes keep what they use, but the process always has an even share.
pub(crate) fn room_bytes(target: &Target<'_>, limits: &Limits) -> Option<u64> {
    let all = target.memory_bytes?;
    let used = target.scene.snapshot.gpus.get(&target.key()).and_then(|gpu| gpu.memory_used_bytes);
    // Memory of unmanaged allocations.
    let unmanaged = used.map_or(0, |used| used.saturating_sub(target.gpu_context.resident_bytes));
    let reserve = all / limits.gpu_reserve_part.max(1);
    let free_for_managed = all.saturating_sub(reserve).saturating_sub(unmanaged);
    let (hot_bytes, others) = target.gpu_context.demand(target.key()).hot_of_others(target.process.id);
    Some(free_for_managed.saturating_sub(hot_bytes).max(free_for_managed / (others + 1)))
}

/// Whether the process uses more memory than the GPU has, whatever part of it the directive covers. All memory of a
/// streaming process counts, as it may have passed only a part so far.
pub(crate) fn exceeds_gpu(target: &Target<'_>) -> bool {
    let will_use =
        || target.process.managed_bytes.filter(|_| target.gpu_context.streams(target.process.id)).unwrap_or(0);
    let used = || target.gpu_context.demand(target.key()).used_bytes(target.process.id);
    target.memory_bytes.is_some_and(|all| used().max(will_use()) > all)
}

/// Whether `other` is another process at the GPU, and its memory fits on the GPU.
pub(crate) fn other_fits_gpu(target: &Target<'_>, other: ProcessId) -> bool {
    let fits =
        || target.memory_bytes.is_some_and(|all| target.gpu_context.demand(target.key()).used_bytes(other) <= all);
    other != target.process.id && target.gpu_context.ids.contains(&other) && fits()
}

/// Processes that have lost at least two blocks to this one: in the last window, or at any time if
/// they were recently active. Totals count because the window of the losses has not ended when a
/// walk is first detected, and because a process without losses for a moment is still affected.
pub(crate) fn eviction_victims<'a>(target: &'a Target<'_>) -> impl Iterator<Item = ProcessId> + 'a {
    let evicted = target.gpu_context.evicted_by(target.process.id);
    let is_affected = |other: ProcessId, evicted: Evicted| {
        evicted.in_window_bytes >= LOST_BYTES_MIN
            || evicted.total_bytes >= LOST_BYTES_MIN && was_recently_active(target, other)
    };
    evicted.filter(move |(other, evicted)| is_affected(*other, *evicted)).map(|(other, _)| other)
}

/// Whether memory of a process at the GPU was recently active. False if its blocks are unknown:
/// they are read only for processes with a directive.
fn was_recently_active(target: &Target<'_>, other: ProcessId) -> bool {
    let last_seen_at = target.gpu_context.blocks_of(other).map(|sums| sums.last_seen_at);
    // Calendar time may be set, so that the last activity is later.
    let ago = |at| target.scene.snapshot.taken.duration_since(at).unwrap_or_default();
    last_seen_at.is_some_and(|at| ago(at) <= RECENT)
}

/// Whether the block at this address is at least partly resident at the GPU.
pub(crate) fn is_at_gpu(address: u64, target: &Target<'_>) -> bool {
    let block = block_at(&target.blocks, address);
    block.is_some_and(|block| block.gpu == Some(target.key()) && block.resident.bytes > 0)
}

/// Bytes of a step's memory that may be resident at the GPU, and therefore need host memory.
pub(crate) fn resident_bytes(step: &Step, target: &Target<'_>) -> u64 {
    if target.blocks.is_empty() {
        return step.bytes();
    }
    // Blocks are sorted by address.
    let first = target.blocks.partition_point(|block| block.address.saturating_add(BLOCK_BYTES) <= step.begin);
    let inside = target.blocks.iter().skip(first).take_while(|block| block.address < step.end);
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
pub(crate) fn is_covered(step: &Step, target: &Target<'_>) -> bool {
    let directive = target.directive;
    let in_range = directive.range.is_none_or(|range| range.begin <= step.begin && step.end <= range.end);
    let in_large = directive.allocation_larger_than_bytes.is_none()
        || range_at(&target.ranges, step.begin).is_some_and(|range| step.end <= range.end);
    in_range && in_large
}
