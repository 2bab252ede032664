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
//! Both moves are given as much time as there is room for; a piece that needs no absence stays.
//!
//! * `load`: absences, and what is on the GPU with them
//! * `exchange`: absences in the place of others, with fewer bytes

mod exchange;
mod load;

use std::collections::BTreeSet;

use call_ring::plan::{Destination, Move};
use planner::{Act, Schedule, Tier};
use trace::id::Id;

use self::load::{Absence, Load};
use crate::{
    moves::{Step, assembled, moved_piece},
    pieces::Pieces,
};

/// Moves of a schedule, whose tensors are these pieces, with no more than the limit on the GPU at any
/// time; `None` if it takes more. Absences are exchanged for others with fewer bytes if that is wanted.
pub(super) fn moves(
    pieces: &Pieces,
    tensors: &[usize],
    schedule: &Schedule,
    limit_bytes: u64,
    exchanges: bool,
) -> Option<Vec<Move>> {
    let mut load = Load::of(pieces, limit_bytes);
    let absences = absences(pieces, tensors, schedule).into_iter();
    let mut absences: Vec<(Absence, u64)> =
        absences.filter_map(|absence| pieces.all.get(absence.piece).map(|piece| (absence, piece.bytes))).collect();
    for (absence, bytes) in &absences {
        load.remove(absence, *bytes);
    }
    if load.is_within() {
        // First of all, as few as possible: those without which it fits as well.
        absences.retain_mut(|(absence, bytes)| {
            let none = Absence { left: absence.next_use, fetch: absence.next_use - 1, ..*absence };
            !load.shorten(absence, none, *bytes)
        });
    }
    if !(if exchanges { exchange::exchange(pieces, &mut load, &mut absences) } else { load.is_within() }) {
        return None;
    }
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
        absences.extend(Absence::behind(pieces, place, *last_use));
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
