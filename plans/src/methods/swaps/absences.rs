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

use self::load::Load;
pub(super) use self::{exchange::least, load::Absence};
use crate::{
    moves::{Step, merged_moves, moved_piece},
    pieces::Pieces,
};

/// Absences of a schedule, whose tensors are these pieces, with no more than the limit on the GPU at any
/// time, and none that is not needed for that; `None` if the schedule takes more.
pub(super) fn of_schedule(
    pieces: &Pieces,
    tensors: &[usize],
    schedule: &Schedule,
    limit_bytes: u64,
) -> Option<Vec<Absence>> {
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
        absences.extend(Absence::after(pieces, place, *last_use));
    }
    let mut absences: Vec<Absence> = absences.into_iter().collect();
    let mut load = Load::with(pieces, limit_bytes, &absences);
    load.is_within().then(|| {
        absences.retain_mut(|absence| {
            let none = Absence { left: absence.next_use, fetch: absence.next_use - 1, ..*absence };
            !load.shorten(absence, none)
        });
        absences
    })
}

/// Moves for these absences, with no more than the limit on the GPU at any time.
pub(super) fn moves(pieces: &Pieces, mut absences: Vec<Absence>, limit_bytes: u64) -> Vec<Move> {
    let mut load = Load::with(pieces, limit_bytes, &absences);
    // First something that is not left to faults.
    for absence in absences.iter_mut().filter(|absence| absence.fetch > absence.left) {
        let fetched = Absence { fetch: absence.fetch - 1, ..*absence };
        load.shorten(absence, fetched);
    }
    for absence in &mut absences {
        let mut has_room = true;
        while has_room && absence.left < absence.fetch {
            let later = Absence { left: absence.left + 1, ..*absence };
            has_room = absence.left + 1 < absence.next_use && load.shorten(absence, later);
            if absence.left < absence.fetch && !absence.is_faulted() {
                let earlier = Absence { fetch: absence.fetch - 1, ..*absence };
                has_room |= load.shorten(absence, earlier);
            }
        }
    }
    merged_moves(pieces, absences.iter().flat_map(steps))
}

/// Departure of a piece, and its return unless that is left to faults.
fn steps(absence: &Absence) -> impl Iterator<Item = Step> + use<> {
    let Absence { next_use, piece, last_use, left, fetch, .. } = *absence;
    // Behind launch `fetch`, the piece is on its way back, or about to be used.
    let (wait, expiry) = (Some(left), Some(fetch));
    let leaves = Step { piece, destination: Destination::Host, begin: last_use, wait, expiry };
    let comes = Step { piece, destination: Destination::Gpu, begin: fetch, wait: Some(next_use), expiry: None };
    [Some(leaves), Some(comes).filter(|_| !absence.is_faulted())].into_iter().flatten()
}
