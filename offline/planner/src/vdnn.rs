//! vDNN: what layers keep for the way back goes to the host on the way forward, whether memory is short or not.
//!
//! Source: Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design" (MICRO'16).
//! Parameters: [`Offload`], the least size.
//! Complexity: O(t log t + k log k) for t tensors and k kernels with their uses; O(t k) where memory decides.
//! docs/policies/vdnn.md says where it differs from the paper and why.

use trace::{Iteration, KernelId, Table, id::Id};

use super::{
    Act, Action, Machine, Planner, Schedule, Tier, Unplannable,
    layers::{Kept, Layers},
    lifetimes,
};

/// What is sent away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// All that is kept.
    #[default]
    All,
    /// What convolutions read: they take long enough to hide it. A kernel is one by its name.
    Convolutions,
    /// The least with which the GPU has room for what stays: nothing, what convolutions read, or all.
    Dynamic,
}

/// It does not look at the clock, and at how much memory there is only where that decides what is sent.
#[derive(Clone, Copy, Debug)]
pub struct Vdnn {
    /// What is sent away.
    pub offload: Offload,
    /// Smaller tensors stay.
    pub least_bytes: u64,
}

impl Vdnn {
    /// With tensors of 1 MiB or more.
    #[must_use]
    pub fn of(offload: Offload) -> Self {
        Self { offload, least_bytes: 1 << 20 }
    }

    fn sent(
        &self,
        iteration: &Iteration,
        layers: &Layers,
        load: &Table<KernelId, u64>,
        machine: &Machine,
    ) -> Vec<Kept> {
        let all = || layers.kept.clone();
        let convolutions = || layers.kept.iter().filter(|of| by_convolution(iteration, of)).copied().collect();
        match self.offload {
            Offload::All => all(),
            Offload::Convolutions => convolutions(),
            Offload::Dynamic => {
                let fits = |sent: &Vec<Kept>| most_stays(layers, sent, load) <= machine.gpu_bytes;
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
        let mut sent = self.sent(iteration, &layers, &load, machine);
        let away_bytes = most_away(&sent);
        if away_bytes > machine.host.bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes: machine.host.bytes });
        }
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, machine.gpu_bytes, |_| true));
        // The layer that comes next waits until it is gone, and so has its memory; but not beyond its next use.
        actions.extend(sent.iter().map(|of| Action {
            begin: of.from,
            tensor: of.tensor,
            act: Act::Move(Tier::Host),
            part: None,
            done_before: gone_before(&layers, of),
        }));
        sent.sort_by_key(|of| (of.to, of.tensor));
        actions.extend(sent.iter().map(|of| Action {
            begin: back_from(&layers, of),
            tensor: of.tensor,
            act: Act::Move(Tier::Gpu),
            part: None,
            done_before: Some(of.to),
        }));
        Ok(Schedule::new(actions))
    }
}

/// Whether a convolution read it on the way forward.
fn by_convolution(iteration: &Iteration, of: &Kept) -> bool {
    iteration.uses(of.tensor).iter().any(|it| {
        let name = iteration.kernels()[it.kernel].name.to_lowercase();
        it.kernel < of.from && it.access.reads() && name.contains("conv")
    })
}

/// The kernel that waits until it has left, if one does.
fn gone_before(layers: &Layers, of: &Kept) -> Option<KernelId> {
    layers.next_start(of.from).filter(|&start| start < of.to)
}

/// The kernel with which it begins to come back.
fn back_from(layers: &Layers, of: &Kept) -> KernelId {
    layers.start_before(of.to).max(of.from)
}

/// The most memory that is in use at once, of what is alive and has not been sent away.
fn most_stays(layers: &Layers, sent: &[Kept], load: &Table<KernelId, u64>) -> u64 {
    let mut load = load.clone();
    for of in sent {
        let gone = gone_before(layers, of).unwrap_or(of.to);
        for kernel in (gone.index()..back_from(layers, of).index()).map(KernelId::new) {
            load[kernel] -= of.bytes;
        }
    }
    load.values().iter().copied().max().unwrap_or_default()
}

/// All of it is away at the turn at the latest.
fn most_away(sent: &[Kept]) -> u64 {
    sent.iter().map(|of| of.bytes).sum()
}
