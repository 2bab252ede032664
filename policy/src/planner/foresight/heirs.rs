//! Who gets the memory of the dead: what is born next and is no larger, so that nobody makes that memory anew.

use std::collections::{BTreeMap, BTreeSet};

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
        for born in iteration.births(kernel) {
            // What the CPU makes has memory of its own.
            if iteration.uses(born).first().is_some_and(|first| first.access.reads()) {
                continue;
            }
            let bytes = footprints[born];
            let Some((from, dead, rest_bytes)) =
                take(&mut left, bytes, position.saturating_sub(keep), |from| room.fits(from, position, bytes))
            else {
                continue;
            };
            room.take(from, position, bytes);
            heirs.by_dead.entry(dead).or_default().push(born);
            heirs.born.insert(born);
            if rest_bytes == 0 {
                heirs.spent.insert(dead);
            } else {
                left.entry(rest_bytes).or_default().push((from, dead));
            }
        }
        for tensor in iteration.deaths(kernel) {
            left.entry(footprints[tensor]).or_default().push((position + 1, tensor));
        }
    }
    heirs
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
