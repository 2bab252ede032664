//! Keeping blocks at the GPU: which, how many, and when the driver has to be asked again. What the policies that protect memory have in common.
//!
//! The driver evicts the block that arrived first, used or not. Renewing a block puts it behind all others and copies nothing. So a set of blocks
//! stays for as long as it is renewed before all frames but its own have changed hands: before so many bytes have arrived, for whomever, as are left
//! to everything else. How much arrives from one look to the next is measured, and the set is no larger than that allows.

use std::collections::{BTreeMap, BTreeSet};

use model::{Action, Block, Process, Range, Step, block::BLOCK_BYTES};

use super::reactor::View;

/// What is left to everything else, at the least: the block that arrives, and the one before it that is still in use.
pub(crate) const RESERVE_MIN_BYTES: u64 = 2 * BLOCK_BYTES;
/// And at the most, as a part of what the GPU holds. Where more arrives between two looks, the blocks that were renewed first are lost and the others
/// stay: to renew too many costs nothing.
const RESERVE_MAX: (u64, u64) = (1, 2);
/// What arrives from one look to the next comes in bursts, which have to fit: of what is more than thought, this part is believed at once...
const MORE: u64 = 2;
/// ...and of what is less, this part. A look that was late once is no reason to keep less for long.
const LESS: u64 = 16;

/// What all processes together have at the GPU, and what came to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// While the driver evicts, that is what there is room for.
    pub(crate) held_bytes: u64,
    /// Copied or populated, ever.
    pub(crate) arrived_bytes: u64,
}

impl Pressure {
    pub(crate) fn of(view: &View<'_>) -> Self {
        let all = || view.others.iter().map(|(other, _)| *other).chain([view.process]);
        let held = all().map(|process| process.residency.get(&view.key()).map_or(0, |resident| resident.bytes));
        let held = held.fold(0, u64::saturating_add);
        let arrived = all().map(|process| arrived_bytes(process, view)).fold(0, u64::saturating_add);
        Self { held_bytes: held.min(view.gpu_memory_bytes.unwrap_or(u64::MAX)), arrived_bytes: arrived }
    }
}

/// Bytes that came to the GPU for a process.
pub(crate) fn arrived_bytes(process: &Process, view: &View<'_>) -> u64 {
    let at_gpu = process.gpus.get(&view.key());
    at_gpu.map_or(0, |counters| {
        let copied = counters.bytes_htod.total().saturating_add(counters.bytes_dtod.total());
        copied.saturating_add(counters.populated_bytes)
    })
}

/// The process's blocks that the driver keeps as a whole at this GPU: only those does it move in its order of eviction.
pub(crate) fn whole_blocks<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Block> {
    let (ranges, key) = (view.ranges, view.key());
    view.blocks
        .iter()
        .filter(move |block| block.gpu == Some(key) && ranges.iter().any(|range| is_whole_in(block, range)))
}

fn is_whole_in(block: &Block, range: &Range) -> bool {
    range.begin <= block.address && block.address.saturating_add(BLOCK_BYTES) <= range.end
}

/// Whether most of a block is at the GPU: what of it is not would have to come over the link anyway.
pub(crate) const fn is_held(block: &Block) -> bool {
    block.resident.bytes > BLOCK_BYTES / 2
}

/// One step for each row of blocks that follow each other.
pub(crate) fn rows(blocks: impl IntoIterator<Item = u64>, action: Action) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let sorted: BTreeSet<u64> = blocks.into_iter().collect();
    for begin in sorted {
        let end = begin.saturating_add(BLOCK_BYTES);
        match steps.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => steps.push(Step { begin, end, action }),
        }
    }
    steps
}

/// How many blocks may be kept of what is held, if so much arrives from one look to the next.
pub(crate) fn fitting(held_bytes: u64, per_look_bytes: u64) -> usize {
    beside(held_bytes, reserve_bytes(held_bytes, per_look_bytes))
}

fn reserve_bytes(held_bytes: u64, per_look_bytes: u64) -> u64 {
    let most = (held_bytes / RESERVE_MAX.1 * RESERVE_MAX.0).max(RESERVE_MIN_BYTES);
    per_look_bytes.saturating_add(BLOCK_BYTES).clamp(RESERVE_MIN_BYTES, most)
}

fn beside(held_bytes: u64, reserve_bytes: u64) -> usize {
    usize::try_from(held_bytes.saturating_sub(reserve_bytes) / BLOCK_BYTES).unwrap_or(usize::MAX)
}

/// A set of blocks that is being kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The most valuable first.
    members: Vec<Member>,
    /// What had arrived at the last look, and at the last renewal.
    looked: u64,
    renewed: u64,
    /// What arrives from one look to the next.
    per_look_bytes: u64,
    /// What is left to everything else, however little arrives.
    left_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    address: u64,
    /// Whether it was at the GPU at the last look.
    is_held: bool,
    /// What had arrived in all when it was seen there last, or joined.
    seen: u64,
}

impl Member {
    const fn joining(address: u64, arrived_bytes: u64) -> Self {
        Self { address, is_held: false, seen: arrived_bytes }
    }
}

impl Kept {
    /// Keeps as many of these as fit, which come the most valuable first, if so much arrives from one look to the next.
    pub(crate) fn new(view: &View<'_>, candidates: impl IntoIterator<Item = u64>, per_look_bytes: u64) -> Self {
        let Pressure { held_bytes, arrived_bytes } = Pressure::of(view);
        let fitting = fitting(held_bytes, per_look_bytes);
        Self {
            members: candidates
                .into_iter()
                .take(fitting)
                .map(|address| Member::joining(address, arrived_bytes))
                .collect(),
            looked: arrived_bytes,
            renewed: arrived_bytes,
            per_look_bytes,
            left_bytes: 0,
        }
    }

    /// The same with so much left to everything else, which is brought there on purpose.
    pub(crate) fn leaving(mut self, view: &View<'_>, left_bytes: u64) -> Self {
        self.left_bytes = left_bytes;
        self.members.truncate(beside(Pressure::of(view).held_bytes, left_bytes));
        self
    }

    /// Leaves so much to everything else from now on.
    pub(crate) const fn leave(&mut self, left_bytes: u64) {
        self.left_bytes = left_bytes;
    }

    /// Keeps this one no longer.
    pub(crate) fn release(&mut self, address: u64) {
        self.members.retain(|member| member.address != address);
    }

    /// Nothing is kept.
    pub(crate) const fn none() -> Self {
        Self { members: Vec::new(), looked: 0, renewed: 0, per_look_bytes: 0, left_bytes: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Their addresses.
    pub(crate) fn set(&self) -> BTreeSet<u64> {
        self.addresses().collect()
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|member| member.address)
    }

    /// Those that were at the GPU at the last look.
    pub(crate) fn held(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter(|member| member.is_held).map(|member| member.address)
    }

    /// Renews those of them that are there. One that is not would take a whole frame for a page: it comes when the program needs it.
    pub(crate) fn renewals(&self, view: &View<'_>) -> Vec<Step> {
        let held: BTreeSet<u64> =
            whole_blocks(view).filter(|block| is_held(block)).map(|block| block.address).collect();
        rows(self.addresses().filter(|address| held.contains(address)), Action::Renew(view.gpu))
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
        let (more, less) = (came.saturating_sub(self.per_look_bytes), self.per_look_bytes.saturating_sub(came));
        self.per_look_bytes = self.per_look_bytes.saturating_add(more / MORE).saturating_sub(less / LESS);
        self.note_held(view, pressure);
        let reserve_bytes = reserve_bytes(pressure.held_bytes, self.per_look_bytes).max(self.left_bytes);
        self.resize(beside(pressure.held_bytes, reserve_bytes), candidates);
        let kept_bytes = (self.members.len() as u64).saturating_mul(BLOCK_BYTES);
        let left_bytes = pressure.held_bytes.saturating_sub(kept_bytes);
        let since = pressure.arrived_bytes.saturating_sub(self.renewed);
        if since.saturating_add(self.per_look_bytes).saturating_add(coming_bytes) < left_bytes / 2 {
            return Vec::new();
        }
        self.renewed = pressure.arrived_bytes;
        self.renewals(view)
    }

    /// Which members are at the GPU. Those that are not mapped any more are none; nor are those that did not come back while all that the GPU holds was
    /// brought anew: they are not used as was thought.
    fn note_held(&mut self, view: &View<'_>, pressure: Pressure) {
        let held: BTreeMap<u64, bool> = whole_blocks(view).map(|block| (block.address, is_held(block))).collect();
        self.members.retain_mut(|member| {
            let Some(is_held) = held.get(&member.address) else { return false };
            member.is_held = *is_held;
            if *is_held {
                member.seen = pressure.arrived_bytes;
            }
            pressure.arrived_bytes.saturating_sub(member.seen) <= pressure.held_bytes
        });
    }

    /// What is gone goes first, then the least valuable.
    fn resize(&mut self, fitting: usize, candidates: impl FnOnce() -> Vec<u64>) {
        let mut too_many = self.members.len().saturating_sub(fitting);
        self.members.retain(|member| {
            let goes = too_many > 0 && !member.is_held;
            too_many -= usize::from(goes);
            !goes
        });
        self.members.truncate(fitting);
        let free = fitting.saturating_sub(self.members.len());
        if free > 0 {
            let members = self.set();
            let joining: Vec<u64> =
                candidates().into_iter().filter(|address| !members.contains(address)).take(free).collect();
            self.members.extend(joining.into_iter().map(|address| Member::joining(address, self.looked)));
        }
    }
}
