//! Goes through the iteration as a GPU would that knows what comes: where there is no room for a kernel's tensors, what is needed last leaves.
//!
//! A position counts kernels; the second iteration follows the first, and so on, until the iteration ends as it began.

use std::collections::BTreeSet;

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Part, Tier, Unplannable, room::Room};

/// Iterations after which it goes around, or nearly so.
const MOST_TURNS: usize = 4;

/// A part of a tensor between two uses, for some of whose time there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) tensor: TensorId,
    pub(super) part: Part,
    /// It may leave from here on.
    pub(super) ready: usize,
    /// From here on there is no room for it.
    pub(super) release: usize,
    /// Here it must be back; less than an iteration after `ready`.
    pub(super) next_use: usize,
    /// The next use reads it. Otherwise it may be dropped.
    pub(super) is_needed: bool,
    /// Where it lies meanwhile.
    pub(super) tier: Tier,
    /// From here on at the latest it comes back.
    pub(super) due: usize,
}

/// What is away, and what that leaves on the GPU.
pub(super) struct Choice {
    pub(super) absences: Vec<Absence>,
    pub(super) room: Room,
}

/// Tensors on the GPU, or parts, that no kernel uses at the moment, by when they are used next.
type Idle = BTreeSet<(usize, u64, TensorId)>;

struct Walk<'a> {
    iteration: &'a Iteration,
    footprints: &'a Table<TensorId, u64>,
    limit_bytes: u64,
    resident_bytes: u64,
    idle: Idle,
    /// Of each tensor, how much is on the GPU: its beginning, for what is at its end leaves first.
    here_bytes: Table<TensorId, u64>,
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
    let mut walk = Walk::new(iteration, footprints, limit_bytes);
    // What wraps began to be idle an iteration earlier.
    for turn in 1..=MOST_TURNS {
        let before = walk.here_bytes.clone();
        walk.absences.clear();
        walk.once(turn * kernels);
        if walk.here_bytes == before {
            break;
        }
    }
    let absences = walk.absences;
    let mut room = Room::new(kernels, limit_bytes);
    for (id, _) in iteration.tensors().iter() {
        if let Some(life) = iteration.lifetime(id).filter(|_| !iteration.uses(id).is_empty()) {
            room.take(life.first.index(), life.end.index(), footprints[id]);
        }
    }
    for absence in &absences {
        room.give_back(absence.release, absence.next_use, absence.part.bytes());
    }
    Ok(Choice { absences, room })
}

impl<'a> Walk<'a> {
    /// With as much of what is persistent as there is room for: what is used first.
    fn new(iteration: &'a Iteration, footprints: &'a Table<TensorId, u64>, limit_bytes: u64) -> Self {
        let tensors = iteration.tensors();
        let mut walk = Self {
            iteration,
            footprints,
            limit_bytes,
            resident_bytes: 0,
            idle: Idle::new(),
            here_bytes: Table::of(0, tensors.len()),
            absences: Vec::new(),
        };
        let first_use = |id| iteration.uses(id).first().map(|first| first.kernel.index());
        let persistent = tensors.iter().filter(|(_, tensor)| tensor.persistent);
        let mut by_use: Vec<_> = persistent.map(|(id, _)| (first_use(id).unwrap_or(usize::MAX), id)).collect();
        by_use.sort_unstable();
        for (next_use, id) in by_use {
            let bytes = footprints[id];
            if walk.resident_bytes + bytes <= limit_bytes {
                walk.resident_bytes += bytes;
                walk.here_bytes[id] = bytes;
                walk.idle.insert((next_use.saturating_add(iteration.kernels().len()), bytes, id));
            }
        }
        walk
    }

    fn once(&mut self, turn: usize) {
        let iteration = self.iteration;
        for kernel in iteration.kernels().ids() {
            let position = turn + kernel.index();
            for operand in iteration.operands(kernel) {
                let bytes = self.footprints[operand.tensor];
                self.idle.remove(&(position, bytes, operand.tensor));
                let here_bytes = std::mem::replace(&mut self.here_bytes[operand.tensor], bytes);
                self.resident_bytes += bytes - here_bytes;
            }
            while let Some(excess_bytes) = self.resident_bytes.checked_sub(self.limit_bytes).filter(|&bytes| bytes > 0)
            {
                let Some(&(next_use, bytes, tensor)) = self.idle.last() else { break };
                self.leave(tensor, excess_bytes, position, next_use);
                if self.here_bytes[tensor] == 0 {
                    self.idle.remove(&(next_use, bytes, tensor));
                }
            }
            for operand in iteration.operands(kernel) {
                let bytes = self.footprints[operand.tensor];
                match self.next_use(operand.tensor, kernel, turn) {
                    Some(next_use) => _ = self.idle.insert((next_use, bytes, operand.tensor)),
                    None => self.resident_bytes -= std::mem::take(&mut self.here_bytes[operand.tensor]),
                }
            }
        }
    }

    /// There is no room for so many bytes of an idle tensor from a position on, in whole blocks; nor for all of it, if it is less than one.
    fn leave(&mut self, tensor: TensorId, excess_bytes: u64, release: usize, next_use: usize) {
        let to_bytes = self.here_bytes[tensor];
        let from_bytes = to_bytes.saturating_sub(excess_bytes.next_multiple_of(Part::BLOCK_BYTES));
        self.here_bytes[tensor] = from_bytes;
        self.resident_bytes -= to_bytes - from_bytes;
        let kernels = self.iteration.kernels().len();
        let uses = self.iteration.uses(tensor);
        // Never used: it leaves once and for all.
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

    /// After a kernel, as a position; none if the tensor is dead.
    fn next_use(&self, tensor: TensorId, kernel: KernelId, turn: usize) -> Option<usize> {
        let uses = self.iteration.uses(tensor);
        let next = uses.iter().find(|of| of.kernel > kernel).map(|of| turn + of.kernel.index());
        let around = uses.first().filter(|_| self.iteration.tensors()[tensor].persistent);
        next.or_else(|| around.map(|first| turn + self.iteration.kernels().len() + first.kernel.index()))
    }
}
