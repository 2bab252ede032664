//! Memory and transfers over the last iteration of a run, for a picture of it. What it keeps does not grow with the run.

use std::collections::HashMap;

use trace::{Iteration, KernelId, Table};

use crate::{
    event::Event,
    units::{BLOCK_BYTES, Granules, Mask, mask_bytes},
};

/// Stretches of time at most.
const MOST: usize = 512;

/// The shortest: in less, single blocks would look like bursts.
const LEAST_NS: u64 = 1 << 20;

/// What happened in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The most memory of the GPU in use, in blocks of 2 MiB.
    pub resident_bytes: u64,
    /// The most that was alive for the kernels that ran, wherever it was.
    pub alive_bytes: u64,
    /// What arrived over the link.
    pub to_gpu_bytes: u64,
    /// What left over the link.
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

/// Watches a run.
#[derive(Clone, Debug)]
pub struct History {
    alive_bytes: Table<KernelId, u64>,
    /// Granules on the GPU, by block.
    resident: HashMap<u64, Mask>,
    /// Alive for the kernel that ran last.
    alive_now_bytes: u64,
    began_ns: u64,
    stretch_ns: u64,
    stretches: Vec<Stretch>,
}

impl History {
    /// Nothing yet of runs of an iteration.
    #[must_use]
    pub fn new(iteration: &Iteration) -> Self {
        Self {
            alive_bytes: iteration.live_bytes(),
            resident: HashMap::new(),
            alive_now_bytes: 0,
            began_ns: 0,
            stretch_ns: LEAST_NS,
            stretches: Vec::new(),
        }
    }

    /// How long a stretch is.
    #[must_use]
    pub fn stretch_ns(&self) -> u64 {
        self.stretch_ns
    }

    /// All of them, in order.
    #[must_use]
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: Event) {
        match event {
            Event::Began { at_ns } => {
                (self.began_ns, self.stretch_ns) = (at_ns, LEAST_NS);
                self.stretches.clear();
                self.reach(at_ns);
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
                // Until it begins, as much is alive as for the one before it.
                self.reach(start_ns.saturating_sub(1));
                self.alive_now_bytes = self.alive_bytes[kernel];
                self.reach(end_ns);
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

    fn add(&mut self, at_ns: u64, what: Stretch) {
        let index = self.reach(at_ns);
        let what = Stretch { resident_bytes: self.resident_bytes(), ..what };
        if let Some(stretch) = self.stretches.get_mut(index) {
            *stretch = stretch.join(what);
        }
    }

    fn index(&self, at_ns: u64) -> usize {
        usize::try_from(at_ns.saturating_sub(self.began_ns) / self.stretch_ns).unwrap_or(usize::MAX)
    }

    /// The stretch at a time; what is between the last one and that holds what the GPU holds, and as much is alive as for the kernel that ran last.
    fn reach(&mut self, at_ns: u64) -> usize {
        while self.index(at_ns) >= MOST {
            self.stretch_ns *= 2;
            let pairs = self.stretches.chunks(2);
            self.stretches = pairs.filter_map(|pair| pair.iter().copied().reduce(Stretch::join)).collect();
        }
        let index = self.index(at_ns);
        if index >= self.stretches.len() {
            let (resident_bytes, alive_bytes) = (self.resident_bytes(), self.alive_now_bytes);
            let same = Stretch { resident_bytes, alive_bytes, ..Stretch::default() };
            self.stretches.resize(index + 1, same);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Setup, observed};
    use planner::Schedule;
    use trace::{
        Draft, Role, Tensor, TensorId,
        draft::DraftKernel,
        zoo::{Hardware, Recipe},
    };

    #[test]
    fn what_is_alive_stays_alive_while_a_kernel_waits() {
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
            start_ns: from * LEAST_NS,
            end_ns: until * LEAST_NS - 1,
        };
        history.see(Event::Began { at_ns: 0 });
        history.see(ran(0, 0, 1));
        // It waits for three stretches, and something arrives while it runs for two.
        history.see(Event::Arrived { block: 0, mask: 1, with_contents: true, at_ns: 5 * LEAST_NS });
        history.see(ran(1, 4, 6));
        history.see(ran(2, 7, 8));
        let alive: Vec<_> = history.stretches().iter().map(|of| of.alive_bytes).collect();
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
        assert!((MOST / 2..=MOST).contains(&stretches.len()), "{}", stretches.len());
        assert_eq!(stretches.iter().map(|of| of.to_gpu_bytes).sum::<u64>(), outcome.bytes_htod);
        assert_eq!(stretches.iter().map(|of| of.to_host_bytes).sum::<u64>(), outcome.bytes_dtoh);
        assert_eq!(stretches.iter().map(|of| of.resident_bytes).max(), Some(outcome.peak_bytes));
        assert_eq!(stretches.iter().map(|of| of.alive_bytes).max(), Some(iteration.peak().bytes));
        let time_s = stretches.len() as f64 * history.stretch_ns() as f64 / 1e9;
        assert!((time_s / outcome.time_s - 1.0).abs() < 0.01, "{time_s} of {}", outcome.time_s);
    }
}
