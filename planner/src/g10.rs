//! G10: long-idle tensors migrate to flash or host, those of the highest pressure first, and back
//! before their use.
//!
//! Source: Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture
//! with Smart Tensor Migrations" (MICRO'23), and the code that its authors published.
//! Parameters: [`Parameters`], [`Ranking`].
//! Complexity: for i idle periods, a of them selected, in k kernels: O((i r + a + k) log k) to
//! select, with a few evaluations r of each; at most O(a k) to update the loads of GPU and host.
//! docs/policies/g10.md describes and explains the differences from the paper.
//!
//! * `choice`: selection of tensors, with tier and times

mod choice;

use trace::{Iteration, KernelId, id::Id};

use self::choice::{Choice, Migration};
use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// Order of the selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// Bytes times the time under pressure: the order of the authors' code.
    #[default]
    Benefit,
    /// Benefit by the time of both transfers: the order of their paper.
    BenefitByCost,
}

/// Parameters of the planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Order of the selection.
    pub ranking: Ranking,
    /// Share of the GPU's memory that plans use.
    pub fill: f64,
    /// Least idle time of a tensor that migrates, as a multiple of its transfer time.
    pub margin: f64,
    /// Overhead of each transfer besides the link's latency.
    pub system_ns: f64,
    /// Least bytes of a tensor that migrates; smaller ones share blocks.
    pub least_bytes: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { ranking: Ranking::Benefit, fill: 0.99, margin: 2.5, system_ns: 45_000.0, least_bytes: 1 << 20 }
    }
}

impl Parameters {
    fn budget_bytes(&self, machine: &Machine) -> u64 {
        lifetimes::share(machine.gpu_bytes, self.fill)
    }
}

/// The planner: keeps the live bytes below the GPU's memory as far as links allow. The excess is
/// fetched and evicted by faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct G10 {
    /// Parameters of the planner.
    pub parameters: Parameters,
}

impl G10 {
    /// The planner with a ranking, and other parameters by default.
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
        let budget_bytes = self.parameters.budget_bytes(machine);
        let (mut migrations, mut load) = Choice::new(iteration, machine, &self.parameters, &footprints).run();
        let mut actions = lifetimes::drops(iteration);
        actions.extend(lifetimes::births(iteration, &footprints, &mut load, budget_bytes, |_| true));
        // Fetches begin early where memory allows, so that they are in time even if the program
        // runs ahead.
        migrations.sort_by_key(|of| of.fetch);
        for of in &mut migrations {
            while of.fetch > of.freed + 1
                && load
                    .values()
                    .get((of.fetch - 1) % load.len())
                    .is_some_and(|&load| load + of.idle.bytes <= budget_bytes)
            {
                of.fetch -= 1;
                load[kernel_at(iteration, of.fetch)] += of.idle.bytes;
            }
        }
        let action = |of: &Migration, position, tier| Action {
            begin: kernel_at(iteration, position),
            tensor: of.idle.tensor,
            act: Act::Move(tier),
            part: None,
            done_before: None,
        };
        actions.extend(migrations.iter().map(|of| action(of, of.begin, of.tier)));
        migrations.sort_by_key(|of| of.idle.to - of.fetch);
        actions.extend(migrations.iter().map(|of| action(of, of.fetch, Tier::Gpu)));
        Ok(Schedule::new(actions))
    }
}

/// The kernel at a position; positions continue through the next iteration.
fn kernel_at(iteration: &Iteration, position: usize) -> KernelId {
    KernelId::new(position % iteration.kernels().len())
}
