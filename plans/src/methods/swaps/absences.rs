//! Times of pieces away from the GPU, of a schedule.
//!
//! Only what leaves the GPU, and when, is taken from a schedule. A piece leaves behind launch `b`,
//! launch `w` waits until it has left, it begins to come back behind launch `f`, and launch `d` uses
//! it: `b < w <= f <= d`. With `f = d` there is no room for it before: it is left to faults, which
//! copy the same.
//!
//! What begins behind a launch may begin before the next one waits for anything. So there are two
//! loads of each launch: before it, when what comes has come and what leaves is still there, and
//! during it. A piece is absent before launches `w + 1` to `f`, and during `w` to `min(f, d - 1)`.
//! Both moves are given as much time as there is room for; a piece that needs no absence stays, and so
//! does one in whose place a smaller one may be absent.

use std::{cmp::Reverse, collections::BTreeSet, ops::RangeInclusive};

use call_ring::plan::{Destination, Move};
use planner::{Act, Schedule, Tier};
use trace::id::Id;

use crate::{
    moves::{Step, assembled, moved_piece},
    pieces::Pieces,
};

/// Most absences of smaller pieces that are looked at in the place of larger ones.
const SMALLER_MAX: usize = 1024;

/// Time of a piece away from the GPU. Places are those of launches, and continue through the next
/// iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Absence {
    /// Launch that uses the piece after it.
    next_use: usize,
    /// Piece.
    piece: usize,
    /// Launch behind which it leaves.
    last_use: usize,
    /// Launch that waits until it has left.
    left: usize,
    /// Launch behind which it comes back.
    fetch: usize,
}

impl Absence {
    fn is_faulted(&self) -> bool {
        self.fetch == self.next_use
    }

    /// Launches before which the piece is absent.
    fn before(&self) -> RangeInclusive<usize> {
        self.left + 1..=self.fetch
    }

    /// Launches during which the piece is absent.
    fn during(&self) -> RangeInclusive<usize> {
        self.left..=self.fetch.min(self.next_use - 1)
    }
}

/// Bytes on the GPU by launch.
#[derive(Clone, Debug)]
struct Load {
    before: Vec<u64>,
    during: Vec<u64>,
    limit_bytes: u64,
}

impl Load {
    /// Load without any absence.
    fn of(pieces: &Pieces, limit_bytes: u64) -> Self {
        let mut bytes = vec![0; pieces.ops];
        for piece in &pieces.all {
            let (first, last) = match (piece.uses.first(), piece.uses.last()) {
                (Some(first), Some(last)) if !piece.outlives => (*first, *last),
                _ => (0, pieces.ops),
            };
            for bytes in bytes.iter_mut().take(last + 1).skip(first) {
                *bytes += piece.bytes;
            }
        }
        Self { before: bytes.clone(), during: bytes, limit_bytes }
    }

    fn is_within(&self) -> bool {
        self.before.iter().chain(&self.during).all(|bytes| *bytes <= self.limit_bytes)
    }

    fn remove(&mut self, absence: &Absence, bytes: u64) {
        for (load, places) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            places.for_each(|place| *at(load, place) -= bytes);
        }
    }

    fn add(&mut self, absence: &Absence, bytes: u64) {
        for (load, places) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            places.for_each(|place| *at(load, place) += bytes);
        }
    }

    /// Most bytes above the limit, if the absence is at all places that have any above it.
    fn excess_within(&self, absence: &Absence) -> Option<u64> {
        let ops = self.before.len();
        let mut most_bytes = 0;
        for (load, absent) in [(&self.before, absence.before()), (&self.during, absence.during())] {
            for (place, bytes) in load.iter().enumerate() {
                let excess_bytes = bytes.saturating_sub(self.limit_bytes);
                if excess_bytes > 0 && !absent.contains(&place) && !absent.contains(&(place + ops)) {
                    return None;
                }
                most_bytes = excess_bytes.max(most_bytes);
            }
        }
        Some(most_bytes)
    }

    /// Makes an absence a shorter one, if there is room.
    fn shorten(&mut self, absence: &mut Absence, to: Absence, bytes: u64) -> bool {
        let before = absence.before().filter(|place| !to.before().contains(place));
        let during = absence.during().filter(|place| !to.during().contains(place));
        let (before, during): (Vec<usize>, Vec<usize>) = (before.collect(), during.collect());
        let mut both = [(&mut self.before, before), (&mut self.during, during)];
        let limit_bytes = self.limit_bytes;
        let fits = both
            .iter_mut()
            .all(|(load, places)| places.iter().all(|place| at(load, *place).saturating_add(bytes) <= limit_bytes));
        if fits {
            for (load, places) in &mut both {
                for place in places.iter() {
                    *at(load, *place) += bytes;
                }
            }
            *absence = to;
        }
        fits
    }
}

/// Load at a place, of which there is one at least.
#[expect(clippy::indexing_slicing, reason = "absences are of iterations with launches")]
fn at(load: &mut [u64], place: usize) -> &mut u64 {
    let ops = load.len();
    &mut load[place % ops]
}

/// Moves of a schedule, whose tensors are these pieces, with no more than the limit on the GPU at any
/// time; `None` if it takes more.
pub(super) fn moves(pieces: &Pieces, tensors: &[usize], schedule: &Schedule, limit_bytes: u64) -> Option<Vec<Move>> {
    let mut load = Load::of(pieces, limit_bytes);
    let absences = absences(pieces, tensors, schedule).into_iter();
    let mut absences: Vec<(Absence, u64)> =
        absences.filter_map(|absence| pieces.all.get(absence.piece).map(|piece| (absence, piece.bytes))).collect();
    for (absence, bytes) in &absences {
        load.remove(absence, *bytes);
    }
    if !load.is_within() {
        return None;
    }
    // First of all, as few as possible: those without which it fits as well.
    absences.retain_mut(|(absence, bytes)| {
        let none = Absence { left: absence.next_use, fetch: absence.next_use - 1, ..*absence };
        !load.shorten(absence, none, *bytes)
    });
    exchange(pieces, &mut load, &mut absences);
    // Then something that is not left to faults.
    for (absence, bytes) in absences.iter_mut().filter(|(absence, _)| absence.fetch > absence.left) {
        let fetched = Absence { fetch: absence.fetch - 1, ..*absence };
        load.shorten(absence, fetched, *bytes);
    }
    for (absence, bytes) in &mut absences {
        let mut has_room = true;
        while has_room && absence.left < absence.fetch {
            let later = Absence { left: absence.left + 1, ..*absence };
            has_room = absence.left + 1 < absence.next_use && load.shorten(absence, later, *bytes);
            if absence.left < absence.fetch && !absence.is_faulted() {
                let earlier = Absence { fetch: absence.fetch - 1, ..*absence };
                has_room |= load.shorten(absence, earlier, *bytes);
            }
        }
    }
    let steps = absences.iter().flat_map(|(absence, _)| steps(absence));
    Some(assembled(pieces, steps))
}

/// Has smaller pieces absent in the place of larger ones, where that suffices: planners do not look for
/// the size that is needed.
fn exchange(pieces: &Pieces, load: &mut Load, absences: &mut Vec<(Absence, u64)>) {
    let largest_bytes = absences.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let moving = pieces.all.iter().enumerate().filter(|(_, piece)| piece.moves && piece.bytes < largest_bytes);
    let all = moving.flat_map(|(place, piece)| {
        piece.uses.iter().filter_map(move |last_use| Some((absence_behind(pieces, place, *last_use)?, piece.bytes)))
    });
    let mut smaller: Vec<(Absence, u64)> = all.take(SMALLER_MAX).collect();
    smaller.sort_by_key(|(absence, bytes)| (*bytes, *absence));
    absences.sort_by_key(|(absence, bytes)| (Reverse(*bytes), *absence));
    let mut all: BTreeSet<(Absence, u64)> = absences.iter().copied().collect();
    for one in absences.iter().take_while(|_| !smaller.is_empty()) {
        let (absence, bytes) = one;
        load.add(absence, *bytes);
        if let Some(instead) = sufficient(load, &smaller, &all, *bytes) {
            all.remove(one);
            all.extend(instead);
        } else {
            load.remove(absence, *bytes);
        }
    }
    *absences = all.into_iter().collect();
}

/// Absences with less than these bytes together that bring the load within the limit, which has them
/// then; `None`, and the load as it was, if none were found.
fn sufficient(
    load: &mut Load,
    smaller: &[(Absence, u64)],
    all: &BTreeSet<(Absence, u64)>,
    bytes: u64,
) -> Option<Vec<(Absence, u64)>> {
    let mut chosen: Vec<(Absence, u64)> = Vec::new();
    let mut left_bytes = bytes.saturating_sub(1);
    while !load.is_within() {
        let fits = |one: &&(Absence, u64)| one.1 <= left_bytes && !all.contains(*one) && !chosen.contains(*one);
        let candidates = smaller.iter().filter(fits);
        let mut candidates = candidates.filter_map(|one| Some((one, load.excess_within(&one.0)?)));
        // The smallest that suffices, or else the largest.
        let suffices = candidates.clone().find(|((_, bytes), excess_bytes)| bytes >= excess_bytes);
        let Some((&(absence, bytes), _)) = suffices.or_else(|| candidates.next_back()) else {
            for (absence, bytes) in chosen {
                load.add(&absence, bytes);
            }
            return None;
        };
        load.remove(&absence, bytes);
        left_bytes -= bytes;
        chosen.push((absence, bytes));
    }
    Some(chosen)
}

/// Absence of a piece from behind a launch that uses it to the next one that does, if a launch is between them.
fn absence_behind(pieces: &Pieces, place: usize, last_use: usize) -> Option<Absence> {
    let piece = pieces.all.get(place)?;
    let next_use = piece.uses.iter().find(|op| **op > last_use).copied();
    let next_use = next_use.or(piece.uses.first().map(|first| first + pieces.ops)).unwrap_or(last_use + pieces.ops);
    let absence = Absence { next_use, piece: place, last_use, left: last_use + 1, fetch: next_use };
    (next_use >= last_use + 2).then_some(absence)
}

/// Absences from use to use.
fn absences(pieces: &Pieces, tensors: &[usize], schedule: &Schedule) -> BTreeSet<Absence> {
    let ops = pieces.ops;
    let mut absences = BTreeSet::new();
    for action in schedule.actions() {
        if !matches!(action.act, Act::Move(Tier::Host | Tier::Flash)) {
            continue;
        }
        let Some((place, piece)) = moved_piece(pieces, tensors, action) else { continue };
        // Behind the launch before.
        let begin = (action.begin.index() + ops - 1) % ops;
        let Some(last_use) = piece.uses.iter().rev().find(|op| **op <= begin).or(piece.uses.last()) else { continue };
        absences.extend(absence_behind(pieces, place, *last_use));
    }
    absences
}

/// Departure of a piece, and its return unless that is left to faults.
fn steps(absence: &Absence) -> impl Iterator<Item = Step> + use<> {
    let Absence { next_use, piece, last_use, left, fetch } = *absence;
    // Behind launch `fetch`, the piece is on its way back, or about to be used.
    let (wait, expiry) = (Some(left), Some(fetch));
    let leaves = Step { piece, destination: Destination::Host, begin: last_use, wait, expiry };
    let comes = Step { piece, destination: Destination::Gpu, begin: fetch, wait: Some(next_use), expiry: None };
    [Some(leaves), Some(comes).filter(|_| !absence.is_faulted())].into_iter().flatten()
}
