//! Who gets the memory of the dead: what is born next and is as large, so that nobody makes that memory anew.

use std::collections::{BTreeMap, BTreeSet};

use trace::{Iteration, Table, TensorId, id::Id};

use super::room::Room;

/// Whose memory becomes whose.
#[derive(Debug, Default)]
pub(super) struct Heirs {
    /// The born by the dead.
    pub(super) by_dead: BTreeMap<TensorId, TensorId>,
    /// The born.
    pub(super) born: BTreeSet<TensorId>,
}

/// Of those that are as large, who died last hands on. Memory waits for `keep` kernels at most, and where there is room; it takes that.
pub(super) fn choose(iteration: &Iteration, footprints: &Table<TensorId, u64>, room: &mut Room, keep: usize) -> Heirs {
    let mut heirs = Heirs::default();
    let mut dead: BTreeMap<u64, Vec<(usize, TensorId)>> = BTreeMap::new();
    for kernel in iteration.kernels().ids() {
        let position = kernel.index();
        for born in iteration.births(kernel) {
            let by_cpu = iteration.uses(born).first().is_some_and(|first| first.access.reads());
            let bytes = footprints[born];
            let Some((from, tensor)) = dead.get_mut(&bytes).filter(|_| !by_cpu).and_then(Vec::pop) else { continue };
            if position - from <= keep && room.fits(from, position, bytes) {
                room.take(from, position, bytes);
                heirs.by_dead.insert(tensor, born);
                heirs.born.insert(born);
            }
        }
        for tensor in iteration.deaths(kernel) {
            dead.entry(footprints[tensor]).or_default().push((position + 1, tensor));
        }
    }
    heirs
}
