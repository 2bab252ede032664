//! vDNN: feature maps are offloaded to the host in the forward pass, whether memory is short or
//! not.
//!
//! Source: Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient
//! Neural Network Design" (MICRO'16).
//! Parameters: [`Offload`], the least size.
//! Complexity: O(t log t + k log k) for t tensors and k kernels with their uses; O(t k) for
//! [`Offload::Dynamic`].
//! docs/policies/vdnn.md describes and explains the differences from the paper.

use trace::{Iteration, KernelId, Table, id::Id};

use super::{
    Act, Action, Machine, Planner, Schedule, Tier, Unplannable,
    layers::{FeatureMap, Layers},
    lifetimes,
};

/// Feature maps that are offloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// All feature maps.
    #[default]
    All,
    /// Inputs of convolutions, which take long enough to hide the transfer. Convolutions are
    /// recognised by the kernel's name.
    Convolutions,
    /// The least set with which the rest fits the GPU: none, the inputs of convolutions, or all.
    Dynamic,
}

/// The planner. It ignores the clock; the size of memory matters to [`Offload::Dynamic`] only.
#[derive(Clone, Copy, Debug)]
pub struct Vdnn {
    /// Feature maps that are offloaded.
    pub offload: Offload,
    /// Least bytes of a tensor that is offloaded.
    pub least_bytes: u64,
}

impl Vdnn {
    /// The planner for tensors of 1 MiB or more.
    #[must_use]
    pub fn of(offload: Offload) -> Self {
        Self { offload, least_bytes: 1 << 20 }
    }

    fn offloaded(
        &self,
        iteration: &Iteration,
        layers: &Layers,
        load: &Table<KernelId, u64>,
        machine: &Machine,
    ) -> Vec<FeatureMap> {
        let all = || layers.feature_maps.clone();
        let convolutions = || layers.feature_maps.iter().filter(|of| by_convolution(iteration, of)).copied().collect();
        match self.offload {
            Offload::All => all(),
            Offload::Convolutions => convolutions(),
            Offload::Dynamic => {
                let fits = |offloaded: &Vec<FeatureMap>| resident_peak(layers, offloaded, load) <= machine.gpu_bytes;
                [Vec::new(), convolutions()].into_iter().find(fits).unwrap_or_else(all)
            }
        }
    }
}

impl Planner for Vdnn {
    fn name(&self) -> &'static str {
        match self.offload {
            Offload::All => "vdnn-all",
            Offload::Convolutions => "vdnn-conv",
            Offload::Dynamic => "vdnn-dyn",
        }
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = lifetimes::footprints(iteration);
        let layers = Layers::of(iteration, &footprints, self.least_bytes);
        let mut load = lifetimes::load_bytes(iteration, &footprints);
        let mut offloaded = self.offloaded(iteration, &layers, &load, machine);
        let away_bytes = offloaded_bytes(&offloaded);
        if away_bytes > machine.host.bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes: machine.host.bytes });
        }
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, machine.gpu_bytes, |_| true));
        // The next layer waits for the end of the offload, which frees the memory; but no layer
        // after the next use.
        actions.extend(offloaded.iter().map(|of| Action {
            begin: of.from,
            tensor: of.tensor,
            act: Act::Move(Tier::Host),
            part: None,
            done_before: freed_before(&layers, of),
        }));
        offloaded.sort_by_key(|of| (of.to, of.tensor));
        actions.extend(offloaded.iter().map(|of| Action {
            begin: prefetch_begin(&layers, of),
            tensor: of.tensor,
            act: Act::Move(Tier::Gpu),
            part: None,
            done_before: Some(of.to),
        }));
        Ok(Schedule::new(actions))
    }
}

/// Whether a convolution read it in the forward pass.
fn by_convolution(iteration: &Iteration, of: &FeatureMap) -> bool {
    iteration.uses(of.tensor).iter().any(|it| {
        let name = iteration.kernels()[it.kernel].name.to_lowercase();
        it.kernel < of.from && it.access.reads() && name.contains("conv")
    })
}

/// The kernel that waits for the end of its offload, if one does.
fn freed_before(layers: &Layers, of: &FeatureMap) -> Option<KernelId> {
    layers.next_start(of.from).filter(|&start| start < of.to)
}

/// The kernel with which its prefetch begins.
fn prefetch_begin(layers: &Layers, of: &FeatureMap) -> KernelId {
    layers.start_before(of.to).max(of.from)
}

/// Peak of live bytes that are not offloaded.
fn resident_peak(layers: &Layers, offloaded: &[FeatureMap], load: &Table<KernelId, u64>) -> u64 {
    let mut load = load.clone();
    for of in offloaded {
        let freed = freed_before(layers, of).unwrap_or(of.to);
        for kernel in (freed.index()..prefetch_begin(layers, of).index()).map(KernelId::new) {
            load[kernel] -= of.bytes;
        }
    }
    load.values().iter().copied().max().unwrap_or_default()
}

/// Peak of offloaded bytes: all are on the host at the beginning of the backward pass.
fn offloaded_bytes(offloaded: &[FeatureMap]) -> u64 {
    offloaded.iter().map(|of| of.bytes).sum()
}
