//! FlashNeuron: of what layers keep for the way back, as much goes to flash as memory is short of, in the order of layers.
//!
//! Source: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks" (FAST'21).
//! Parameters: the least size, how much of the memory is planned with.
//! Complexity: O(t k) at most for t tensors and k kernels.
//! docs/policies/flashneuron.md says where it differs from the paper and why.

use trace::{Iteration, KernelId, Table, id::Id};

use super::{
    Act, Action, Machine, Planner, Schedule, Tier, Unplannable,
    layers::{Kept, Layers},
    lifetimes,
};

/// Sends no more than it must. Without flash, to the host.
#[derive(Clone, Copy, Debug)]
pub struct Flashneuron {
    /// Smaller tensors stay.
    pub least_bytes: u64,
    /// How much of the GPU's memory is planned with.
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
        let line_bytes = lifetimes::part(machine.gpu_bytes, self.fill);
        let mut sent = chosen(&layers, &mut load, line_bytes);
        let (tier, room_bytes) = match &machine.flash {
            Some(flash) => (Tier::Flash, flash.bytes),
            None => (Tier::Host, machine.host.bytes),
        };
        let away_bytes = sent.iter().map(|of| of.bytes).sum();
        if away_bytes > room_bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes: room_bytes });
        }
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, line_bytes, |_| true));
        // The way back waits for the last of them.
        actions.extend(sent.iter().map(|of| Action {
            begin: of.from,
            tensor: of.tensor,
            act: Act::Move(tier),
            part: None,
            done_before: Some(layers.turn).filter(|&turn| of.from < turn),
        }));
        sent.sort_by_key(|of| (of.to, of.tensor));
        let mut earliest = layers.turn;
        for of in &sent {
            // One after the other, each as soon as there is room for it up to its use.
            let mut begin = of.to;
            while let Some(before) = begin.index().checked_sub(1).map(KernelId::new)
                && before >= earliest.max(of.from)
                && load[before] + of.bytes <= line_bytes
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

/// From the first layer on until memory is short nowhere. Each is away from when the way forward has done with it until its use on the way back; the load is
/// what stays.
fn chosen(layers: &Layers, load: &mut Table<KernelId, u64>, line_bytes: u64) -> Vec<Kept> {
    let mut short = load.values().iter().filter(|&&load| load > line_bytes).count();
    let mut sent = Vec::new();
    for of in &layers.kept {
        if short == 0 {
            break;
        }
        for kernel in (of.from.index()..of.to.index()).map(KernelId::new) {
            let was_short = load[kernel] > line_bytes;
            load[kernel] -= of.bytes;
            short -= usize::from(was_short && load[kernel] <= line_bytes);
        }
        sent.push(*of);
    }
    sent
}
