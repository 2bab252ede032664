//! Layers and feature maps, for planners that know networks and not the clock.
//!
//! Traces do not name layers. A layer begins with a kernel that reads a parameter which the kernel
//! before it did not. The backward pass begins at the kernel at which most bytes are idle.

use std::collections::BTreeSet;

use trace::{Iteration, KernelId, Table, TensorId, id::Id, lifetime::Gap};

/// A feature map: a tensor that the forward pass writes and the backward pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeatureMap {
    pub(super) tensor: TensorId,
    pub(super) bytes: u64,
    /// The kernel after its last use in the forward pass.
    pub(super) from: KernelId,
    /// Its first use in the backward pass.
    pub(super) to: KernelId,
}

/// Layers and feature maps of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// First kernels of the layers, in order; not empty.
    starts: Vec<KernelId>,
    /// The first kernel of the backward pass.
    pub(super) backward_start: KernelId,
    /// By the kernel of the forward pass from which they are idle.
    pub(super) feature_maps: Vec<FeatureMap>,
}

impl Layers {
    /// Layers of an iteration. A feature map has at least `least_bytes`.
    pub(super) fn of(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Self {
        let gaps = candidates(iteration, footprints, least_bytes);
        let backward_start = most_idle(iteration, &gaps);
        let mut feature_maps: Vec<_> =
            gaps.into_iter().filter(|of| of.from <= backward_start && backward_start < of.to).collect();
        feature_maps.sort_by_key(|of| (of.from, of.tensor));
        Self { starts: starts(iteration), backward_start, feature_maps }
    }

    /// First kernel of the layer that contains a kernel.
    pub(super) fn start(&self, kernel: KernelId) -> KernelId {
        let after = self.starts.partition_point(|&start| start <= kernel);
        self.starts.get(after.saturating_sub(1)).copied().unwrap_or(KernelId(0))
    }

    /// First kernel of the layer before that.
    pub(super) fn start_before(&self, kernel: KernelId) -> KernelId {
        let own = self.start(kernel);
        own.index().checked_sub(1).map_or(own, |before| self.start(KernelId::new(before)))
    }

    /// First kernel of the next layer, if there is one.
    pub(super) fn next_start(&self, kernel: KernelId) -> Option<KernelId> {
        self.starts.get(self.starts.partition_point(|&start| start <= kernel)).copied()
    }
}

fn candidates(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Vec<FeatureMap> {
    let large = iteration.tensors().iter().filter(|(_, tensor)| !tensor.persistent && tensor.bytes >= least_bytes);
    let gaps = large.flat_map(|(tensor, _)| {
        let feature_map =
            move |gap: Gap| FeatureMap { tensor, bytes: footprints[tensor], from: gap.first, to: gap.next_use };
        iteration.gaps(tensor).into_iter().map(feature_map)
    });
    gaps.collect()
}

/// The first of the kernels at which most bytes are idle.
fn most_idle(iteration: &Iteration, gaps: &[FeatureMap]) -> KernelId {
    let mut changes = Table::<KernelId, i128>::of(0, iteration.kernels().len() + 1);
    for of in gaps {
        changes[of.from] += i128::from(of.bytes);
        changes[of.to] -= i128::from(of.bytes);
    }
    let (mut idle_bytes, mut most_bytes, mut backward_start) = (0, 0, KernelId(0));
    for (kernel, change) in changes.iter() {
        idle_bytes += change;
        if idle_bytes > most_bytes {
            (most_bytes, backward_start) = (idle_bytes, kernel);
        }
    }
    backward_start
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
