//! Foresight: evicts the tensors with the latest next use as soon as they are idle, and prefetches
//! them as soon as they fit until their use.
//!
//! Source: this project; the victims are Belady's, by the known next uses.
//! Parameters: [`Foresight`].
//! Complexity: O(u log u + a k) for u uses and a absences in k kernels.
//! docs/policies/auto-plan.md describes the assumptions.
//!
//! * `choice`: parts of tensors that are evicted, and the time for which they do not fit
//! * `reuse`: reuse of dead tensors' memory
//! * `tiers`: parts on flash, where the host is full
//! * `occupancy`: bytes on the GPU at each kernel, around the end of the iteration

mod choice;
mod occupancy;
mod reuse;
mod tiers;

use std::cmp::Reverse;

use trace::{Iteration, KernelId, id::Id};

use self::choice::{Absence, Choice};
use super::{Act, Action, Machine, Part, Planner, Schedule, Tier, Unplannable, lifetimes};

/// Name of the planner.
pub const NAME: &str = "foresight";

/// The planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foresight {
    /// Kernels for which memory of a dead tensor is reserved for the next birth that is no larger,
    /// where it fits: this memory need not be populated again. With 0, memory is only reused by
    /// tensors that are born at once, and around the end of the iteration.
    pub keep: usize,
}

/// A part of an absence with one time of return.
struct Return {
    absence: Absence,
    /// Position from which it is fetched.
    fetch: usize,
}

impl Planner for Foresight {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = lifetimes::footprints(iteration);
        let Choice { absences, mut occupancy } = choice::choose(iteration, &footprints, machine.gpu_bytes)?;
        let mut reuse = reuse::choose(iteration, &footprints, &mut occupancy, self.keep);
        let mut absences = tiers::choose(iteration, machine, absences, &occupancy)?;
        // Memory goes to the absences that are due first.
        absences.sort_by_key(|absence| (absence.due, Reverse(absence.part.bytes()), absence.tensor, absence.part));
        let mut returns = Vec::with_capacity(absences.len());
        for absence in &mut absences {
            let most = absence.next_use - absence.release;
            let mut from_bytes = absence.part.from_bytes;
            for (fetch, bytes) in occupancy.extend(absence.next_use, most, absence.part.bytes()) {
                let part = Part { from_bytes, to_bytes: from_bytes + bytes };
                from_bytes = part.to_bytes;
                if fetch > absence.release {
                    returns.push(Return { absence: Absence { part, ..*absence }, fetch });
                } else {
                    // Where it turns out to fit throughout, no migration is needed.
                    absence.part.from_bytes = part.to_bytes;
                }
            }
        }
        absences.retain(|absence| absence.part.bytes() > 0);
        reuse.across_iterations(iteration, &footprints, &mut occupancy);
        // The rest of a dead tensor is dropped after parts of it are reused.
        let mut actions: Vec<_> = reuse.actions(iteration).collect();
        actions.extend(lifetimes::drops(iteration).into_iter().filter(|action| !reuse.is_exhausted(action.tensor)));
        let needs_memory = |tensor| !reuse.serves(tensor);
        actions.extend(lifetimes::births(iteration, &footprints, &mut occupancy.used, machine.gpu_bytes, needs_memory));
        let at = |position: usize| KernelId::new(position % iteration.kernels().len());
        let action = |absence: &Absence, begin, act, done_before| {
            let Absence { tensor, part, .. } = *absence;
            let is_whole = part.bytes() == footprints[tensor];
            Action { begin: at(begin), tensor, act, part: (!is_whole).then_some(part), done_before }
        };
        actions.extend(returns.iter().map(|Return { absence, fetch }| {
            let act = if absence.is_needed { Act::Move(Tier::Gpu) } else { Act::Allocate };
            action(absence, *fetch, act, Some(at(absence.next_use)))
        }));
        absences.sort_by_key(|absence| (absence.release, Reverse(absence.next_use), absence.tensor, absence.part));
        actions.extend(absences.iter().map(|absence| {
            let act = if absence.is_needed { Act::Move(absence.tier) } else { Act::Drop };
            action(absence, absence.ready, act, None)
        }));
        Ok(Schedule::new(actions))
    }
}
