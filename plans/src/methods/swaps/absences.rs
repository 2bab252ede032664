//! Absences: intervals in which a schedule keeps pieces off the GPU.
//!
//! A schedule determines only which pieces leave the GPU, and when. A piece leaves after launch
//! `b`, launch `w` waits until it has left, its fetch begins after launch `f`, and launch `d` uses
//! it: `b < w <= f <= d`. With `f = d`, there is no room for an earlier fetch: the piece is left to
//! faults, which copy the same bytes.
//!
//! A move that begins after a launch may be executed before the next launch waits for other moves.
//! So each launch has two loads: before it, with fetched pieces already present and leaving pieces
//! still present, and during it. A piece is absent before launches `w + 1` to `f`, and during `w`
//! to `min(f, d - 1)`. Both moves get as much time as the room permits; a piece that needs no
//! absence stays resident.
//!
//! * `load`: absences, and the load of the GPU with them
//! * `exchange`: search for absences with fewer bytes

mod exchange;
mod load;

use std::collections::BTreeSet;

use call_ring::plan::{Destination, Move};
use planner::{Act, Schedule, Tier};
use trace::id::Id;

use self::load::Load;
pub(super) use self::{exchange::minimize, load::Absence};
use crate::{
    moves::{PieceMove, merged_moves, moved_piece},
    pieces::Pieces,
};

/// Absences of a schedule that are needed to keep the load within the limit; `tensors` has the
/// piece of each tensor. `None` if the schedule exceeds the limit.
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
        let Some((index, piece)) = moved_piece(pieces, tensors, action) else { continue };
        // After the previous launch.
        let begin = (action.begin.index() + ops - 1) % ops;
        let Some(last_use) = piece.uses.iter().rev().find(|op| **op <= begin).or(piece.uses.last()) else { continue };
        absences.extend(Absence::after(pieces, index, *last_use));
    }
    let mut absences: Vec<Absence> = absences.into_iter().collect();
    let mut load = Load::with(pieces, limit_bytes, &absences);
    load.is_within_limit().then(|| {
        absences.retain_mut(|absence| {
            let shortest = Absence { wait: absence.next_use, fetch: absence.next_use - 1, ..*absence };
            !load.shorten(absence, shortest)
        });
        absences
    })
}

/// Moves that implement these absences, each with as much time as `limit_bytes` permits. The load
/// stays within `limit_bytes`.
pub(super) fn moves(pieces: &Pieces, mut absences: Vec<Absence>, limit_bytes: u64) -> Vec<Move> {
    let mut load = Load::with(pieces, limit_bytes, &absences);
    // First, fetches replace faults where there is room.
    for absence in absences.iter_mut().filter(|absence| absence.fetch > absence.wait) {
        let fetched = Absence { fetch: absence.fetch - 1, ..*absence };
        load.shorten(absence, fetched);
    }
    for absence in &mut absences {
        let mut has_room = true;
        while has_room && absence.wait < absence.fetch {
            let later = Absence { wait: absence.wait + 1, ..*absence };
            has_room = absence.wait + 1 < absence.next_use && load.shorten(absence, later);
            if absence.wait < absence.fetch && !absence.is_faulted() {
                let earlier = Absence { fetch: absence.fetch - 1, ..*absence };
                has_room |= load.shorten(absence, earlier);
            }
        }
    }
    merged_moves(pieces, absences.iter().flat_map(steps))
}

/// Move of a piece to the host, and back unless that is left to faults.
fn steps(absence: &Absence) -> impl Iterator<Item = PieceMove> + use<> {
    let Absence { next_use, piece, last_use, wait, fetch, .. } = *absence;
    // After launch `fetch`, the piece is on its way back or about to be used.
    let (wait, expiry) = (Some(wait), Some(fetch));
    let to_host = PieceMove { piece, destination: Destination::Host, begin: last_use, wait, expiry };
    let to_gpu = PieceMove { piece, destination: Destination::Gpu, begin: fetch, wait: Some(next_use), expiry: None };
    [Some(to_host), Some(to_gpu).filter(|_| !absence.is_faulted())].into_iter().flatten()
}
