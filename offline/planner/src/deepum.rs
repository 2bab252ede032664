//! `DeepUM`: what the next kernels need is fetched ahead, and what came first of what they do not need makes room.
//!
//! Source: Jung et al., "DeepUM: Tensor Migration and Prefetching in Unified Memory" (ASPLOS'23), as the authors of G10 have it in their simulator.
//! Parameters: how many kernels ahead, the least size, how much of the memory is planned with.
//! Complexity: O(u log t) for t tensors with u uses, as long as no more is skipped on the way to a victim than the next kernels need.
//! docs/policies/deepum.md says where it differs from the paper and why.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trace::{Access, Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// Iterations until what is where at the end of one is what was where at its beginning, as a rule.
const TURNS: usize = 4;

/// Looks a few kernels ahead, not at the clock.
#[derive(Clone, Copy, Debug)]
pub struct Deepum {
    /// How many kernels.
    pub ahead: usize,
    /// Smaller tensors stay.
    pub least_bytes: u64,
    /// How much of the GPU's memory is planned with.
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
        let mut memory = Memory::new(iteration, *self, lifetimes::part(machine.gpu_bytes, self.fill));
        let mut actions = Vec::new();
        for _ in 0..TURNS {
            actions = memory.turn();
        }
        Ok(Schedule::new(actions).keeping(self.ahead))
    }
}

/// Where a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Away,
    /// Since when: the order in which tensors came.
    There(u64),
}

/// What is where, kernel by kernel.
struct Memory<'a> {
    iteration: &'a Iteration,
    parameters: Deepum,
    line_bytes: u64,
    footprints: Table<TensorId, u64>,
    places: Table<TensorId, Place>,
    /// What is there, by when it came.
    came: BTreeMap<u64, TensorId>,
    there_bytes: u64,
    next: u64,
    /// What is to come and had no room yet.
    late: VecDeque<TensorId>,
    actions: Vec<Action>,
}

impl<'a> Memory<'a> {
    fn new(iteration: &'a Iteration, parameters: Deepum, line_bytes: u64) -> Self {
        let place = |tensor: &trace::Tensor| if tensor.persistent { Place::Away } else { Place::Nowhere };
        Self {
            iteration,
            parameters,
            line_bytes,
            footprints: lifetimes::footprints(iteration),
            places: iteration.tensors().values().iter().map(place).collect(),
            came: BTreeMap::new(),
            there_bytes: 0,
            next: 0,
            late: VecDeque::new(),
            actions: Vec::new(),
        }
    }

    /// One iteration, and what is done in it.
    fn turn(&mut self) -> Vec<Action> {
        let kernels = self.iteration.kernels().len();
        for kernel in self.iteration.kernels().ids() {
            let expected = self.expected(kernel);
            let ahead = kernel.index() + self.parameters.ahead;
            let first = if kernel.index() == 0 { 0 } else { ahead };
            for position in first..=ahead {
                // In the next iteration there are as yet only those that stay.
                let (of, is_next) = (KernelId::new(position % kernels), position >= kernels);
                let wanted = self.iteration.operands(of).iter().map(|operand| operand.tensor);
                let wanted = wanted.filter(|&tensor| !is_next || self.iteration.tensors()[tensor].persistent);
                self.late.extend(wanted);
            }
            for tensor in std::mem::take(&mut self.late) {
                let is_due = self.iteration.operands(kernel).iter().any(|operand| operand.tensor == tensor);
                self.bring(kernel, tensor, &expected, is_due);
            }
            for tensor in self.iteration.deaths(kernel) {
                self.leave(tensor, Place::Nowhere);
                let begin = KernelId::new(kernel.index() + 1);
                self.actions.push(Action { begin, tensor, act: Act::Drop, part: None, done_before: None });
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// What this kernel and the next ones use.
    fn expected(&self, kernel: KernelId) -> BTreeSet<TensorId> {
        let kernels = self.iteration.kernels().len();
        let next = kernel.index()..=kernel.index() + self.parameters.ahead;
        let operands = next.flat_map(|position| self.iteration.operands(KernelId::new(position % kernels)));
        operands.map(|operand| operand.tensor).collect()
    }

    /// Makes it come, if there is room or there must be; else it waits.
    fn bring(&mut self, kernel: KernelId, tensor: TensorId, expected: &BTreeSet<TensorId>, is_due: bool) {
        if let Place::There(_) = self.places[tensor] {
            return;
        }
        let first = self.iteration.uses(tensor).first();
        let born = first.filter(|_| self.places[tensor] == Place::Nowhere);
        // Dead in the meantime; or made by the CPU when it is born, not before.
        let is_dead = born.is_some_and(|first| first.kernel < kernel);
        let by_cpu = born.is_some_and(|first| first.access != Access::Write);
        if is_dead {
            return;
        }
        // Where there must be room and is none, the driver makes some.
        let is_early = by_cpu && !is_due;
        let has_room = !is_early && self.make_room(kernel, self.footprints[tensor], expected);
        if !has_room && !is_due {
            self.late.push_back(tensor);
            return;
        }
        let act = if born.is_some() && !by_cpu { Act::Allocate } else { Act::Move(Tier::Gpu) };
        self.actions.push(Action { begin: kernel, tensor, act, part: None, done_before: None });
        self.next += 1;
        self.places[tensor] = Place::There(self.next);
        self.came.insert(self.next, tensor);
        self.there_bytes += self.footprints[tensor];
    }

    /// Sends away what came first and nobody expects, until there is room.
    fn make_room(&mut self, kernel: KernelId, bytes: u64, expected: &BTreeSet<TensorId>) -> bool {
        let mut victims = Vec::new();
        let mut free_bytes = self.line_bytes.saturating_sub(self.there_bytes);
        for &tensor in self.came.values() {
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
            self.leave(tensor, Place::Away);
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

    fn leave(&mut self, tensor: TensorId, to: Place) {
        if let Place::There(since) = self.places[tensor] {
            self.came.remove(&since);
            self.there_bytes -= self.footprints[tensor];
        }
        self.places[tensor] = to;
    }
}
