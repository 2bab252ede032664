//! vDNN: what layers keep for the way back goes to the host on the way forward, whether memory is short or not.
//!
//! Source: Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design" (MICRO'16).
//! Parameters: [`Offload`], the least size.
//! Complexity: O(t log t + k log k) for t tensors and k kernels with their uses.
//! docs/policies/vdnn.md says where it differs from the paper and why.

use trace::Iteration;

use super::{
    Act, Action, Machine, Planner, Schedule, Tier, Unplannable,
    layers::{Kept, Layers},
    upkeep,
};

/// What is sent away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// All that is kept.
    #[default]
    All,
    /// What convolutions read: they take long enough to hide it. A kernel is one by its name.
    Convolutions,
}

/// Static: it looks neither at the clock nor at how much memory there is.
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

    fn sends(&self, iteration: &Iteration, of: &Kept) -> bool {
        match self.offload {
            Offload::All => true,
            Offload::Convolutions => iteration.uses(of.tensor).iter().any(|it| {
                let name = iteration.kernels()[it.kernel].name.to_lowercase();
                it.kernel < of.from && it.access.reads() && name.contains("conv")
            }),
        }
    }
}

impl Planner for Vdnn {
    fn name(&self) -> &'static str {
        match self.offload {
            Offload::All => "vdnn-all",
            Offload::Convolutions => "vdnn-conv",
        }
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = upkeep::footprints(iteration);
        let layers = Layers::of(iteration, &footprints, self.least_bytes);
        let mut sent: Vec<_> = layers.kept.iter().filter(|of| self.sends(iteration, of)).copied().collect();
        let away_bytes = most_away(&sent);
        if away_bytes > machine.host.bytes {
            return Err(Unplannable::HostTooSmall { away_bytes, host_bytes: machine.host.bytes });
        }
        let mut load = upkeep::load_bytes(iteration, &footprints);
        let mut actions = upkeep::drops(iteration);
        actions.extend(upkeep::births(iteration, &footprints, &mut load, machine.gpu_bytes));
        // The layer that comes next waits until it is gone, and so has its memory; but not beyond its next use.
        actions.extend(sent.iter().map(|of| Action {
            begin: of.from,
            tensor: of.tensor,
            act: Act::Move(Tier::Host),
            done_before: layers.next_start(of.from).filter(|&start| start < of.to),
        }));
        sent.sort_by_key(|of| (of.to, of.tensor));
        actions.extend(sent.iter().map(|of| Action {
            begin: layers.start_before(of.to).max(of.from),
            tensor: of.tensor,
            act: Act::Move(Tier::Gpu),
            done_before: Some(of.to),
        }));
        Ok(Schedule::new(actions))
    }
}

/// All of it is away at the turn at the latest.
fn most_away(sent: &[Kept]) -> u64 {
    sent.iter().map(|of| of.bytes).sum()
}
