//! Foresight: what is needed last leaves, as soon as it is idle; what is away comes back as soon as there is room for good.
//!
//! Source: this project; the choice of what leaves is Belady's, of what is known to be needed next.
//! Parameters: [`Foresight`].
//! Complexity: u uses and a absences in k kernels: O(u log u + a k).
//! docs/policies/auto-plan.md says what it rests on.
//!
//! * `choice`: which tensors are away, from when to when there is no room for them
//! * `room`: bytes on the GPU at each kernel, around the end of the iteration

mod choice;
mod room;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use self::{
    choice::{Absence, Choice},
    room::Room,
};
use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, upkeep};

/// The planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foresight {
    /// For so many kernels memory of the dead stays for what is born next and as large, where there is room: it need not be made again.
    pub keep: usize,
}

impl Planner for Foresight {
    fn name(&self) -> &'static str {
        "foresight"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = upkeep::footprints(iteration);
        let Choice { mut absences, mut room } = choice::choose(iteration, &footprints, machine.gpu_bytes)?;
        let kept = self.kept(iteration, &footprints, &mut room);
        // What is needed first takes what room there is first.
        absences.sort_by_key(|absence| (absence.next_use, Reverse(absence.bytes), absence.tensor));
        let back: Vec<_> = absences
            .iter()
            .map(|absence| room.extend(absence.next_use, absence.next_use - absence.release, absence.bytes))
            .collect();
        let mut actions = upkeep::drops(iteration);
        actions.retain(|action| !kept.contains(&action.tensor));
        actions.extend(upkeep::births(iteration, &footprints, &mut room.taken, machine.gpu_bytes));
        // Where there turns out to be room all along, nothing moves.
        let mut away: Vec<_> = absences.iter().zip(back).filter(|(absence, back)| *back > absence.release).collect();
        let at = |position: usize| KernelId::new(position % iteration.kernels().len());
        actions.extend(away.iter().map(|&(absence, back)| {
            let Absence { tensor, next_use, is_needed, .. } = *absence;
            let act = if is_needed { Act::Move(Tier::Gpu) } else { Act::Allocate };
            Action { begin: at(back), tensor, act, done_before: Some(at(next_use)) }
        }));
        away.sort_by_key(|(absence, _)| (absence.release, Reverse(absence.next_use), absence.tensor));
        actions.extend(away.iter().map(|(absence, _)| {
            let Absence { tensor, ready, release, is_needed, .. } = **absence;
            let (act, done_before) =
                if is_needed { (Act::Move(Tier::Host), Some(at(release))) } else { (Act::Drop, None) };
            Action { begin: at(ready), tensor, act, done_before }
        }));
        Ok(Schedule::new(actions))
    }
}

impl Foresight {
    /// The dead whose memory stays for others. Which of them gets it is the allocator's: it prefers what is as large.
    fn kept(self, iteration: &Iteration, footprints: &Table<TensorId, u64>, room: &mut Room) -> BTreeSet<TensorId> {
        let mut dead: BTreeMap<u64, Vec<(usize, TensorId)>> = BTreeMap::new();
        let mut kept = BTreeSet::new();
        for kernel in iteration.kernels().ids().filter(|_| self.keep > 0) {
            let position = kernel.index();
            for born in iteration.births(kernel) {
                let bytes = footprints[born];
                let Some((from, tensor)) = dead.get_mut(&bytes).and_then(Vec::pop) else { continue };
                if position - from <= self.keep && room.fits(from, position, bytes) {
                    room.take(from, position, bytes);
                    kept.insert(tensor);
                }
            }
            for tensor in iteration.deaths(kernel) {
                dead.entry(footprints[tensor]).or_default().push((position + 1, tensor));
            }
        }
        kept
    }
}
