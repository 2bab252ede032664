//! PUMP: prefetches the tensors of a launched kernel while those before it run, as far ahead as
//! launches and memory allow. It knows nothing else of the future.
//!
//! Source: Lin et al., "PUMP: Profiling-free Unified Memory Prefetcher for Large DNN Model Support"
//! (ASP-DAC'22), and its authors' code.
//! Parameters: [`Pump`].
//! Complexity: linear in the uses.
//! docs/policies/pump.md describes and explains the differences from the paper.

use std::collections::BTreeMap;

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Act, Action, Machine, Planner, Schedule, Tier, Unplannable, lifetimes};

/// Name of the planner.
pub const NAME: &str = "pump";

/// The planner: launch queue, and its share of the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pump {
    /// Lead of a kernel's launch over its begin without any wait. The whole benefit depends on it.
    pub lead_ns: u64,
    /// Maximum of launches that wait.
    pub queue: usize,
    /// Percentage of the GPU's memory that may be taken by the tensors from the kernel that runs to
    /// the one that is launched.
    pub window_percent: u64,
}

impl Default for Pump {
    /// In published traces of training, half the kernels are launched 0.002 to 164 ms ahead, and at
    /// most about 1000 wait.
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
            let tensors: Vec<_> = window.add(kernel).collect();
            while window.first < kernel
                && (window.is_full()
                    || kernel.index() - window.first.index() > self.queue
                    || iteration.start_ns(window.first) < launched_ns)
            {
                window.remove_first();
            }
            if window.is_full() {
                // The kernel alone is too large: faults serve it.
                continue;
            }
            for tensor in tensors {
                let first = iteration.uses(tensor).first().filter(|_| !iteration.tensors()[tensor].persistent);
                let (begin, act) = match first.filter(|first| first.kernel == kernel) {
                    // Before this kernel the CPU has not written it.
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

/// Kernels from the one that runs to the one that is launched, and their tensors.
struct Window<'a> {
    iteration: &'a Iteration,
    footprints: Table<TensorId, u64>,
    first: KernelId,
    /// Number of these kernels that use a tensor.
    uses: BTreeMap<TensorId, usize>,
    bytes: u64,
    limit_bytes: u128,
}

impl<'a> Window<'a> {
    fn new(iteration: &'a Iteration, limit_bytes: u128) -> Self {
        let footprints = lifetimes::footprints(iteration);
        Self { iteration, footprints, first: KernelId(0), uses: BTreeMap::new(), bytes: 0, limit_bytes }
    }

    fn is_full(&self) -> bool {
        u128::from(self.bytes) > self.limit_bytes
    }

    /// Adds the kernel that is launched next; its tensors.
    fn add(&mut self, kernel: KernelId) -> impl Iterator<Item = TensorId> + use<'a> {
        for operand in self.iteration.operands(kernel) {
            let kernels = self.uses.entry(operand.tensor).or_default();
            *kernels += 1;
            if *kernels == 1 {
                self.bytes += self.footprints[operand.tensor];
            }
        }
        self.iteration.operands(kernel).iter().map(|operand| operand.tensor)
    }

    /// Removes the kernel that ran.
    fn remove_first(&mut self) {
        for operand in self.iteration.operands(self.first) {
            if let Some(kernels) = self.uses.get_mut(&operand.tensor) {
                *kernels -= 1;
                if *kernels == 0 {
                    self.uses.remove(&operand.tensor);
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
    fn prefetch_waits_for_the_window_and_skips_kernels_that_never_fit() {
        let pump = Pump { lead_ns: 100_000_000, ..Pump::default() };
        assert_eq!(begins(pump, 20 * MIB), [0, 0, 1, 2, 3, 4]);
        assert!(begins(pump, 9 * MIB).is_empty());
    }
}
