//! Actions of a schedule between two kernels.

use planner::{Act, Action, Part, Tier};
use trace::{KernelId, TensorId, id::Id};

use super::{Run, RunError, State};
use crate::{
    address,
    engine::{Move, MoveKind},
    event::Event,
    machine::to_ns,
    units::{GRANULE_BYTES, Granules},
};

impl Run<'_> {
    /// Protects the operands of the next kernels from eviction for moves, if the schedule requests
    /// this.
    pub(super) fn protect_operands(&mut self, next: KernelId) {
        let kernels = self.iteration.kernels().len();
        let window = (next.index()..).take(self.schedule.keeps()).map(|position| KernelId::new(position % kernels));
        let used = window.flat_map(|kernel| self.iteration.operands(kernel));
        let ranges = used.filter_map(|operand| self.tensors[operand.tensor].memory);
        let blocks = ranges.filter_map(|range| Some((range.blocks().next()?.0, range.blocks().last()?.0 + 1)));
        self.engine.protected.clear();
        for (first, end) in blocks {
            let run_end = self.engine.protected.entry(first).or_default();
            *run_end = end.max(*run_end);
        }
    }

    /// Issues moves and allocations; drops and hand-overs are no moves.
    pub(super) fn issue(&mut self, action: Action) {
        let Action { begin: _, tensor, act, part, done_before } = action;
        let kinds: &[MoveKind] = match act {
            Act::Drop | Act::HandOn(_) => return,
            Act::Move(Tier::Gpu) => &[MoveKind::FromHost, MoveKind::FromFlash],
            Act::Move(Tier::Host) => &[MoveKind::ToHost],
            Act::Move(Tier::Flash) => &[MoveKind::ToFlash],
            Act::Allocate => {
                self.place(tensor);
                self.tensors[tensor].has_contents = false;
                self.engine.discard_off_gpu(tensor, self.own(tensor, self.part(tensor, part)));
                &[MoveKind::Populate]
            }
        };
        let range = self.part(tensor, part);
        if self.tensors[tensor].memory.is_some() && range.count() > 0 {
            let issued_ns = self.now_ns + to_ns(self.setup.machine.requests.call_ns.value);
            for &kind in kinds {
                self.engine.issue(Move { tensor, range, kind, done_before, issued_ns });
            }
        }
    }

    pub(super) fn drop_contents(&mut self, tensor: TensorId, part: Option<Part>) {
        if let Some(memory) = self.tensors[tensor].memory {
            let range = self.own(tensor, part.map_or(memory, |_| self.part(tensor, part)));
            self.engine.discard(tensor, range);
            self.tensors[tensor].has_contents = false;
        }
    }

    /// Hands the memory of a dead tensor on to a new one, whatever its contents.
    pub(super) fn hand_on(&mut self, kernel: KernelId, dead: TensorId, born: TensorId) -> Result<(), RunError> {
        let error = RunError::HandedOn { kernel, dead, born };
        let iteration = self.iteration;
        let bytes = |tensor: TensorId| iteration.tensors()[tensor].bytes;
        let is_dead = iteration.uses(dead).last().is_some_and(|last| last.kernel.index() + 1 == kernel.index());
        let is_written = iteration.uses(born).first().is_some_and(|of| !of.access.reads());
        let persists = [dead, born].iter().any(|&tensor| iteration.tensors()[tensor].persistent);
        if persists || !is_dead || !is_written || self.tensors[born].memory.is_some() {
            return Err(error);
        }
        let Some(memory) = self.tensors[dead].memory else { return Err(error) };
        if self.addresses.recorded().is_some() {
            // Each has its own addresses, and what is dead is discarded with its last kernel.
            self.place(born);
            return Ok(());
        }
        let end = memory.first + address::granules(bytes(born));
        // Whole blocks do not lie in shared blocks, nor the reverse.
        if end > memory.end || address::is_large(bytes(dead)) != address::is_large(bytes(born)) {
            return Err(error);
        }
        let (handed_on, rest) = (Granules { end, ..memory }, Granules { first: end, ..memory });
        self.tensors[dead] = State { memory: (rest.count() > 0).then_some(rest), has_contents: false };
        self.engine.discard_off_gpu(dead, handed_on);
        self.tensors[born].memory = Some(handed_on);
        self.engine.emit(Event::Placed { tensor: born, range: self.contents(born) });
        Ok(())
    }

    /// Part of a tensor's range that has nothing of other tensors.
    fn own(&self, tensor: TensorId, range: Granules) -> Granules {
        let Some(own) = self.addresses.recorded().map(|recorded| recorded.own(tensor)) else { return range };
        let first = range.first.max(own.first);
        Granules { first, end: range.end.min(own.end).max(first) }
    }

    /// Granules of a part of a tensor, clipped to the tensor.
    fn part(&self, tensor: TensorId, part: Option<Part>) -> Granules {
        let all = self.contents(tensor);
        let Some(Part { from_bytes, to_bytes }) = part else { return all };
        let first = (all.first + from_bytes.div_ceil(GRANULE_BYTES)).min(all.end);
        let reaches_end = to_bytes >= self.iteration.tensors()[tensor].bytes;
        let end = if reaches_end { all.end } else { all.first + to_bytes / GRANULE_BYTES };
        Granules { first, end: end.max(first) }
    }
}
