//! Keeping blocks at the GPU: which, how many, and when the driver has to be asked again. What the policies that protect memory have in common.
//!
//! The driver evicts the block that arrived first, used or not. Renewing a block puts it behind all others and copies nothing. So a set of blocks
//! stays for as long as it is renewed before all frames but its own have changed hands: before so many bytes have arrived, for whomever, as are left
//! to everything else. How much arrives from one look to the next is measured, and the set is no larger than that allows.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{Action, Block, CallResult, Counters, Outcome, Process, Range, Step, block::BLOCK_BYTES};

use super::{
    intervals::Intervals,
    live_policy::View,
    renewal_rate::{RenewalRate, TIMES},
    scene::{block_at, range_with},
};

/// GPU memory of all processes together, and bytes that arrived there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// While the driver evicts, that is what there is room for.
    pub(crate) held_bytes: u64,
    /// Copied or populated, ever, for those too that have ended.
    pub(crate) arrived_bytes: u64,
}

impl Pressure {
    pub(crate) fn of(view: &View<'_>) -> Self {
        let own = view.process.residency.get(&view.key()).map_or(0, |resident| resident.bytes);
        // A page takes the frame of a whole block: by bytes, a set of which much was lost would seem too large, and more of it would be given up.
        let in_frames = whole_blocks(view).filter(|block| block.resident.bytes > 0).count() as u64;
        let held = own.max(in_frames.saturating_mul(BLOCK_BYTES)).saturating_add(others_bytes(view));
        Self {
            held_bytes: held.min(view.gpu_memory_bytes.unwrap_or(u64::MAX)),
            arrived_bytes: view.gpu_totals.map_or(0, arrived),
        }
    }
}

/// Bytes that came to the GPU for a process.
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
    view.others.iter().map(|(other, _)| resident(other)).fold(0, u64::saturating_add)
}

/// The process's blocks that the driver keeps as a whole at this GPU: only those does it move in its order of eviction.
pub(crate) fn whole_blocks<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Block> {
    let (ranges, key) = (view.ranges, view.key());
    view.blocks.iter().filter(move |block| block.gpu == Some(key) && is_whole(block, ranges))
}

fn is_whole(block: &Block, ranges: &[&Range]) -> bool {
    range_with(ranges, block.address).is_some_and(|range| block.address.saturating_add(BLOCK_BYTES) <= range.end)
}

/// Whether most of a block is at the GPU: what of it is not would have to come over the link anyway.
pub(crate) const fn is_held(block: &Block) -> bool {
    block.resident.bytes > BLOCK_BYTES / 2
}

/// One step for each run of contiguous blocks, in order of address.
pub(crate) fn rows(blocks: impl IntoIterator<Item = u64>, action: Action) -> Vec<Step> {
    let sorted: BTreeSet<u64> = blocks.into_iter().collect();
    in_turn(sorted, action)
}

/// One step for each run of contiguous blocks, in the given order.
fn in_turn(blocks: impl IntoIterator<Item = u64>, action: Action) -> Vec<Step> {
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

/// A block that is kept as a whole at this GPU, if there is such a one at this address.
fn whole_block<'a>(view: &View<'a>, address: u64) -> Option<&'a Block> {
    block_at(view.blocks, address).filter(|block| block.gpu == Some(view.key()) && is_whole(block, view.ranges))
}

/// One block in this many is released at a time as a probe: it comes back if the program still uses it.
const LET_GO_EACH: usize = 32;
/// One that has not come back while so many times what the GPU holds was brought is not used any more: a walk through as much comes round to it.
const TURNS: u64 = 4;
/// So many at least must not have come back, and more than did, and the set is not used any more.
const GONE: u64 = 8;

/// A set of blocks that is being kept.
#[derive(Debug)]
pub(crate) struct RetainedSet {
    /// The most valuable first.
    members: Vec<Member>,
    /// Cumulative bytes that had arrived at the last interval.
    looked: u64,
    renewal_rate: RenewalRate,
    /// Minimum of GPU memory left to all other memory, in bytes.
    left_bytes: u64,
    claim: Claim,
    /// Released blocks that came back, and that did not, both decayed with time.
    came_back: u64,
    gone: u64,
}

/// Share of GPU memory that the set may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// GPU memory that no other process has.
    BesideOthers,
    /// Others' as well: they took it.
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
    /// Whether it was at the GPU at the last look.
    is_held: bool,
    /// What had arrived in all when it was seen there last, or joined.
    seen: u64,
    /// What had when it was renewed last, or came; 0 if that is not known.
    renewed: u64,
    /// Rank within one order of renewals: the lowest is renewed first.
    turn: u64,
    /// What had when it was last known to be used: it came.
    used: u64,
    /// Whether it is not renewed, to see whether it is still used.
    is_let_go: bool,
}

impl Member {
    const fn is_renewed(&self) -> bool {
        self.is_held && !self.is_let_go
    }

    const fn joining(address: u64, arrived_bytes: u64) -> Self {
        Self {
            address,
            is_held: false,
            seen: arrived_bytes,
            renewed: 0,
            turn: 0,
            used: arrived_bytes,
            is_let_go: false,
        }
    }
}

impl RetainedSet {
    /// Keeps as many of these as fit, which come the most valuable first, if so much arrives in [`LOOK`](super::renewal_rate::LOOK), and so much is left to
    /// everything else, which is brought there on purpose.
    pub(crate) fn new(
        view: &View<'_>,
        candidates: impl IntoIterator<Item = u64>,
        per_look_bytes: u64,
        left_bytes: u64,
        claim: Claim,
    ) -> Self {
        let pressure = Pressure::of(view);
        let renewal_rate = RenewalRate::new(view.now, per_look_bytes);
        let fitting = renewal_rate.fitting(view, pressure.held_bytes, claim.others_bytes(view), left_bytes);
        let joining = |address| Member::joining(address, pressure.arrived_bytes);
        let members = candidates.into_iter().take(fitting).map(joining).collect();
        let mut retained =
            Self { members, looked: pressure.arrived_bytes, renewal_rate, left_bytes, claim, came_back: 0, gone: 0 };
        retained.note_held(view, pressure);
        retained
    }

    /// Leaves so much to everything else from now on.
    pub(crate) const fn leave(&mut self, left_bytes: u64) {
        self.left_bytes = left_bytes;
    }

    /// Keeps this one no longer.
    pub(crate) fn release(&mut self, address: u64) {
        self.members.retain(|member| member.address != address);
    }

    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Their addresses.
    pub(crate) fn set(&self) -> BTreeSet<u64> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// Members that were resident at the last interval.
    pub(crate) fn held(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter(|member| member.is_held).map(|member| member.address)
    }

    /// Renews those of them that are there. One that is not would take a whole frame for a page: it comes when the program needs it.
    pub(crate) fn renew_all(&mut self, view: &View<'_>) -> Vec<Step> {
        self.renew(view, usize::MAX)
    }

    /// Looks at what became of the set, fits it to what arrives, and says what is to be renewed now. `candidates` are those that may join, the most
    /// valuable first; `coming_bytes`, what is about to be brought beside them.
    pub(crate) fn look(
        &mut self,
        view: &View<'_>,
        coming_bytes: u64,
        candidates: impl FnOnce() -> Vec<u64>,
    ) -> Vec<Step> {
        let pressure = Pressure::of(view);
        let came = pressure.arrived_bytes.saturating_sub(self.looked);
        self.looked = pressure.arrived_bytes;
        self.renewal_rate.looks(view.now, came);
        self.note_held(view, pressure);
        let others_bytes = self.claim.others_bytes(view);
        if self.resize(self.renewal_rate.fitting(view, pressure.held_bytes, others_bytes, self.left_bytes), candidates)
        {
            self.note_held(view, pressure);
        }
        let retained_bytes = (self.members.len() as u64).saturating_mul(BLOCK_BYTES);
        // Until then each is renewed once.
        let period_bytes = pressure.held_bytes.saturating_sub(retained_bytes) / TIMES;
        let soon = self.renewal_rate.per_look_bytes().saturating_add(coming_bytes);
        self.let_go();
        // While nothing comes, one that was renewed is where it was.
        let is_due = |member: &&Member| {
            member.renewed < self.looked
                && self.looked.saturating_add(soon).saturating_sub(member.renewed) >= period_bytes
        };
        let due = self.members.iter().filter(|member| member.is_renewed()).filter(is_due).count();
        // As many at each look as at any other: renewed all at once, tens of thousands of them would all be due at once again.
        let evenly = if came > 0 || coming_bytes > 0 {
            u128::from(soon) * self.members.len() as u128 / u128::from(period_bytes.max(1))
        } else {
            0
        };
        self.renew(view, due.max(usize::try_from(evenly).unwrap_or(usize::MAX)))
    }

    /// What came of orders, these among them: what was not renewed is due.
    pub(crate) fn carried_out(&mut self, outcome: &Outcome) {
        self.renewal_rate.carried_out(outcome);
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

    /// Renews so many of them that were not for longest, and of these the one renewed last first. Where the order comes late, the oldest are evicted by
    /// then, and the page that renews such a one evicts the next. From the oldest on, that would be the next to be renewed, and the whole set would go,
    /// one after the other; from the newest on, all others are behind what is not the set's by then.
    fn renew(&mut self, view: &View<'_>, count: usize) -> Vec<Step> {
        let now = self.looked;
        let mut held: Vec<&mut Member> = self.members.iter_mut().filter(|member| member.is_renewed()).collect();
        if count < held.len() {
            held.select_nth_unstable_by_key(count, |member| (member.renewed, member.turn, member.address));
            held.truncate(count);
        }
        held.sort_unstable_by_key(|member| Reverse((member.renewed, member.turn, member.address)));
        for (turn, member) in (0..).zip(&mut held) {
            (member.renewed, member.turn) = (now, turn);
        }
        in_turn(held.iter().map(|member| member.address), Action::Touch(view.gpu))
    }

    /// Which members are at the GPU. Those that are not mapped any more are none; nor are those that did not come back while all that the GPU holds was
    /// brought anew: they are not used as was thought.
    fn note_held(&mut self, view: &View<'_>, pressure: Pressure) {
        self.members.retain_mut(|member| {
            let Some(block) = whole_block(view, member.address) else { return false };
            let (was_held, has_joined) = (member.is_held, member.seen == pressure.arrived_bytes);
            member.is_held = is_held(block);
            if member.is_held {
                if !was_held && !has_joined {
                    (member.renewed, member.used) = (pressure.arrived_bytes, pressure.arrived_bytes);
                    self.came_back += u64::from(std::mem::take(&mut member.is_let_go));
                }
                member.seen = pressure.arrived_bytes;
            }
            let turns = if member.is_let_go { TURNS } else { 1 };
            let is_used =
                pressure.arrived_bytes.saturating_sub(member.seen) <= pressure.held_bytes.saturating_mul(turns);
            self.gone += u64::from(!is_used && member.is_let_go);
            is_used
        });
    }

    /// Whether what was let go no longer comes back.
    pub(crate) const fn is_unused(&self) -> bool {
        self.gone >= GONE && self.gone > self.came_back
    }

    /// Lets some go that were not known to be used for longest.
    fn let_go(&mut self) {
        let gone = self.members.iter().filter(|member| member.is_let_go).count();
        let count = (self.members.len() / LET_GO_EACH).saturating_sub(gone);
        if count == 0 {
            return;
        }
        if self.gone.saturating_add(self.came_back) >= 4 * GONE {
            (self.gone, self.came_back) = (self.gone / 2, self.came_back / 2);
        }
        let mut held: Vec<&mut Member> = self.members.iter_mut().filter(|member| member.is_renewed()).collect();
        if count < held.len() {
            held.select_nth_unstable_by_key(count, |member| (member.used, member.address));
            held.truncate(count);
        }
        for member in held {
            member.is_let_go = true;
        }
    }

    /// Changes the number of members: those that are gone leave first, then the least valuable. Returns whether any joined.
    fn resize(&mut self, fitting: usize, candidates: impl FnOnce() -> Vec<u64>) -> bool {
        let mut too_many = self.members.len().saturating_sub(fitting);
        self.members.retain(|member| {
            let goes = too_many > 0 && !member.is_held && !member.is_let_go;
            too_many -= usize::from(goes);
            !goes
        });
        self.members.truncate(fitting);
        let free = fitting.saturating_sub(self.members.len());
        // For a few of many it is not worth looking at all blocks.
        if free <= self.members.len() / 64 {
            return false;
        }
        let members = self.set();
        let joining: Vec<u64> =
            candidates().into_iter().filter(|address| !members.contains(address)).take(free).collect();
        self.members.extend(joining.iter().map(|address| Member::joining(*address, self.looked)));
        !joining.is_empty()
    }
}
