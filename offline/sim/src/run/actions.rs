//! What a schedule does between a kernel and the next.

use planner::{Act, Action, Part, Tier};
use trace::{KernelId, TensorId, id::Id};

use super::{Run, RunError, State};
use crate::{
    address,
    engine::{Move, Way},
    event::Event,
    machine::to_ns,
    units::{GRANULE_BYTES, Granules},
};

impl Run<'_> {
    /// What the next kernels use makes no room for moves, if the schedule says so.
    pub(super) fn keep(&mut self, next: KernelId) {
        let kernels = self.iteration.kernels().len();
        let window = (next.index()..).take(self.schedule.keeps()).map(|position| KernelId::new(position % kernels));
        let used = window.flat_map(|kernel| self.iteration.operands(kernel));
        let ranges = used.filter_map(|operand| self.tensors[operand.tensor].memory);
        let blocks = ranges.filter_map(|range| Some((range.blocks().next()?.0, range.blocks().last()?.0 + 1)));
        self.engine.kept.clear();
        for (first, end) in blocks {
            let known = self.engine.kept.entry(first).or_default();
            *known = end.max(*known);
        }
    }

    /// Issues what moves or makes memory; what is dropped or handed on is not issued.
    pub(super) fn begin(&mut self, action: Action) {
        let Action { begin: _, tensor, act, part, done_before } = action;
        let ways: &[Way] = match act {
            Act::Drop | Act::HandOn(_) => return,
            Act::Move(Tier::Gpu) => &[Way::FromHost, Way::FromFlash],
            Act::Move(Tier::Host) => &[Way::ToHost],
            Act::Move(Tier::Flash) => &[Way::ToFlash],
            Act::Allocate => {
                self.place(tensor);
                self.tensors[tensor].has_contents = false;
                self.engine.drop_elsewhere(tensor, self.part(tensor, part));
                &[Way::Fill]
            }
        };
        let range = self.part(tensor, part);
        if self.tensors[tensor].memory.is_some() && range.count() > 0 {
            let issued_ns = self.now_ns + to_ns(self.setup.machine.requests.call_ns.value);
            for &way in ways {
                self.engine.issue(Move { tensor, range, way, done_before, issued_ns });
            }
        }
    }

    pub(super) fn drop_contents(&mut self, tensor: TensorId, part: Option<Part>) {
        if let Some(memory) = self.tensors[tensor].memory {
            let range = part.map_or(memory, |_| self.part(tensor, part));
            self.engine.discard(tensor, range);
            self.tensors[tensor].has_contents = false;
        }
    }

    /// Memory of the dead tensor is the other one's, with whatever was left there.
    pub(super) fn hand_on(&mut self, kernel: KernelId, dead: TensorId, born: TensorId) -> Result<(), RunError> {
        let refused = RunError::HandedOn { kernel, dead, born };
        let iteration = self.iteration;
        let bytes = |tensor: TensorId| iteration.tensors()[tensor].bytes;
        let is_dead = iteration.uses(dead).last().is_some_and(|last| last.kernel.index() + 1 == kernel.index());
        let is_written = iteration.uses(born).first().is_some_and(|of| !of.access.reads());
        let lives_on = [dead, born].iter().any(|&tensor| iteration.tensors()[tensor].persistent);
        if lives_on || !is_dead || !is_written || self.tensors[born].memory.is_some() {
            return Err(refused);
        }
        let Some(memory) = self.tensors[dead].memory else { return Err(refused) };
        let end = memory.first + address::granules(bytes(born));
        // Whole blocks do not lie among those that others share, nor the other way round.
        if end > memory.end || address::is_large(bytes(dead)) != address::is_large(bytes(born)) {
            return Err(refused);
        }
        let (given, rest) = (Granules { end, ..memory }, Granules { first: end, ..memory });
        self.tensors[dead] = State { memory: (rest.count() > 0).then_some(rest), has_contents: false };
        self.engine.drop_elsewhere(dead, given);
        self.tensors[born].memory = Some(given);
        self.engine.tell(Event::Placed { tensor: born, range: self.contents(born) });
        Ok(())
    }

    /// The granules of a part of a tensor, no more than it has.
    fn part(&self, tensor: TensorId, part: Option<Part>) -> Granules {
        let all = self.contents(tensor);
        let Some(Part { from_bytes, to_bytes }) = part else { return all };
        let first = (all.first + from_bytes.div_ceil(GRANULE_BYTES)).min(all.end);
        let reaches_the_end = to_bytes >= self.iteration.tensors()[tensor].bytes;
        let end = if reaches_the_end { all.end } else { all.first + to_bytes / GRANULE_BYTES };
        Granules { first, end: end.max(first) }
    }
}
