//! G10: what is idle for long leaves, most pressure first, to flash or to the host, and is back before it is used.
//!
//! Source: Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart Tensor Migrations" (MICRO'23), and what its
//! authors published of their code.
//! Parameters: [`Parameters`], [`Ranking`].
//! Complexity: i times of idleness, a of them taken, in k kernels: O((i r + a + k) log k) to choose, with r looks at each, a few; O(a k) at most to keep the
//! load and the host's.
//! docs/policies/g10.md says where it differs from the paper and why.
//!
//! * `choice`: who leaves, where to, and when it is back

mod choice;

use trace::{Iteration, KernelId, id::Id};

use self::choice::{Away, Choice};
use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// What is best to take first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// Bytes, times how long memory is short meanwhile: as the authors' code has it.
    #[default]
    Benefit,
    /// That by the time that its transfers take, as their paper has it.
    BenefitByCost,
}

/// What the plan goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// What is taken first.
    pub ranking: Ranking,
    /// How much of the GPU's memory is planned with.
    pub fill: f64,
    /// Idle for how many times as long as its transfer takes, before a tensor leaves.
    pub margin: f64,
    /// Of each transfer, on top of the link's latency.
    pub system_ns: f64,
    /// Smaller tensors stay: they share their blocks.
    pub least_bytes: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { ranking: Ranking::Benefit, fill: 0.99, margin: 2.5, system_ns: 45_000.0, least_bytes: 1 << 20 }
    }
}

impl Parameters {
    fn line_bytes(&self, machine: &Machine) -> u64 {
        lifetimes::part(machine.gpu_bytes, self.fill)
    }
}

/// Keeps what is alive below the GPU's memory, as far as links allow. What it leaves above comes and goes by faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct G10 {
    /// What the plan goes by.
    pub parameters: Parameters,
}

impl G10 {
    /// With that ranking, and all else by default.
    #[must_use]
    pub fn by(ranking: Ranking) -> Self {
        Self { parameters: Parameters { ranking, ..Parameters::default() } }
    }
}

impl Planner for G10 {
    fn name(&self) -> &'static str {
        match self.parameters.ranking {
            Ranking::Benefit => "g10",
            Ranking::BenefitByCost => "g10-paper",
        }
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let footprints = lifetimes::footprints(iteration);
        let line_bytes = self.parameters.line_bytes(machine);
        let (mut away, mut load) = Choice::new(iteration, machine, &self.parameters, &footprints).all();
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, line_bytes, |_| true));
        // Back earlier than need be, where there is room: in time even if the program runs ahead.
        away.sort_by_key(|of| of.back);
        for of in &mut away {
            while of.back > of.gone + 1
                && load.values().get((of.back - 1) % load.len()).is_some_and(|&load| load + of.idle.bytes <= line_bytes)
            {
                of.back -= 1;
                load[kernel_at(iteration, of.back)] += of.idle.bytes;
            }
        }
        let action = |of: &Away, position, tier| Action {
            begin: kernel_at(iteration, position),
            tensor: of.idle.tensor,
            act: Act::Move(tier),
            part: None,
            done_before: None,
        };
        actions.extend(away.iter().map(|of| action(of, of.leave, of.tier)));
        away.sort_by_key(|of| of.idle.to - of.back);
        actions.extend(away.iter().map(|of| action(of, of.back, Tier::Gpu)));
        Ok(Schedule::new(actions))
    }
}

/// The kernel at a position, which goes on through the next iteration.
fn kernel_at(iteration: &Iteration, position: usize) -> KernelId {
    KernelId::new(position % iteration.kernels().len())
}
