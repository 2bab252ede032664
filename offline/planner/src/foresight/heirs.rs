//! Who gets the memory of the dead: what is born next and is no larger, so that nobody makes that memory anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Part, room::Room};

/// Whose memory becomes whose.
#[derive(Debug, Default)]
pub(super) struct Heirs {
    /// The born by the dead, in order: each takes what is left by those before.
    by_dead: BTreeMap<TensorId, Vec<TensorId>>,
    /// The dead of whom nothing is left.
    spent: BTreeSet<TensorId>,
    born: BTreeSet<TensorId>,
}

/// What is left of the dead, by how much; of those the last died last.
type Left = BTreeMap<u64, Vec<(usize, TensorId)>>;

/// Of those with room for it, who left least hands on, and of those who died last. Memory waits for `keep` kernels at most, and where there is room; it takes that.
pub(super) fn choose(iteration: &Iteration, footprints: &Table<TensorId, u64>, room: &mut Room, keep: usize) -> Heirs {
    let mut heirs = Heirs::default();
    let mut left = Left::new();
    for kernel in iteration.kernels().ids() {
        let position = kernel.index();
        for born in born_here(iteration, kernel) {
            heirs.inherit(born, footprints[born], &mut left, room, position.saturating_sub(keep)..position);
        }
        for tensor in iteration.deaths(kernel) {
            left.entry(footprints[tensor]).or_default().push((position + 1, tensor));
        }
    }
    heirs
}

impl Heirs {
    /// What nobody got goes to those who are born in the next iteration, however long that takes, where there is room that nobody else needs.
    pub(super) fn around_the_end(&mut self, iteration: &Iteration, footprints: &Table<TensorId, u64>, room: &mut Room) {
        let kernels = iteration.kernels();
        let mut left = Left::new();
        for kernel in kernels.ids() {
            for dead in iteration.deaths(kernel).filter(|dead| !self.by_dead.contains_key(dead)) {
                left.entry(footprints[dead]).or_default().push((kernel.index() + 1, dead));
            }
        }
        for kernel in kernels.ids() {
            for born in born_here(iteration, kernel).filter(|born| !self.born.contains(born)).collect::<Vec<_>>() {
                // Who dies before the born of this iteration has gone would leave it two memories; it itself leaves it none.
                let earliest = iteration.uses(born).last().map_or(0, |last| last.kernel.index() + 2);
                self.inherit(born, footprints[born], &mut left, room, earliest..kernels.len() + kernel.index());
            }
        }
    }

    /// Gives memory of somebody who died in this time, the end of which is its birth, if there is any.
    fn inherit(&mut self, born: TensorId, bytes: u64, left: &mut Left, room: &mut Room, time: Range<usize>) {
        let fits = |from| room.fits(from, time.end, bytes);
        let Some((from, dead, rest_bytes)) = take(left, bytes, time.start, fits) else { return };
        room.take(from, time.end, bytes);
        self.by_dead.entry(dead).or_default().push(born);
        self.born.insert(born);
        if rest_bytes == 0 {
            self.spent.insert(dead);
        } else {
            left.entry(rest_bytes).or_default().push((from, dead));
        }
    }
}

/// Who is born here and needs memory; what the CPU makes has memory of its own.
fn born_here(iteration: &Iteration, kernel: KernelId) -> impl Iterator<Item = TensorId> {
    let by_cpu = |born: TensorId| iteration.uses(born).first().is_some_and(|first| first.access.reads());
    iteration.births(kernel).filter(move |born| !by_cpu(*born))
}

/// Takes so much of what somebody left who died at `earliest` or later; when that was, whose it is, and how much more there is.
fn take(
    left: &mut Left,
    bytes: u64,
    earliest: usize,
    mut fits: impl FnMut(usize) -> bool,
) -> Option<(usize, TensorId, u64)> {
    // Small tensors share blocks, and large ones do not.
    let most = if bytes < Part::BLOCK_BYTES { Part::BLOCK_BYTES - 1 } else { u64::MAX };
    let (&size, dead) = left
        .range_mut(bytes..=most)
        .find(|(_, dead)| dead.last().is_some_and(|&(from, _)| from >= earliest && fits(from)))?;
    let (from, tensor) = dead.pop()?;
    if dead.is_empty() {
        left.remove(&size);
    }
    Some((from, tensor, size - bytes))
}

impl Heirs {
    /// Whether it gets memory of the dead.
    pub(super) fn has(&self, born: TensorId) -> bool {
        self.born.contains(&born)
    }

    /// Whether somebody gets all the memory of that one.
    pub(super) fn has_spent(&self, dead: TensorId) -> bool {
        self.spent.contains(&dead)
    }

    /// Hands it all on.
    pub(super) fn actions(&self, iteration: &Iteration) -> impl Iterator<Item = Action> {
        self.by_dead.iter().flat_map(|(&tensor, born)| {
            let last = iteration.uses(tensor).last().map_or(0, |last| last.kernel.index());
            let begin = KernelId::new(last + 1);
            born.iter().map(move |&born| Action {
                begin,
                tensor,
                act: Act::HandOn(born),
                part: None,
                done_before: None,
            })
        })
    }
}
