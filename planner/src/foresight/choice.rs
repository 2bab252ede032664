//! Simulation of an iteration with Belady's eviction: where a kernel's tensors do not fit, the
//! tensor that is used last is evicted.
//!
//! A position counts kernels. The second iteration follows the first, and so on, until an iteration
//! ends as it began.

use std::collections::BTreeSet;

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Part, Tier, Unplannable, occupancy::Occupancy};

/// Iterations after which the residency is in its steady state, or nearly.
const MOST_TURNS: usize = 4;

/// A part of a tensor between two uses that does not fit for some of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) tensor: TensorId,
    pub(super) part: Part,
    /// First position at which it may be evicted.
    pub(super) ready: usize,
    /// First position at which it does not fit.
    pub(super) release: usize,
    /// Position at which it must be back; less than an iteration after `ready`.
    pub(super) next_use: usize,
    /// The next use reads it. Otherwise it may be dropped.
    pub(super) is_needed: bool,
    /// Its tier during the absence.
    pub(super) tier: Tier,
    /// Latest position at which its fetch begins.
    pub(super) due: usize,
}

/// Absences, and the occupancy of the GPU with them.
pub(super) struct Choice {
    pub(super) absences: Vec<Absence>,
    pub(super) occupancy: Occupancy,
}

/// Idle tensors on the GPU, or parts of them, by their next use.
type Idle = BTreeSet<(usize, u64, TensorId)>;

struct Simulation<'a> {
    iteration: &'a Iteration,
    footprints: &'a Table<TensorId, u64>,
    limit_bytes: u64,
    resident_bytes: u64,
    idle: Idle,
    /// Bytes of each tensor on the GPU: its beginning, since eviction starts at its end.
    on_gpu_bytes: Table<TensorId, u64>,
    absences: Vec<Absence>,
}

pub(super) fn choose(
    iteration: &Iteration,
    footprints: &Table<TensorId, u64>,
    limit_bytes: u64,
) -> Result<Choice, Unplannable> {
    let kernels = iteration.kernels().len();
    for kernel in iteration.kernels().ids() {
        let needed_bytes = iteration.operands(kernel).iter().map(|of| footprints[of.tensor]).sum();
        if needed_bytes > limit_bytes {
            return Err(Unplannable::KernelTooLarge { kernel, needed_bytes, gpu_bytes: limit_bytes });
        }
    }
    let mut simulation = Simulation::new(iteration, footprints, limit_bytes);
    // Idle times that wrap began an iteration earlier.
    for turn in 1..=MOST_TURNS {
        let before = simulation.on_gpu_bytes.clone();
        simulation.absences.clear();
        simulation.iterate(turn * kernels);
        if simulation.on_gpu_bytes == before {
            break;
        }
    }
    let absences = simulation.absences;
    let mut occupancy = Occupancy::new(kernels, limit_bytes);
    for (id, _) in iteration.tensors().iter() {
        if let Some(life) = iteration.lifetime(id).filter(|_| !iteration.uses(id).is_empty()) {
            occupancy.add(life.first.index(), life.end.index(), footprints[id]);
        }
    }
    for absence in &absences {
        occupancy.subtract(absence.release, absence.next_use, absence.part.bytes());
    }
    Ok(Choice { absences, occupancy })
}

impl<'a> Simulation<'a> {
    /// Starts with as many persistent tensors as fit, in the order of their first use.
    fn new(iteration: &'a Iteration, footprints: &'a Table<TensorId, u64>, limit_bytes: u64) -> Self {
        let tensors = iteration.tensors();
        let mut simulation = Self {
            iteration,
            footprints,
            limit_bytes,
            resident_bytes: 0,
            idle: Idle::new(),
            on_gpu_bytes: Table::of(0, tensors.len()),
            absences: Vec::new(),
        };
        let first_use = |id| iteration.uses(id).first().map(|first| first.kernel.index());
        let persistent = tensors.iter().filter(|(_, tensor)| tensor.persistent);
        let mut by_use: Vec<_> = persistent.map(|(id, _)| (first_use(id).unwrap_or(usize::MAX), id)).collect();
        by_use.sort_unstable();
        for (next_use, id) in by_use {
            let bytes = footprints[id];
            if simulation.resident_bytes + bytes <= limit_bytes {
                simulation.resident_bytes += bytes;
                simulation.on_gpu_bytes[id] = bytes;
                simulation.idle.insert((next_use.saturating_add(iteration.kernels().len()), bytes, id));
            }
        }
        simulation
    }

    fn iterate(&mut self, turn: usize) {
        let iteration = self.iteration;
        for kernel in iteration.kernels().ids() {
            let position = turn + kernel.index();
            for operand in iteration.operands(kernel) {
                let bytes = self.footprints[operand.tensor];
                self.idle.remove(&(position, bytes, operand.tensor));
                let on_gpu_bytes = std::mem::replace(&mut self.on_gpu_bytes[operand.tensor], bytes);
                self.resident_bytes += bytes - on_gpu_bytes;
            }
            while let Some(excess_bytes) = self.resident_bytes.checked_sub(self.limit_bytes).filter(|&bytes| bytes > 0)
            {
                let Some(&(next_use, bytes, tensor)) = self.idle.last() else { break };
                self.evict(tensor, excess_bytes, position, next_use);
                if self.on_gpu_bytes[tensor] == 0 {
                    self.idle.remove(&(next_use, bytes, tensor));
                }
            }
            for operand in iteration.operands(kernel) {
                let bytes = self.footprints[operand.tensor];
                match self.next_use(operand.tensor, kernel, turn) {
                    Some(next_use) => _ = self.idle.insert((next_use, bytes, operand.tensor)),
                    None => self.resident_bytes -= std::mem::take(&mut self.on_gpu_bytes[operand.tensor]),
                }
            }
        }
    }

    /// Evicts bytes of an idle tensor from a position on, in whole blocks, or all of it if it is
    /// less than a block.
    fn evict(&mut self, tensor: TensorId, excess_bytes: u64, release: usize, next_use: usize) {
        let to_bytes = self.on_gpu_bytes[tensor];
        let from_bytes = to_bytes.saturating_sub(excess_bytes.next_multiple_of(Part::BLOCK_BYTES));
        self.on_gpu_bytes[tensor] = from_bytes;
        self.resident_bytes -= to_bytes - from_bytes;
        let kernels = self.iteration.kernels().len();
        let uses = self.iteration.uses(tensor);
        // A tensor without any use is evicted for good.
        let Some(next) = uses.iter().find(|of| of.kernel.index() == next_use % kernels) else { return };
        let last = uses.iter().rev().find(|of| of.kernel < next.kernel).or(uses.last());
        let Some(last) = last else { return };
        let ready = next_use - (next.kernel.index() + kernels - last.kernel.index() - 1) % kernels;
        let part = Part { from_bytes, to_bytes };
        self.absences.push(Absence {
            tensor,
            part,
            ready,
            release,
            next_use,
            is_needed: next.access.reads(),
            tier: Tier::Host,
            due: next_use,
        });
    }

    /// Position of the next use after a kernel; none if the tensor is dead.
    fn next_use(&self, tensor: TensorId, kernel: KernelId, turn: usize) -> Option<usize> {
        let uses = self.iteration.uses(tensor);
        let next = uses.iter().find(|of| of.kernel > kernel).map(|of| turn + of.kernel.index());
        let around = uses.first().filter(|_| self.iteration.tensors()[tensor].persistent);
        next.or_else(|| around.map(|first| turn + self.iteration.kernels().len() + first.kernel.index()))
    }
}
