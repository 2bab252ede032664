//! Order of the faults on a range. No I/O, and some 400 bytes per range.
//!
//! Evidence: the driver services GPU faults in batches and sorts each by address, so that the order
//! within a batch is lost; batches follow each other as the accesses did. Many accesses are in
//! flight at once, so a batch is a cloud of places rather than one. The analysis uses
//! * the movement of the batches' middle: a walk goes one way, and without an order it turns two
//!   times in three;
//! * whether a batch of many places is a contiguous piece of the range, or scattered over the same
//!   part as the one before;
//! * the distances between neighbouring places, within a batch and from one to the next: if nearly
//!   all are equal, that is the stride;
//! * the parts of the range with most faults.
//!
//! The driver brings more than the fault needs: at least 64 KiB, and the surroundings up to the
//! whole block if half of it is resident. That memory does not fault. A walk without gaps therefore
//! shows gaps of up to a block, and a stride below 128 KiB is indistinguishable from none.

use abi::{
    BlockRecord,
    block::{SLOT_BYTES, SLOTS},
};
use model::{Pattern, PatternKind};

use self::{gaps::Gaps, spread::Spread, walk::Walk};

mod gaps;
mod spread;
mod walk;

/// Minimum moves from batch to batch to determine a direction.
const MOVES_MIN: u64 = 12;
/// Minimum moves to determine that there is no order, which needs more evidence.
const MOVES_MIN_OF_NONE: u64 = 16;
/// Minimum moves if each batch is a contiguous piece of the range, which does not happen by chance.
const MOVES_MIN_OF_PIECES: u64 = 2;
/// Minimum places of a batch that is evidence alone.
const MANY: u32 = 32;
/// Minimum density of a contiguous batch.
const WHOLE: f32 = 0.75;
/// Maximum overlap with the previous batch of a contiguous one; scattered batches overlap at least
/// this much.
const APART: f32 = 0.25;
const STREWN: f32 = 0.5;
/// Minimum of scattered batches, and their share of the recent ones, of a random pattern.
const STREWN_MIN: u64 = 2;
const STREWN_SHARE: f32 = 0.6;
/// Minimum distances to determine a stride.
const GAPS_MIN: u64 = 16;
/// Minimum share of distances equal to the stride.
const STRIDE_MIN: f32 = 0.75;
/// Minimum share of distances that the driver's prefetching explains, in a walk without gaps.
const NEAR_MIN: f32 = 0.75;
/// Share of turns below which it is a walk; above the other one there is no order.
const TURNS_OF_WALK: f32 = 0.25;
const TURNS_OF_NONE: f32 = 0.45;
/// Share of turns without an order: of three random numbers, the middle one is the greatest or the
/// least in two cases of three.
const TURNS_EXPECTED: f32 = 2.0 / 3.0;
/// Consecutive records of other GPUs after which the last of them is followed instead.
const STRANGERS_MAX: u8 = 64;

/// Address in units of 64 KiB.
type Place = u64;

/// Access order in one range.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// GPU of these faults: those of several have no common order.
    gpu: u32,
    strangers: u8,
    batch: Option<Batch>,
    before: Option<Batch>,
    walk: Walk,
    /// Batches scattered over the same part as the one before.
    strewn: Share,
    gaps: Gaps,
    spread: Spread,
}

/// Places of one batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    number: u16,
    lowest: Place,
    highest: Place,
    places: u32,
}

impl Batch {
    fn span(&self) -> u64 {
        self.highest - self.lowest + 1
    }

    /// Share of the batch's span that it covers; 0 with few places.
    fn density(&self) -> f32 {
        if self.places < MANY { 0.0 } else { self.places as f32 / self.span() as f32 }
    }

    /// Share of the shorter batch's span that the other covers too.
    fn overlap(&self, other: &Self) -> f32 {
        let both = (self.highest.min(other.highest) + 1).saturating_sub(self.lowest.max(other.lowest));
        both as f32 / self.span().min(other.span()) as f32
    }
}

/// Share of one kind among successive events.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    count: u64,
    /// Recent events, and those of the kind.
    recent: f32,
    those: f32,
}

impl Share {
    /// Factor of earlier weights at each event.
    const KEEPS: f32 = 1.0 - 1.0 / 64.0;

    fn add(&mut self, is_of_those: bool) {
        self.count += u64::from(is_of_those);
        self.recent = self.recent * Self::KEEPS + 1.0;
        self.those = self.those * Self::KEEPS + f32::from(u8::from(is_of_those));
    }

    fn get(&self) -> f32 {
        if self.recent > 0.0 { self.those / self.recent } else { 0.0 }
    }
}

impl Order {
    pub(super) fn new(record: &BlockRecord) -> Self {
        Self {
            gpu: record.gpu,
            strangers: 0,
            batch: None,
            before: None,
            walk: Walk::default(),
            strewn: Share::default(),
            gaps: Gaps::default(),
            spread: Spread::default(),
        }
    }

    /// Adds faults of a GPU on a block.
    pub(super) fn faulted(&mut self, record: &BlockRecord) {
        if record.gpu != self.gpu {
            self.strangers += 1;
            if self.strangers >= STRANGERS_MAX {
                *self = Self::new(record);
            }
            return;
        }
        self.strangers = 0;
        let first = record.address / SLOT_BYTES;
        let mut slots = if record.slots == 0 { 1 } else { record.slots };
        self.spread.add(first / u64::from(SLOTS), slots.count_ones());
        if self.batch.is_none_or(|batch| batch.number != record.cause) {
            self.finish();
            let lowest = first + u64::from(slots.trailing_zeros());
            self.batch = Some(Batch { number: record.cause, lowest, highest: lowest, places: 1 });
            slots &= slots - 1;
        }
        let Some(batch) = &mut self.batch else { return };
        while slots != 0 {
            let place = first + u64::from(slots.trailing_zeros());
            slots &= slots - 1;
            // A page serviced before, or retried, is no new place.
            if place > batch.highest {
                self.gaps.add(place - batch.highest);
                batch.highest = place;
                batch.places += 1;
            }
            batch.lowest = batch.lowest.min(place);
        }
    }

    /// Completes the current batch.
    fn finish(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        if let Some(before) = self.before.replace(batch) {
            if batch.lowest > before.highest {
                self.gaps.add(batch.lowest - before.highest);
            } else if batch.highest < before.lowest {
                self.gaps.add(before.lowest - batch.highest);
            }
            let (overlap, densities) = (batch.overlap(&before), [before.density(), batch.density()]);
            let are_pieces = overlap <= APART && densities.iter().all(|density| *density >= WHOLE);
            let (from, to) = (before.lowest + before.highest, batch.lowest + batch.highest);
            if are_pieces {
                self.walk.moved_for_certain(from, to);
            } else {
                self.walk.moved(from, to);
            }
            self.strewn.add(overlap >= STREWN && densities.iter().all(|density| *density > 0.0 && *density < WHOLE));
        }
    }

    /// The pattern and its confidence.
    pub(super) fn pattern(&self) -> Pattern {
        let mut now = self.clone();
        now.finish();
        let (kind, confidence) = now.kind();
        let confidence = if kind == PatternKind::Unknown { 0.0 } else { f64::from(confidence.clamp(0.0, 1.0)) };
        Pattern { kind, confidence, steps: now.gaps.count().max(now.walk.moves()) }
    }

    fn kind(&self) -> (PatternKind, f32) {
        let (turns, moves) = (self.walk.turns(), self.walk.moves());
        let is_seen = moves >= MOVES_MIN || self.walk.certain() >= MOVES_MIN_OF_PIECES;
        let is_walk = is_seen && turns < TURNS_OF_WALK;
        let is_strewn = self.strewn.count >= STREWN_MIN && self.strewn.get() >= STREWN_SHARE;
        if is_walk && !is_strewn && self.walk.is_cyclic() {
            return (PatternKind::Cyclic, 1.0 - turns);
        }
        let has_no_order = is_strewn || moves >= MOVES_MIN_OF_NONE && turns > TURNS_OF_NONE;
        if self.gaps.count() >= GAPS_MIN
            && (is_strewn || !has_no_order)
            && let Some(stride) = self.gaps.stride().filter(|stride| stride.share >= STRIDE_MIN)
        {
            let stride_bytes = stride_bytes(stride.places, self.walk.is_downwards());
            return (PatternKind::Strided { stride_bytes }, stride.share);
        }
        if is_walk && !is_strewn && self.gaps.share_up_to(u64::from(SLOTS)) >= NEAR_MIN {
            return (PatternKind::Sequential, 1.0 - turns);
        }
        if has_no_order {
            let hot = self.spread.hot().map(|share| (PatternKind::HotSet, share));
            return hot.unwrap_or((PatternKind::Random, (turns / TURNS_EXPECTED).max(self.strewn.get())));
        }
        (PatternKind::Unknown, 0.0)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to what can be told apart, half a place")]
fn stride_bytes(places: f32, is_downwards: bool) -> i64 {
    let bytes = (places * 2.0).round() as i64 * (SLOT_BYTES / 2).cast_signed();
    if is_downwards { -bytes } else { bytes }
}

#[cfg(test)]
mod tests;
