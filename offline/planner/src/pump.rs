//! PUMP: what a launched kernel names is brought while those before it run, as far ahead as launches are and memory allows. It knows nothing else of the future.
//!
//! Source: Lin et al., "PUMP: Profiling-free Unified Memory Prefetcher for Large DNN Model Support" (ASP-DAC'22), and its authors' code.
//! Parameters: [`Pump`].
//! Complexity: linear in the uses.
//! docs/policies/pump.md says where it differs from the paper and why.

use std::collections::BTreeMap;

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// What it is called.
pub const NAME: &str = "pump";

/// Its launch queue, and how much of it may be on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pump {
    /// How long before it could begin a kernel is launched, if nothing holds anything up. All that is gained depends on it.
    pub lead_ns: u64,
    /// Launches that wait at most.
    pub queue: usize,
    /// Of the GPU's memory, what the tensors of the kernels from the one that runs to the one that is launched may take together.
    pub window_percent: u64,
}

impl Default for Pump {
    /// In published traces of training, half the kernels are launched 0.002 to 164 ms ahead; 1000 or so wait at most.
    fn default() -> Self {
        Self { lead_ns: 10_000_000, queue: 1000, window_percent: 80 }
    }
}

impl Planner for Pump {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&self, iteration: &Iteration, machine: &Machine) -> Result<Schedule, Unplannable> {
        let mut window = Window::new(iteration, u128::from(machine.gpu_bytes) * u128::from(self.window_percent) / 100);
        let mut actions = Vec::new();
        for kernel in iteration.kernels().ids() {
            let launched_ns = iteration.start_ns(kernel).saturating_sub(self.lead_ns);
            let named: Vec<_> = window.add(kernel).collect();
            while window.first < kernel
                && (window.is_full()
                    || kernel.index() - window.first.index() > self.queue
                    || iteration.start_ns(window.first) < launched_ns)
            {
                window.remove_first();
            }
            if window.is_full() {
                // It alone is too large: faults serve it.
                continue;
            }
            for tensor in named {
                let first = iteration.uses(tensor).first().filter(|_| !iteration.tensors()[tensor].persistent);
                let (begin, act) = match first.filter(|first| first.kernel == kernel) {
                    // Before, the CPU has not put it there.
                    Some(first) if first.access.reads() => (kernel, Act::Move(Tier::Gpu)),
                    Some(_) => (window.first, Act::Allocate),
                    None => (window.first, Act::Move(Tier::Gpu)),
                };
                actions.push(Action { begin, tensor, act, part: None, done_before: Some(kernel) });
            }
        }
        Ok(Schedule::new(actions))
    }
}

/// Kernels from the one that runs to the one that is launched, and the tensors that they name.
struct Window<'a> {
    iteration: &'a Iteration,
    footprints: Table<TensorId, u64>,
    first: KernelId,
    /// How many of the kernels name a tensor.
    named: BTreeMap<TensorId, usize>,
    bytes: u64,
    limit_bytes: u128,
}

impl<'a> Window<'a> {
    fn new(iteration: &'a Iteration, limit_bytes: u128) -> Self {
        let footprints = lifetimes::footprints(iteration);
        Self { iteration, footprints, first: KernelId(0), named: BTreeMap::new(), bytes: 0, limit_bytes }
    }

    fn is_full(&self) -> bool {
        u128::from(self.bytes) > self.limit_bytes
    }

    /// The next kernel is launched; all that it names.
    fn add(&mut self, kernel: KernelId) -> impl Iterator<Item = TensorId> + use<'a> {
        for operand in self.iteration.operands(kernel) {
            let kernels = self.named.entry(operand.tensor).or_default();
            *kernels += 1;
            if *kernels == 1 {
                self.bytes += self.footprints[operand.tensor];
            }
        }
        self.iteration.operands(kernel).iter().map(|operand| operand.tensor)
    }

    /// The one that runs has ended.
    fn remove_first(&mut self) {
        for operand in self.iteration.operands(self.first) {
            if let Some(kernels) = self.named.get_mut(&operand.tensor) {
                *kernels -= 1;
                if *kernels == 0 {
                    self.named.remove(&operand.tensor);
                    self.bytes -= self.footprints[operand.tensor];
                }
            }
        }
        self.first = KernelId::new(self.first.index() + 1);
    }
}

#[cfg(test)]
mod tests {
    use trace::{Draft, Role, Tensor, draft::DraftKernel};

    use super::*;
    use crate::{Link, machine::Store};

    const MIB: u64 = 1 << 20;

    /// Kernels of 1 ms, each with 8 MiB of its own.
    fn begins(pump: Pump, gpu_bytes: u64) -> Vec<u32> {
        let mut draft = Draft::default();
        for index in 0..6 {
            draft.tensor(Tensor { name: String::new(), bytes: 8 * MIB, role: Role::Weight, persistent: true });
            let inputs = vec![TensorId(index)];
            draft.kernel(DraftKernel { duration_ns: 1_000_000, inputs, ..DraftKernel::default() });
        }
        let link = Link { latency_ns: 0.0, bytes_per_second: 1e9 };
        let machine = Machine { gpu_bytes, host: Store { bytes: u64::MAX, out: link, back: link }, flash: None };
        let schedule = pump.plan(&draft.check().unwrap(), &machine).unwrap();
        let mut waits: Vec<_> =
            schedule.actions().iter().map(|action| (action.done_before.unwrap().0, action.begin.0)).collect();
        waits.sort_unstable();
        assert!(waits.iter().enumerate().all(|(at, &(kernel, _))| at == kernel as usize));
        waits.into_iter().map(|(_, begin)| begin).collect()
    }

    #[test]
    fn a_kernels_tensors_are_brought_from_its_launch_on() {
        let pump = Pump { lead_ns: 2_000_000, ..Pump::default() };
        assert_eq!(begins(pump, 1000 * MIB), [0, 0, 0, 1, 2, 3]);
        assert_eq!(begins(Pump { lead_ns: 0, ..pump }, 1000 * MIB), [0, 1, 2, 3, 4, 5]);
        assert_eq!(begins(Pump { queue: 1, ..pump }, 1000 * MIB), [0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn it_waits_until_the_window_fits_and_leaves_what_never_does_to_faults() {
        let pump = Pump { lead_ns: 100_000_000, ..Pump::default() };
        assert_eq!(begins(pump, 20 * MIB), [0, 0, 1, 2, 3, 4]);
        assert!(begins(pump, 9 * MIB).is_empty());
    }
}
