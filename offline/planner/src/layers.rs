//! Layers and what they keep for the way back: what planners go by that know networks and not the clock.
//!
//! Traces name no layers. A layer begins with a kernel that reads a parameter which the kernel before it did not; the way back begins where most bytes are
//! kept that nobody uses.

use std::collections::BTreeSet;

use trace::{Iteration, KernelId, Table, TensorId, id::Id, lifetime::Gap};

/// A tensor that the way forward makes and the way back uses: a feature map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) tensor: TensorId,
    pub(super) bytes: u64,
    /// The kernel after its last use on the way forward.
    pub(super) from: KernelId,
    /// Its first use on the way back.
    pub(super) to: KernelId,
}

/// How an iteration is made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// In order; not empty.
    starts: Vec<KernelId>,
    /// The first kernel of the way back.
    pub(super) turn: KernelId,
    /// In the order in which the way forward has done with them.
    pub(super) kept: Vec<Kept>,
}

impl Layers {
    /// Tensors of so many bytes at least count as kept.
    pub(super) fn of(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Self {
        let gaps = kept_gaps(iteration, footprints, least_bytes);
        let turn = fullest(iteration, &gaps);
        let mut kept: Vec<_> = gaps.into_iter().filter(|of| of.from <= turn && turn < of.to).collect();
        kept.sort_by_key(|of| (of.from, of.tensor));
        Self { starts: starts(iteration), turn, kept }
    }

    /// Where the layer begins that a kernel is in.
    pub(super) fn start(&self, kernel: KernelId) -> KernelId {
        let after = self.starts.partition_point(|&start| start <= kernel);
        self.starts.get(after.saturating_sub(1)).copied().unwrap_or(KernelId(0))
    }

    /// Where the layer before that begins.
    pub(super) fn start_before(&self, kernel: KernelId) -> KernelId {
        let own = self.start(kernel);
        own.index().checked_sub(1).map_or(own, |before| self.start(KernelId::new(before)))
    }

    /// Where the next layer begins, if there is one.
    pub(super) fn next_start(&self, kernel: KernelId) -> Option<KernelId> {
        self.starts.get(self.starts.partition_point(|&start| start <= kernel)).copied()
    }
}

fn kept_gaps(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Vec<Kept> {
    let large = iteration.tensors().iter().filter(|(_, tensor)| !tensor.persistent && tensor.bytes >= least_bytes);
    let gaps = large.flat_map(|(tensor, _)| {
        let kept = move |gap: Gap| Kept { tensor, bytes: footprints[tensor], from: gap.first, to: gap.next_use };
        iteration.gaps(tensor).into_iter().map(kept)
    });
    gaps.collect()
}

/// The kernel at which most bytes are idle; the first of them.
fn fullest(iteration: &Iteration, gaps: &[Kept]) -> KernelId {
    let mut changes = Table::<KernelId, i128>::of(0, iteration.kernels().len() + 1);
    for of in gaps {
        changes[of.from] += i128::from(of.bytes);
        changes[of.to] -= i128::from(of.bytes);
    }
    let (mut idle, mut most, mut turn) = (0, 0, KernelId(0));
    for (kernel, change) in changes.iter() {
        idle += change;
        if idle > most {
            (most, turn) = (idle, kernel);
        }
    }
    turn
}

fn starts(iteration: &Iteration) -> Vec<KernelId> {
    let mut starts = vec![KernelId(0)];
    let mut before = BTreeSet::new();
    for kernel in iteration.kernels().ids() {
        let parameters = iteration.inputs(kernel).filter(|&tensor| iteration.tensors()[tensor].persistent);
        let parameters: BTreeSet<_> = parameters.collect();
        if kernel > KernelId(0) && !parameters.is_subset(&before) {
            starts.push(kernel);
        }
        before = parameters;
    }
    starts
}
