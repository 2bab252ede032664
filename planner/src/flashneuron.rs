//! FlashNeuron: offloads feature maps to flash in the order of layers, as many as the excess of
//! memory requires.
//!
//! Source: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks"
//! (FAST'21).
//! Parameters: the least size, the share of memory.
//! Complexity: at most O(t k) for t tensors and k kernels.
//! docs/policies/flashneuron.md describes and explains the differences from the paper.

use trace::{Iteration, KernelId, Table, id::Id};

use super::{
    Act, Action, Machine, Planner, Schedule, Tier, Unplannable,
    layers::{FeatureMap, Layers},
    lifetimes,
};

/// The planner: offloads the minimum. Without flash, to the host.
#[derive(Clone, Copy, Debug)]
pub struct Flashneuron {
    /// Least bytes of a tensor that is offloaded.
    pub least_bytes: u64,
    /// Share of the GPU's memory that plans use.
    pub fill: f64,
}

impl Default for Flashneuron {
    fn default() -> Self {
        Self { least_bytes: 1 << 20, fill: 0.99 }
    }
}

impl Planner for Flashneuron {
    fn name(&self) -> &'static str {
        "flashneuron"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = lifetimes::footprints(iteration);
        let layers = Layers::of(iteration, &footprints, self.least_bytes);
        let mut load = lifetimes::load_bytes(iteration, &footprints);
        let budget_bytes = lifetimes::share(machine.gpu_bytes, self.fill);
        let mut offloaded = select(&layers, &mut load, budget_bytes);
        let (tier, capacity_bytes) = match &machine.flash {
            Some(flash) => (Tier::Flash, flash.bytes),
            None => (Tier::Host, machine.host.bytes),
        };
        let away_bytes = offloaded.iter().map(|of| of.bytes).sum();
        if away_bytes > capacity_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes: capacity_bytes });
        }
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, budget_bytes, |_| true));
        // The backward pass waits for the last of them.
        actions.extend(offloaded.iter().map(|of| Action {
            begin: of.from,
            tensor: of.tensor,
            act: Act::Move(tier),
            part: None,
            done_before: Some(layers.backward_start).filter(|&backward_start| of.from < backward_start),
        }));
        offloaded.sort_by_key(|of| (of.to, of.tensor));
        let mut earliest = layers.backward_start;
        for of in &offloaded {
            // One after the other, each as early as it fits up to its use.
            let mut begin = of.to;
            while let Some(before) = begin.index().checked_sub(1).map(KernelId::new)
                && before >= earliest.max(of.from)
                && load[before] + of.bytes <= budget_bytes
            {
                load[before] += of.bytes;
                begin = before;
            }
            earliest = begin;
            actions.push(Action {
                begin,
                tensor: of.tensor,
                act: Act::Move(Tier::Gpu),
                part: None,
                done_before: Some(of.to),
            });
        }
        Ok(Schedule::new(actions))
    }
}

/// Feature maps to offload: from the first layer on, until no kernel exceeds the budget. Each is
/// absent from the end of its use in the forward pass to its use in the backward pass. The load is
/// reduced by them.
fn select(layers: &Layers, load: &mut Table<KernelId, u64>, budget_bytes: u64) -> Vec<FeatureMap> {
    let mut over_budget = load.values().iter().filter(|&&load| load > budget_bytes).count();
    let mut offloaded = Vec::new();
    for of in &layers.feature_maps {
        if over_budget == 0 {
            break;
        }
        for kernel in (of.from.index()..of.to.index()).map(KernelId::new) {
            let was_over = load[kernel] > budget_bytes;
            load[kernel] -= of.bytes;
            over_budget -= usize::from(was_over && load[kernel] <= budget_bytes);
        }
        offloaded.push(*of);
    }
    offloaded
}
