//! Foresight: what is needed last leaves, as soon as it is idle; what is away comes back as soon as there is room for good.
//!
//! Source: this project; the choice of what leaves is Belady's, of what is known to be needed next.
//! Parameters: [`Foresight`].
//! Complexity: u uses and a absences in k kernels: O(u log u + a k).
//! docs/policies/auto-plan.md says what it rests on.
//!
//! * `choice`: which parts of tensors are away, from when to when there is no room for them
//! * `heirs`: who gets the memory of the dead
//! * `stores`: what of it lies on flash, where the host has no room
//! * `room`: bytes at each kernel, around the end of the iteration

mod choice;
mod heirs;
mod room;
mod stores;

use std::cmp::Reverse;

use trace::{Iteration, KernelId, id::Id};

use self::choice::{Absence, Choice};
use super::{Act, Action, Machine, Part, Planner, Schedule, Tier, Unplannable, lifetimes};

/// The planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foresight {
    /// For so many kernels memory of the dead stays for what is born next and no larger, where there is room: it need not be made again. With none, it is handed on to
    /// what is born at once alone, and around the end of the iteration.
    pub keep: usize,
}

/// A part of an absence that comes back at one time.
struct Return {
    absence: Absence,
    /// It comes back from this position on.
    back: usize,
}

impl Planner for Foresight {
    fn name(&self) -> &'static str {
        "foresight"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = lifetimes::footprints(iteration);
        let Choice { absences, mut room } = choice::choose(iteration, &footprints, machine.gpu_bytes)?;
        let mut heirs = heirs::choose(iteration, &footprints, &mut room, self.keep);
        let mut absences = stores::choose(iteration, machine, absences, &room)?;
        // What is due first takes what room there is first.
        absences.sort_by_key(|absence| (absence.due, Reverse(absence.part.bytes()), absence.tensor, absence.part));
        let mut returns = Vec::with_capacity(absences.len());
        for absence in &mut absences {
            let most = absence.next_use - absence.release;
            let mut from_bytes = absence.part.from_bytes;
            for (back, bytes) in room.extend(absence.next_use, most, absence.part.bytes()) {
                let part = Part { from_bytes, to_bytes: from_bytes + bytes };
                from_bytes = part.to_bytes;
                if back > absence.release {
                    returns.push(Return { absence: Absence { part, ..*absence }, back });
                } else {
                    // Where there turns out to be room all along, nothing moves.
                    absence.part.from_bytes = part.to_bytes;
                }
            }
        }
        absences.retain(|absence| absence.part.bytes() > 0);
        heirs.around_the_end(iteration, &footprints, &mut room);
        // What is left of the dead is dropped when the rest is handed on.
        let mut actions: Vec<_> = heirs.actions(iteration).collect();
        actions.extend(lifetimes::drops(iteration).into_iter().filter(|action| !heirs.has_spent(action.tensor)));
        let is_wanted = |tensor| !heirs.has(tensor);
        actions.extend(lifetimes::births(iteration, &footprints, &mut room.taken, machine.gpu_bytes, is_wanted));
        let at = |position: usize| KernelId::new(position % iteration.kernels().len());
        let action = |absence: &Absence, begin, act, done_before| {
            let Absence { tensor, part, .. } = *absence;
            let is_whole = part.bytes() == footprints[tensor];
            Action { begin: at(begin), tensor, act, part: (!is_whole).then_some(part), done_before }
        };
        actions.extend(returns.iter().map(|Return { absence, back }| {
            let act = if absence.is_needed { Act::Move(Tier::Gpu) } else { Act::Allocate };
            action(absence, *back, act, Some(at(absence.next_use)))
        }));
        absences.sort_by_key(|absence| (absence.release, Reverse(absence.next_use), absence.tensor, absence.part));
        actions.extend(absences.iter().map(|absence| {
            let act = if absence.is_needed { Act::Move(absence.tier) } else { Act::Drop };
            action(absence, absence.ready, act, None)
        }));
        Ok(Schedule::new(actions))
    }
}
