//! Retention of blocks at the GPU: their selection, number and renewals. Common part of the
//! policies that protect memory.
//!
//! The driver evicts the block that arrived first, used or not. A renewal moves a block to the end
//! of the eviction order and copies nothing. The frames outside the set are replaced once as many
//! bytes have arrived, for any process, as these frames hold. The set stays resident if each of its
//! blocks is renewed before that. The arrivals per interval are measured and limit the size of the
//! set.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{Action, Block, CallResult, Counters, Outcome, Process, Range, Step, block::BLOCK_BYTES};

use super::renewal_rate::{RENEWALS_PER_PERIOD, RenewalRate};
use crate::act::{
    intervals::Intervals,
    live::live_policy::View,
    scene::{block_at, range_at},
};

/// GPU memory of all processes together, and bytes that arrived there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// Resident bytes; while the driver evicts, the GPU's capacity.
    pub(crate) resident_bytes: u64,
    /// Cumulative bytes copied or populated, including those of exited processes.
    pub(crate) arrived_bytes: u64,
}

impl Pressure {
    pub(crate) fn of(view: &View<'_>) -> Self {
        let own = view.process.residency.get(&view.key()).map_or(0, |resident| resident.bytes);
        // A page occupies the frame of a whole block. If only bytes were counted, a set with many
        // evicted blocks would seem too large, and more of it would be released.
        let in_frames = whole_blocks(view).filter(|block| block.resident.bytes > 0).count() as u64;
        let resident = own.max(in_frames.saturating_mul(BLOCK_BYTES)).saturating_add(others_bytes(view));
        Self {
            resident_bytes: resident.min(view.gpu_memory_bytes.unwrap_or(u64::MAX)),
            arrived_bytes: view.gpu_totals.map_or(0, arrived),
        }
    }
}

/// Cumulative bytes that arrived at the GPU for a process.
pub(crate) fn arrived_bytes(process: &Process, view: &View<'_>) -> u64 {
    process.gpus.get(&view.key()).map_or(0, arrived)
}

fn arrived(counters: &Counters) -> u64 {
    let copied = counters.bytes_htod.total().saturating_add(counters.bytes_dtod.total());
    copied.saturating_add(counters.populated_bytes)
}

/// GPU memory of other processes, in bytes.
pub(crate) fn others_bytes(view: &View<'_>) -> u64 {
    let resident = |other: &Process| other.residency.get(&view.key()).map_or(0, |resident| resident.bytes);
    view.others().map(|(other, _)| resident(other)).fold(0, u64::saturating_add)
}

/// Blocks of the process at this GPU that the driver manages as a whole. Only these are in its
/// eviction order.
pub(crate) fn whole_blocks<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Block> {
    let (ranges, key) = (view.ranges, view.key());
    view.blocks.iter().filter(move |block| block.gpu == Some(key) && is_whole(block, ranges))
}

fn is_whole(block: &Block, ranges: &[&Range]) -> bool {
    range_at(ranges, block.address).is_some_and(|range| block.address.saturating_add(BLOCK_BYTES) <= range.end)
}

/// Whether more than half of a block is at the GPU. The rest has to be fetched anyway.
pub(crate) const fn is_mostly_resident(block: &Block) -> bool {
    block.resident.bytes > BLOCK_BYTES / 2
}

/// Steps for blocks, one per contiguous run, by address.
pub(crate) fn sorted_steps(blocks: impl IntoIterator<Item = u64>, action: Action) -> Vec<Step> {
    let sorted: BTreeSet<u64> = blocks.into_iter().collect();
    ordered_steps(sorted, action)
}

/// Steps for blocks, one per contiguous run, in the given order.
fn ordered_steps(blocks: impl IntoIterator<Item = u64>, action: Action) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for begin in blocks {
        let end = begin.saturating_add(BLOCK_BYTES);
        match steps.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => steps.push(Step { begin, end, action }),
        }
    }
    steps
}

/// Block at this address, if the driver manages it as a whole at this GPU.
fn whole_block<'a>(view: &View<'a>, address: u64) -> Option<&'a Block> {
    block_at(view.blocks, address).filter(|block| block.gpu == Some(view.key()) && is_whole(block, view.ranges))
}

/// Share of the set that is released at a time as a probe: 1 / this. A released block returns if
/// the program still uses it.
const RELEASED_PART: usize = 32;
/// Arrivals after which a block that has not returned is unused, in multiples of the GPU's
/// contents: a walk through that much memory passes it again.
const UNUSED_AFTER_ROUNDS: u64 = 4;
/// Minimum number of released blocks that did not return for the set to count as unused. They also
/// have to outnumber those that did.
const UNUSED_MIN: u64 = 8;

/// Set of retained blocks.
#[derive(Debug)]
pub(crate) struct RetainedSet {
    /// Blocks of the set, most valuable first.
    members: Vec<Member>,
    /// Cumulative arrived bytes at the last interval.
    last_arrived_bytes: u64,
    renewal_rate: RenewalRate,
    /// Minimum of GPU memory left to all other memory, in bytes.
    other_min_bytes: u64,
    claim: Claim,
    /// Numbers of released blocks that returned and that did not, both decaying over time.
    returned: u64,
    gone: u64,
}

/// Share of GPU memory that the set may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// GPU memory that other processes do not hold.
    ExceptOthers,
    /// All GPU memory, including what other processes took.
    All,
}

impl Claim {
    fn others_bytes(self, view: &View<'_>) -> u64 {
        if self == Self::All { 0 } else { others_bytes(view) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Member {
    address: u64,
    /// Whether it was resident at the last interval.
    is_resident: bool,
    /// Cumulative arrived bytes when it was last seen resident, or joined.
    last_resident: u64,
    /// Cumulative arrived bytes at its last renewal or arrival; 0 if unknown.
    renewed: u64,
    /// Position within one order of renewals, from 0 on.
    renewal_index: u64,
    /// Cumulative arrived bytes at its last known use, which is its arrival.
    last_used: u64,
    /// Whether it is released as a probe of its use.
    is_released: bool,
}

impl Member {
    const fn is_renewed(&self) -> bool {
        self.is_resident && !self.is_released
    }

    const fn joining(address: u64, arrived_bytes: u64) -> Self {
        Self {
            address,
            is_resident: false,
            last_resident: arrived_bytes,
            renewed: 0,
            renewal_index: 0,
            last_used: arrived_bytes,
            is_released: false,
        }
    }
}

impl RetainedSet {
    /// Set of as many candidates as fit. `candidates`: most valuable first; `per_interval_bytes`:
    /// arrivals per [`INTERVAL`](super::renewal_rate::INTERVAL); `other_min_bytes`: minimum left to
    /// other memory, which is prefetched.
    pub(crate) fn new(
        view: &View<'_>,
        candidates: impl IntoIterator<Item = u64>,
        per_interval_bytes: u64,
        other_min_bytes: u64,
        claim: Claim,
    ) -> Self {
        let pressure = Pressure::of(view);
        let renewal_rate = RenewalRate::new(view.now, per_interval_bytes);
        let fitting = renewal_rate.fitting(view, pressure.resident_bytes, claim.others_bytes(view), other_min_bytes);
        let joining = |address| Member::joining(address, pressure.arrived_bytes);
        let members = candidates.into_iter().take(fitting).map(joining).collect();
        let mut retained = Self {
            members,
            last_arrived_bytes: pressure.arrived_bytes,
            renewal_rate,
            other_min_bytes,
            claim,
            returned: 0,
            gone: 0,
        };
        retained.update_residency(view, pressure);
        retained
    }

    /// Sets the minimum of GPU memory left to all other memory, in bytes.
    pub(crate) const fn set_other_min_bytes(&mut self, other_min_bytes: u64) {
        self.other_min_bytes = other_min_bytes;
    }

    /// Removes a block from the set.
    pub(crate) fn release(&mut self, address: u64) {
        self.members.retain(|member| member.address != address);
    }

    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Addresses of the members.
    pub(crate) fn addresses(&self) -> BTreeSet<u64> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// Members that were resident at the last interval.
    pub(crate) fn resident_members(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter(|member| member.is_resident).map(|member| member.address)
    }

    /// Renews all resident members. The renewal of an absent one would take a whole frame for one
    /// page; it arrives when the program needs it.
    pub(crate) fn renew_all(&mut self, view: &View<'_>) -> Vec<Step> {
        self.renew(view, usize::MAX)
    }

    /// Processes an interval: updates the set, fits its size to the arrivals, and returns the due
    /// renewals. `candidates`: blocks that may join, most valuable first; `prefetch_bytes`:
    /// prefetches about to be ordered.
    pub(crate) fn update(
        &mut self,
        view: &View<'_>,
        prefetch_bytes: u64,
        candidates: impl FnOnce() -> Vec<u64>,
    ) -> Vec<Step> {
        let pressure = Pressure::of(view);
        let arrived_since = pressure.arrived_bytes.saturating_sub(self.last_arrived_bytes);
        self.last_arrived_bytes = pressure.arrived_bytes;
        self.renewal_rate.record_arrivals(view.now, arrived_since);
        self.update_residency(view, pressure);
        let others_bytes = self.claim.others_bytes(view);
        if self.resize(
            self.renewal_rate.fitting(view, pressure.resident_bytes, others_bytes, self.other_min_bytes),
            candidates,
        ) {
            self.update_residency(view, pressure);
        }
        let retained_bytes = (self.members.len() as u64).saturating_mul(BLOCK_BYTES);
        // Each member is renewed once in this period.
        let period_bytes = pressure.resident_bytes.saturating_sub(retained_bytes) / RENEWALS_PER_PERIOD;
        let expected_bytes = self.renewal_rate.per_interval_bytes().saturating_add(prefetch_bytes);
        self.release_probes();
        // Without arrivals, a renewed block keeps its position.
        let is_due = |member: &&Member| {
            member.renewed < self.last_arrived_bytes
                && self.last_arrived_bytes.saturating_add(expected_bytes).saturating_sub(member.renewed) >= period_bytes
        };
        let due = self.members.iter().filter(|member| member.is_renewed()).filter(is_due).count();
        // Spread evenly over the intervals: tens of thousands of blocks renewed together would also
        // be due together.
        let evenly_spread = if arrived_since > 0 || prefetch_bytes > 0 {
            u128::from(expected_bytes) * self.members.len() as u128 / u128::from(period_bytes.max(1))
        } else {
            0
        };
        self.renew(view, due.max(usize::try_from(evenly_spread).unwrap_or(usize::MAX)))
    }

    /// Processes the outcome of an order. Blocks whose renewal failed are due at once.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome) {
        self.renewal_rate.record_outcome(outcome);
        let mut missed = Intervals::default();
        for call in &outcome.calls {
            if matches!(call.step.action, Action::Touch(_)) && call.result != CallResult::Done {
                missed.insert(call.step.begin, call.step.end);
            }
        }
        if missed.bytes() > 0 {
            let is_missed =
                |member: &&mut Member| missed.touches(member.address, member.address.saturating_add(BLOCK_BYTES));
            self.members.iter_mut().filter(is_missed).for_each(|member| member.renewed = 0);
        }
    }

    /// Renews the `count` members with the oldest renewals, and among these the newest first. If
    /// the order is late, the oldest members are already evicted, and renewing one of them fetches
    /// a page, which evicts the oldest resident block. With the oldest first, that block would be
    /// the next to be renewed, and the whole set would be lost one by one. With the newest first,
    /// the other members already follow the memory outside the set in the eviction order.
    fn renew(&mut self, view: &View<'_>, count: usize) -> Vec<Step> {
        let now = self.last_arrived_bytes;
        let mut renewed: Vec<&mut Member> = self.members.iter_mut().filter(|member| member.is_renewed()).collect();
        if count < renewed.len() {
            renewed.select_nth_unstable_by_key(count, |member| (member.renewed, member.renewal_index, member.address));
            renewed.truncate(count);
        }
        renewed.sort_unstable_by_key(|member| Reverse((member.renewed, member.renewal_index, member.address)));
        for (index, member) in (0..).zip(&mut renewed) {
            (member.renewed, member.renewal_index) = (now, index);
        }
        ordered_steps(renewed.iter().map(|member| member.address), Action::Touch(view.gpu))
    }

    /// Updates which members are resident. Drops members that are unmapped, and those that did not
    /// return while the whole contents of the GPU were replaced, because they are not used as
    /// assumed.
    fn update_residency(&mut self, view: &View<'_>, pressure: Pressure) {
        self.members.retain_mut(|member| {
            let Some(block) = whole_block(view, member.address) else { return false };
            let (was_resident, has_joined) = (member.is_resident, member.last_resident == pressure.arrived_bytes);
            member.is_resident = is_mostly_resident(block);
            if member.is_resident {
                if !was_resident && !has_joined {
                    (member.renewed, member.last_used) = (pressure.arrived_bytes, pressure.arrived_bytes);
                    self.returned += u64::from(std::mem::take(&mut member.is_released));
                }
                member.last_resident = pressure.arrived_bytes;
            }
            let rounds = if member.is_released { UNUSED_AFTER_ROUNDS } else { 1 };
            let is_used = pressure.arrived_bytes.saturating_sub(member.last_resident)
                <= pressure.resident_bytes.saturating_mul(rounds);
            self.gone += u64::from(!is_used && member.is_released);
            is_used
        });
    }

    /// Whether most released blocks do not return.
    pub(crate) const fn is_unused(&self) -> bool {
        self.gone >= UNUSED_MIN && self.gone > self.returned
    }

    /// Releases the members with the oldest known use, as probes.
    fn release_probes(&mut self) {
        let released = self.members.iter().filter(|member| member.is_released).count();
        let count = (self.members.len() / RELEASED_PART).saturating_sub(released);
        if count == 0 {
            return;
        }
        if self.gone.saturating_add(self.returned) >= 4 * UNUSED_MIN {
            (self.gone, self.returned) = (self.gone / 2, self.returned / 2);
        }
        let mut renewed: Vec<&mut Member> = self.members.iter_mut().filter(|member| member.is_renewed()).collect();
        if count < renewed.len() {
            renewed.select_nth_unstable_by_key(count, |member| (member.last_used, member.address));
            renewed.truncate(count);
        }
        for member in renewed {
            member.is_released = true;
        }
    }

    /// Changes the number of members. Evicted ones leave first, then the least valuable. Returns
    /// whether any joined.
    fn resize(&mut self, fitting: usize, candidates: impl FnOnce() -> Vec<u64>) -> bool {
        let mut excess = self.members.len().saturating_sub(fitting);
        self.members.retain(|member| {
            let leaves = excess > 0 && !member.is_resident && !member.is_released;
            excess -= usize::from(leaves);
            !leaves
        });
        self.members.truncate(fitting);
        let free = fitting.saturating_sub(self.members.len());
        // A scan of all blocks is not worth it for a small increase.
        if free <= self.members.len() / 64 {
            return false;
        }
        let members = self.addresses();
        let joining: Vec<u64> =
            candidates().into_iter().filter(|address| !members.contains(address)).take(free).collect();
        self.members.extend(joining.iter().map(|address| Member::joining(*address, self.last_arrived_bytes)));
        !joining.is_empty()
    }
}
