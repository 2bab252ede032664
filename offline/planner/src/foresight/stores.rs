//! Where what is away lies: on the host, as long as that has room; what is away for longest lies on flash, which is slow and has time for it.

use std::cmp::Reverse;

use trace::{Iteration, KernelId, id::Id};

use super::{Absence, Machine, Tier, Unplannable, room::Room};
use crate::{machine::Store, way::Way};

/// Of the host's memory one part of so many is left: for blocks on their way, and what the CPU puts there.
const ASIDE: u64 = 64;

/// Gives each absence its tier, and when it is to begin to come back at the latest.
///
/// # Errors
/// If the host has too little room, and there is no flash.
pub(super) fn choose(
    iteration: &Iteration,
    machine: &Machine,
    mut absences: Vec<Absence>,
    room: &Room,
) -> Result<Vec<Absence>, Unplannable> {
    let kernels = iteration.kernels().len();
    let mut host = Room::new(kernels, machine.host.bytes - machine.host.bytes / ASIDE);
    for absence in absences.iter().filter(|absence| absence.is_needed) {
        host.take(absence.ready, absence.next_use, absence.part.bytes());
    }
    if host.most_bytes() <= host.limit_bytes() {
        return Ok(absences);
    }
    let Some(Store { out, back, .. }) = machine.flash else {
        return Err(Unplannable::HostTooSmall { away_bytes: host.most_bytes(), host_bytes: machine.host.bytes });
    };
    let mut out = Way::of(iteration, &machine.host.out, Some(&out));
    let mut back = Way::of(iteration, &machine.host.back, Some(&back));
    // From when on there is room for all of it, if nothing has to be earlier than what is needed before it.
    let mut room = room.clone();
    absences.sort_by_key(|absence| (absence.next_use, Reverse(absence.part.bytes()), absence.tensor, absence.part));
    let mut longest: Vec<_> = absences
        .iter_mut()
        .map(|absence| {
            let parts = room.extend(absence.next_use, absence.next_use - absence.release, absence.part.bytes());
            let from = parts.last().map_or(absence.next_use, |&(from, _)| from);
            (absence, from)
        })
        .filter(|(absence, _)| absence.is_needed)
        .collect();
    longest.sort_by_key(|(absence, _)| Reverse(length_ns(iteration, absence)));
    // First what flash carries in time: gone before there is no room for it, and back from when on there is. If that is not enough, whatever is away for long.
    for in_time in [true, false] {
        for (absence, room_from) in &mut longest {
            let Absence { ready, release, next_use, part, tier, .. } = **absence;
            if tier == Tier::Flash || host.fits(ready, next_use, 0) {
                continue;
            }
            let bytes = part.bytes();
            // Ways go around: one turn is like another.
            let turn = ready - ready % kernels;
            let begin = back.begin_by(Tier::Flash, *room_from - turn, next_use - turn, bytes);
            let begin = begin.filter(|_| out.done_by(Tier::Flash, ready - turn, release - turn, bytes).is_some());
            if in_time && begin.is_none() {
                continue;
            }
            out.book_from(Tier::Flash, ready - turn, bytes);
            back.book_to(Tier::Flash, next_use - turn, bytes);
            host.give_back(ready, next_use, bytes);
            absence.tier = Tier::Flash;
            absence.due = begin.map_or(next_use, |begin| begin + turn);
        }
    }
    Ok(absences)
}

fn length_ns(iteration: &Iteration, absence: &Absence) -> u64 {
    let at_ns = |position: usize| {
        let kernels = iteration.kernels().len();
        (position / kernels) as u64 * iteration.duration_ns() + iteration.start_ns(KernelId::new(position % kernels))
    };
    at_ns(absence.next_use) - at_ns(absence.ready)
}
