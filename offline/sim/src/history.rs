//! Memory and transfers over the last iteration of a run, for a picture. Its size does not grow
//! with the run.

use std::collections::HashMap;

use trace::{Iteration, KernelId, Table};

use crate::{
    event::Event,
    units::{BLOCK_BYTES, Granules, Mask, mask_bytes},
};

/// Maximum number of stretches.
const MAX_STRETCHES: usize = 512;

/// Minimum length of a stretch. In a shorter one, single blocks would look like bursts.
const MIN_STRETCH_NS: u64 = 1 << 20;

/// Memory and transfers in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Peak GPU memory in use, in blocks of 2 MiB.
    pub resident_bytes: u64,
    /// Peak of live bytes of the kernels that ran, in any memory.
    pub alive_bytes: u64,
    /// Bytes copied to the GPU.
    pub to_gpu_bytes: u64,
    /// Bytes copied to the host.
    pub to_host_bytes: u64,
}

impl Stretch {
    fn join(self, next: Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.max(next.resident_bytes),
            alive_bytes: self.alive_bytes.max(next.alive_bytes),
            to_gpu_bytes: self.to_gpu_bytes + next.to_gpu_bytes,
            to_host_bytes: self.to_host_bytes + next.to_host_bytes,
        }
    }
}

/// History of a run, from its events.
#[derive(Clone, Debug)]
pub struct History {
    alive_bytes: Table<KernelId, u64>,
    /// Granules on the GPU, by block.
    resident: HashMap<u64, Mask>,
    /// Live bytes of the last kernel.
    alive_now_bytes: u64,
    iteration_start_ns: u64,
    stretch_ns: u64,
    stretches: Vec<Stretch>,
}

impl History {
    /// Empty history of an iteration.
    #[must_use]
    pub fn new(iteration: &Iteration) -> Self {
        Self {
            alive_bytes: iteration.live_bytes(),
            resident: HashMap::new(),
            alive_now_bytes: 0,
            iteration_start_ns: 0,
            stretch_ns: MIN_STRETCH_NS,
            stretches: Vec::new(),
        }
    }

    /// Length of a stretch.
    #[must_use]
    pub fn stretch_ns(&self) -> u64 {
        self.stretch_ns
    }

    /// All stretches, in order.
    #[must_use]
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Records an event.
    pub fn see(&mut self, event: Event) {
        match event {
            Event::Began { at_ns } => {
                (self.iteration_start_ns, self.stretch_ns) = (at_ns, MIN_STRETCH_NS);
                self.stretches.clear();
                self.extend_to(at_ns);
            }
            Event::Placed { .. } | Event::Written { .. } | Event::Spilled { .. } | Event::Page { .. } => {}
            Event::Discarded { range, at_ns } => self.discard(range, at_ns),
            Event::Arrived { block, mask, with_contents, at_ns } => {
                *self.resident.entry(block).or_default() |= mask;
                let to_gpu_bytes = if with_contents { mask_bytes(mask) } else { 0 };
                self.add(at_ns, Stretch { to_gpu_bytes, ..Stretch::default() });
            }
            Event::Left { block, mask, at_ns, .. } => {
                self.leave(block, mask);
                self.add(at_ns, Stretch { to_host_bytes: mask_bytes(mask), ..Stretch::default() });
            }
            Event::Ran { kernel, start_ns, end_ns } => {
                // Until it begins, the live bytes are those of the previous kernel.
                self.extend_to(start_ns.saturating_sub(1));
                self.alive_now_bytes = self.alive_bytes[kernel];
                self.extend_to(end_ns);
                let first = self.index(start_ns);
                let mut own = self.stretches.iter_mut().skip(first);
                if let Some(shared) = own.next() {
                    shared.alive_bytes = shared.alive_bytes.max(self.alive_now_bytes);
                }
                own.for_each(|stretch| stretch.alive_bytes = self.alive_now_bytes);
            }
        }
    }

    fn discard(&mut self, range: Granules, at_ns: u64) {
        for (block, mask) in range.blocks() {
            self.leave(block, mask);
        }
        self.add(at_ns, Stretch::default());
    }

    fn leave(&mut self, block: u64, mask: Mask) {
        if let Some(here) = self.resident.get_mut(&block) {
            *here &= !mask;
            if *here == 0 {
                self.resident.remove(&block);
            }
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.resident.len() as u64 * BLOCK_BYTES
    }

    fn add(&mut self, at_ns: u64, change: Stretch) {
        let index = self.extend_to(at_ns);
        let change = Stretch { resident_bytes: self.resident_bytes(), ..change };
        if let Some(stretch) = self.stretches.get_mut(index) {
            *stretch = stretch.join(change);
        }
    }

    fn index(&self, at_ns: u64) -> usize {
        usize::try_from(at_ns.saturating_sub(self.iteration_start_ns) / self.stretch_ns).unwrap_or(usize::MAX)
    }

    /// Index of the stretch at a time. New stretches before it have the resident memory of now, and
    /// the live bytes of the last kernel.
    fn extend_to(&mut self, at_ns: u64) -> usize {
        while self.index(at_ns) >= MAX_STRETCHES {
            self.stretch_ns *= 2;
            let pairs = self.stretches.chunks(2);
            self.stretches = pairs.filter_map(|pair| pair.iter().copied().reduce(Stretch::join)).collect();
        }
        let index = self.index(at_ns);
        if index >= self.stretches.len() {
            let (resident_bytes, alive_bytes) = (self.resident_bytes(), self.alive_now_bytes);
            let idle = Stretch { resident_bytes, alive_bytes, ..Stretch::default() };
            self.stretches.resize(index + 1, idle);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Setup, observed};
    use planner::Schedule;
    use trace::{Draft, Role, Tensor, TensorId, draft::DraftKernel};
    use trace_sources::zoo::{Hardware, Recipe};

    #[test]
    fn live_bytes_stay_constant_while_a_kernel_waits() {
        let tensor = |bytes| Tensor { name: String::new(), bytes, role: Role::Other, persistent: false };
        let draft = Draft {
            tensors: vec![tensor(100), tensor(7)],
            kernels: [vec![TensorId(0)], vec![TensorId(0), TensorId(1)], vec![TensorId(1)]]
                .map(|outputs| DraftKernel { outputs, ..DraftKernel::default() })
                .to_vec(),
            ..Draft::default()
        };
        let mut history = History::new(&draft.check().unwrap());
        let ran = |kernel, from, until| Event::Ran {
            kernel: KernelId(kernel),
            start_ns: from * MIN_STRETCH_NS,
            end_ns: until * MIN_STRETCH_NS - 1,
        };
        history.see(Event::Began { at_ns: 0 });
        history.see(ran(0, 0, 1));
        // The kernel waits for three stretches, and a block arrives while it runs for two.
        history.see(Event::Arrived { block: 0, mask: 1, with_contents: true, at_ns: 5 * MIN_STRETCH_NS });
        history.see(ran(1, 4, 6));
        history.see(ran(2, 7, 8));
        let alive: Vec<_> = history.stretches().iter().map(|stretch| stretch.alive_bytes).collect();
        assert_eq!(alive, [100, 100, 100, 100, 107, 107, 107, 7]);
    }

    #[test]
    fn transfers_add_up_to_the_outcome_and_memory_to_its_peak_in_few_stretches() {
        let hardware = Hardware::named("a100").unwrap();
        let iteration = "bert:4".parse::<Recipe>().unwrap().make(&hardware).unwrap();
        let machine = Machine::named("a100").unwrap();
        let setup = Setup { gpu_bytes: 1 << 30, ..Setup::new(&machine) };
        let mut history = History::new(&iteration);
        let mut watch = |event| history.see(event);
        let schedule = Schedule::default();
        let outcome = observed(&iteration, &setup, &schedule, &mut watch).unwrap();
        let stretches = history.stretches();
        assert!((MAX_STRETCHES / 2..=MAX_STRETCHES).contains(&stretches.len()), "{}", stretches.len());
        assert_eq!(stretches.iter().map(|stretch| stretch.to_gpu_bytes).sum::<u64>(), outcome.bytes_htod);
        assert_eq!(stretches.iter().map(|stretch| stretch.to_host_bytes).sum::<u64>(), outcome.bytes_dtoh);
        assert_eq!(stretches.iter().map(|stretch| stretch.resident_bytes).max(), Some(outcome.peak_bytes));
        assert_eq!(stretches.iter().map(|stretch| stretch.alive_bytes).max(), Some(iteration.peak().bytes));
        let time_s = stretches.len() as f64 * history.stretch_ns() as f64 / 1e9;
        assert!((time_s / outcome.time_s - 1.0).abs() < 0.01, "{time_s} of {}", outcome.time_s);
    }
}
