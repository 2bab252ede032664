//! `DeepUM`: prefetches the tensors of the next kernels, and evicts others in the order of their
//! arrival.
//!
//! Source: Jung et al., "DeepUM: Tensor Migration and Prefetching in Unified Memory" (ASPLOS'23),
//! as the authors of G10 implement it in their simulator.
//! Parameters: the number of kernels ahead, the least size, the share of memory.
//! Complexity: O(u log t) for t tensors with u uses, as long as the search for a victim skips no
//! more than the tensors of the next kernels.
//! docs/policies/deepum.md describes and explains the differences from the paper.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trace::{Access, Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// Iterations after which the residency at the end equals that at the beginning, as a rule.
const ITERATIONS: usize = 4;

/// The planner. It looks a few kernels ahead, not at the clock.
#[derive(Clone, Copy, Debug)]
pub struct Deepum {
    /// Number of kernels.
    pub ahead: usize,
    /// Least bytes of a tensor that is evicted.
    pub least_bytes: u64,
    /// Share of the GPU's memory that plans use.
    pub fill: f64,
}

impl Default for Deepum {
    fn default() -> Self {
        Self { ahead: 8, least_bytes: 1 << 20, fill: 0.99 }
    }
}

impl Planner for Deepum {
    fn name(&self) -> &'static str {
        "deepum"
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let mut memory = Memory::new(iteration, *self, lifetimes::share(machine.gpu_bytes, self.fill));
        let mut actions = Vec::new();
        for _ in 0..ITERATIONS {
            actions = memory.iterate();
        }
        Ok(Schedule::new(actions).keeping(self.ahead))
    }
}

/// Residency of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residency {
    Unallocated,
    OnHost,
    /// On the GPU, with the sequence number of its arrival.
    OnGpu(u64),
}

/// Residency of all tensors, kernel by kernel.
struct Memory<'a> {
    iteration: &'a Iteration,
    parameters: Deepum,
    budget_bytes: u64,
    footprints: Table<TensorId, u64>,
    residency: Table<TensorId, Residency>,
    /// Tensors on the GPU, by arrival.
    by_arrival: BTreeMap<u64, TensorId>,
    resident_bytes: u64,
    next_arrival: u64,
    /// Prefetches that wait for memory.
    pending: VecDeque<TensorId>,
    actions: Vec<Action>,
}

impl<'a> Memory<'a> {
    fn new(iteration: &'a Iteration, parameters: Deepum, budget_bytes: u64) -> Self {
        let initial =
            |tensor: &trace::Tensor| if tensor.persistent { Residency::OnHost } else { Residency::Unallocated };
        Self {
            iteration,
            parameters,
            budget_bytes,
            footprints: lifetimes::footprints(iteration),
            residency: iteration.tensors().values().iter().map(initial).collect(),
            by_arrival: BTreeMap::new(),
            resident_bytes: 0,
            next_arrival: 0,
            pending: VecDeque::new(),
            actions: Vec::new(),
        }
    }

    /// Runs one iteration; its actions.
    fn iterate(&mut self) -> Vec<Action> {
        let kernels = self.iteration.kernels().len();
        for kernel in self.iteration.kernels().ids() {
            let expected = self.expected(kernel);
            let ahead = kernel.index() + self.parameters.ahead;
            let first = if kernel.index() == 0 { 0 } else { ahead };
            for position in first..=ahead {
                // Of the next iteration, only persistent tensors exist so far.
                let (of, is_next) = (KernelId::new(position % kernels), position >= kernels);
                let tensors = self.iteration.operands(of).iter().map(|operand| operand.tensor);
                let tensors = tensors.filter(|&tensor| !is_next || self.iteration.tensors()[tensor].persistent);
                self.pending.extend(tensors);
            }
            for tensor in std::mem::take(&mut self.pending) {
                let is_due = self.iteration.operands(kernel).iter().any(|operand| operand.tensor == tensor);
                self.prefetch(kernel, tensor, &expected, is_due);
            }
            for tensor in self.iteration.deaths(kernel) {
                self.remove(tensor, Residency::Unallocated);
                let begin = KernelId::new(kernel.index() + 1);
                self.actions.push(Action { begin, tensor, act: Act::Drop, part: None, done_before: None });
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// Tensors of this kernel and the next ones.
    fn expected(&self, kernel: KernelId) -> BTreeSet<TensorId> {
        let kernels = self.iteration.kernels().len();
        let next = kernel.index()..=kernel.index() + self.parameters.ahead;
        let operands = next.flat_map(|position| self.iteration.operands(KernelId::new(position % kernels)));
        operands.map(|operand| operand.tensor).collect()
    }

    /// Prefetches a tensor if it fits or is due; else postpones it.
    fn prefetch(&mut self, kernel: KernelId, tensor: TensorId, expected: &BTreeSet<TensorId>, is_due: bool) {
        if let Residency::OnGpu(_) = self.residency[tensor] {
            return;
        }
        let first = self.iteration.uses(tensor).first();
        let born = first.filter(|_| self.residency[tensor] == Residency::Unallocated);
        // It died in the meantime; or the CPU writes it at its birth, not before.
        let is_dead = born.is_some_and(|first| first.kernel < kernel);
        let by_cpu = born.is_some_and(|first| first.access != Access::Write);
        if is_dead {
            return;
        }
        // A tensor that is due and does not fit makes the driver evict.
        let is_early = by_cpu && !is_due;
        let fits = !is_early && self.evict_for(kernel, self.footprints[tensor], expected);
        if !fits && !is_due {
            self.pending.push_back(tensor);
            return;
        }
        let act = if born.is_some() && !by_cpu { Act::Allocate } else { Act::Move(Tier::Gpu) };
        self.actions.push(Action { begin: kernel, tensor, act, part: None, done_before: None });
        self.next_arrival += 1;
        self.residency[tensor] = Residency::OnGpu(self.next_arrival);
        self.by_arrival.insert(self.next_arrival, tensor);
        self.resident_bytes += self.footprints[tensor];
    }

    /// Evicts tensors outside `expected` in the order of their arrival, until `bytes` fit.
    fn evict_for(&mut self, kernel: KernelId, bytes: u64, expected: &BTreeSet<TensorId>) -> bool {
        let mut victims = Vec::new();
        let mut free_bytes = self.budget_bytes.saturating_sub(self.resident_bytes);
        for &tensor in self.by_arrival.values() {
            if free_bytes >= bytes {
                break;
            }
            let is_small = self.iteration.tensors()[tensor].bytes < self.parameters.least_bytes;
            if !is_small && !expected.contains(&tensor) {
                victims.push(tensor);
                free_bytes += self.footprints[tensor];
            }
        }
        if free_bytes < bytes {
            return false;
        }
        for tensor in victims {
            self.remove(tensor, Residency::OnHost);
            self.actions.push(Action {
                begin: kernel,
                tensor,
                act: Act::Move(Tier::Host),
                part: None,
                done_before: None,
            });
        }
        true
    }

    fn remove(&mut self, tensor: TensorId, to: Residency) {
        if let Residency::OnGpu(arrival) = self.residency[tensor] {
            self.by_arrival.remove(&arrival);
            self.resident_bytes -= self.footprints[tensor];
        }
        self.residency[tensor] = to;
    }
}
