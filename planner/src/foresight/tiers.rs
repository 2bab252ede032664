//! Tier of each absence: the host, until it is full; the longest absences lie on flash, which is
//! slow, and for which they have time.

use std::cmp::Reverse;

use trace::{Iteration, KernelId, id::Id};

use super::{Absence, Machine, Tier, Unplannable, occupancy::Occupancy};
use crate::{channel::Channel, machine::Store};

/// Reserve of the host's memory as a fraction, 1 / `RESERVE_DIVISOR`: for blocks in transfer, and
/// for the CPU's own data.
const RESERVE_DIVISOR: u64 = 64;

/// Sets the tier of each absence, and the latest begin of its fetch.
///
/// # Errors
/// If the host has too little memory, and there is no flash.
pub(super) fn choose(
    iteration: &Iteration,
    machine: &Machine,
    mut absences: Vec<Absence>,
    occupancy: &Occupancy,
) -> Result<Vec<Absence>, Unplannable> {
    let kernels = iteration.kernels().len();
    let mut host = Occupancy::new(kernels, machine.host.bytes - machine.host.bytes / RESERVE_DIVISOR);
    for absence in absences.iter().filter(|absence| absence.is_needed) {
        host.add(absence.ready, absence.next_use, absence.part.bytes());
    }
    if host.peak_bytes() <= host.limit_bytes() {
        return Ok(absences);
    }
    let Some(Store { out, back, .. }) = machine.flash else {
        return Err(Unplannable::HostTooSmall { away_bytes: host.peak_bytes(), host_bytes: machine.host.bytes });
    };
    let mut out = Channel::of(iteration, &machine.host.out, Some(&out));
    let mut back = Channel::of(iteration, &machine.host.back, Some(&back));
    // First position from which all of it fits, if no earlier fetch is required for tensors used
    // before it.
    let mut occupancy = occupancy.clone();
    absences.sort_by_key(|absence| (absence.next_use, Reverse(absence.part.bytes()), absence.tensor, absence.part));
    let mut by_length: Vec<_> = absences
        .iter_mut()
        .map(|absence| {
            let parts = occupancy.extend(absence.next_use, absence.next_use - absence.release, absence.part.bytes());
            let from = parts.last().map_or(absence.next_use, |&(from, _)| from);
            (absence, from)
        })
        .filter(|(absence, _)| absence.is_needed)
        .collect();
    by_length.sort_by_key(|(absence, _)| Reverse(length_ns(iteration, absence)));
    // First absences for which flash is fast enough: out before they stop to fit, and back from
    // when they fit. If these do not suffice, any long absence.
    for in_time in [true, false] {
        for (absence, fits_from) in &mut by_length {
            let Absence { ready, release, next_use, part, tier, .. } = **absence;
            if tier == Tier::Flash || host.fits(ready, next_use, 0) {
                continue;
            }
            let bytes = part.bytes();
            // Channels are circular: one turn is like another.
            let turn = ready - ready % kernels;
            let begin = back.latest_begin(Tier::Flash, *fits_from - turn, next_use - turn, bytes);
            let begin = begin.filter(|_| out.earliest_end(Tier::Flash, ready - turn, release - turn, bytes).is_some());
            if in_time && begin.is_none() {
                continue;
            }
            out.book_from(Tier::Flash, ready - turn, bytes);
            back.book_to(Tier::Flash, next_use - turn, bytes);
            host.subtract(ready, next_use, bytes);
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
