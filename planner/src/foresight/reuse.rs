//! Reuse of dead tensors' memory by tensors that are born next and are no larger, so that it is not
//! populated again.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Part, occupancy::Occupancy};

/// Reuse of memory, by dead and by born tensors.
#[derive(Debug, Default)]
pub(super) struct Reuse {
    /// Born tensors by dead tensor, in order: each takes a part of the memory that those before
    /// left.
    by_dead: BTreeMap<TensorId, Vec<TensorId>>,
    /// Dead tensors without any memory left.
    exhausted: BTreeSet<TensorId>,
    born: BTreeSet<TensorId>,
}

/// Free memory of dead tensors, by bytes; for each size the last died last.
type FreeMemory = BTreeMap<u64, Vec<(usize, TensorId)>>;

/// Chooses the best fit and, among equals, the tensor that died last. Memory is reserved for at
/// most `keep` kernels, and only where it fits; the reservation counts in `occupancy`.
pub(super) fn choose(
    iteration: &Iteration,
    footprints: &Table<TensorId, u64>,
    occupancy: &mut Occupancy,
    keep: usize,
) -> Reuse {
    let mut reuse = Reuse::default();
    let mut free = FreeMemory::new();
    for kernel in iteration.kernels().ids() {
        let position = kernel.index();
        for born in born_here(iteration, kernel) {
            reuse.assign(born, footprints[born], &mut free, occupancy, position.saturating_sub(keep)..position);
        }
        for tensor in iteration.deaths(kernel) {
            free.entry(footprints[tensor]).or_default().push((position + 1, tensor));
        }
    }
    reuse
}

impl Reuse {
    /// Assigns memory that is not reused to births of the next iteration, however long it is
    /// reserved, where it fits.
    pub(super) fn across_iterations(
        &mut self,
        iteration: &Iteration,
        footprints: &Table<TensorId, u64>,
        occupancy: &mut Occupancy,
    ) {
        let kernels = iteration.kernels();
        let mut free = FreeMemory::new();
        for kernel in kernels.ids() {
            for dead in iteration.deaths(kernel).filter(|dead| !self.by_dead.contains_key(dead)) {
                free.entry(footprints[dead]).or_default().push((kernel.index() + 1, dead));
            }
        }
        for kernel in kernels.ids() {
            for born in born_here(iteration, kernel).filter(|born| !self.born.contains(born)).collect::<Vec<_>>() {
                // A tensor that dies while this iteration's `born` is alive would give it two
                // memories. `born` cannot reuse its own memory.
                let earliest = iteration.uses(born).last().map_or(0, |last| last.kernel.index() + 2);
                self.assign(born, footprints[born], &mut free, occupancy, earliest..kernels.len() + kernel.index());
            }
        }
    }

    /// Assigns memory of a tensor that died within `time`, which ends at the birth, if there is any.
    fn assign(
        &mut self,
        born: TensorId,
        bytes: u64,
        free: &mut FreeMemory,
        occupancy: &mut Occupancy,
        time: Range<usize>,
    ) {
        let fits = |from| occupancy.fits(from, time.end, bytes);
        let Some((from, dead, rest_bytes)) = take(free, bytes, time.start, fits) else { return };
        occupancy.add(from, time.end, bytes);
        self.by_dead.entry(dead).or_default().push(born);
        self.born.insert(born);
        if rest_bytes == 0 {
            self.exhausted.insert(dead);
        } else {
            free.entry(rest_bytes).or_default().push((from, dead));
        }
    }
}

/// Tensors that are born at a kernel and need memory, without those that the CPU writes: they have
/// memory of their own.
fn born_here(iteration: &Iteration, kernel: KernelId) -> impl Iterator<Item = TensorId> {
    let by_cpu = |born: TensorId| iteration.uses(born).first().is_some_and(|first| first.access.reads());
    iteration.births(kernel).filter(move |born| !by_cpu(*born))
}

/// Takes memory of a tensor that died at `earliest` or later. Returns the time of death, the tensor
/// and its remaining bytes.
fn take(
    free: &mut FreeMemory,
    bytes: u64,
    earliest: usize,
    mut fits: impl FnMut(usize) -> bool,
) -> Option<(usize, TensorId, u64)> {
    // Small tensors share blocks, and large ones do not: a small tensor takes memory of a small one.
    let bytes_max = if bytes < Part::BLOCK_BYTES { Part::BLOCK_BYTES - 1 } else { u64::MAX };
    let (&size, dead) = free
        .range_mut(bytes..=bytes_max)
        .find(|(_, dead)| dead.last().is_some_and(|&(from, _)| from >= earliest && fits(from)))?;
    let (from, tensor) = dead.pop()?;
    if dead.is_empty() {
        free.remove(&size);
    }
    Some((from, tensor, size - bytes))
}

impl Reuse {
    /// Whether a born tensor reuses memory of a dead one.
    pub(super) fn serves(&self, born: TensorId) -> bool {
        self.born.contains(&born)
    }

    /// Whether all memory of a dead tensor is reused.
    pub(super) fn is_exhausted(&self, dead: TensorId) -> bool {
        self.exhausted.contains(&dead)
    }

    /// The actions of all reuse.
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
