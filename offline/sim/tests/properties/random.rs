//! Random iterations and schedules, reproducible by seed.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test panics on unexpected values")]

use planner::{Act, Action, Part, Schedule, Tier};
use trace::{
    Iteration, KernelId, Role, Tensor, TensorId,
    draft::{Draft, DraftKernel},
    id::Id,
};

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Random number below `below`.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % below
    }

    fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.roll(below as u64)).unwrap()
    }
}

/// Random iteration: tensors of 1 byte to 24 MiB, some persistent; kernels that read tensors
/// written before, and sometimes inputs of the CPU.
pub(crate) fn iteration(dice: &mut Dice) -> Iteration {
    make(dice, true)
}

/// Random iteration without inputs of the CPU, other than persistent tensors.
pub(crate) fn without_inputs(dice: &mut Dice) -> Iteration {
    make(dice, false)
}

fn make(dice: &mut Dice, inputs: bool) -> Iteration {
    let mut draft = Draft::default();
    for index in 0..24 {
        let bytes = if dice.roll(3) == 0 { 1 + dice.roll(300 << 10) } else { 1 + dice.roll(24 << 20) };
        let persistent = index < 6;
        draft.tensor(Tensor { name: String::new(), bytes, role: Role::Other, persistent });
    }
    let mut known: Vec<_> = (0..6).map(TensorId::new).collect();
    for _ in 0..20 {
        let pick = |dice: &mut Dice| known[dice.index(known.len())];
        let mut read = vec![pick(dice), pick(dice)];
        let written = TensorId::new(dice.index(24));
        if inputs && dice.roll(6) == 0 {
            read.push(TensorId::new(dice.index(24)));
        }
        known.extend([&read[2..], &[written]].concat());
        let duration_ns = dice.roll(300_000);
        draft.kernel(DraftKernel { name: String::new(), duration_ns, inputs: read, outputs: vec![written] });
    }
    draft.check().unwrap()
}

/// Random schedule: moves of tensors and parts at any time, with and without a deadline; drops of
/// tensors after their last read; and hand-overs of memory to tensors of equal size.
pub(crate) fn schedule(dice: &mut Dice, iteration: &Iteration) -> Schedule {
    let kernels = iteration.kernels().len();
    let mut actions = Vec::new();
    for _ in 0..40 {
        let tier = [Tier::Gpu, Tier::Gpu, Tier::Host, Tier::Flash][dice.index(4)];
        let done_before = (dice.roll(4) == 0).then(|| KernelId::new(dice.index(kernels)));
        // The part begins at the tensor's start or later, and ends before, at or beyond its end.
        let from_bytes = dice.roll(3) * Part::BLOCK_BYTES;
        let part = Part { from_bytes, to_bytes: from_bytes + (1 + dice.roll(8)) * Part::BLOCK_BYTES };
        actions.push(Action {
            begin: KernelId::new(dice.index(kernels + 1)),
            tensor: TensorId::new(dice.index(iteration.tensors().len())),
            act: Act::Move(tier),
            part: (dice.roll(2) == 0).then_some(part),
            done_before,
        });
    }
    let born = |kernel| {
        let births = iteration.births(kernel).map(move |tensor| (tensor, kernel));
        births.filter(|(tensor, _)| !iteration.uses(*tensor)[0].access.reads())
    };
    let mut successors: Vec<_> = iteration.kernels().ids().flat_map(born).collect();
    let footprint = |tensor: TensorId| {
        let bytes = iteration.tensors()[tensor].bytes;
        bytes.next_multiple_of(if bytes >= 1 << 20 { 2 << 20 } else { 64 << 10 })
    };
    for kernel in iteration.kernels().ids() {
        for tensor in iteration.births(kernel).filter(|&tensor| !iteration.uses(tensor)[0].access.reads()) {
            if dice.roll(3) == 0 {
                actions.push(Action { begin: kernel, tensor, act: Act::Allocate, part: None, done_before: None });
            }
        }
        let begin = KernelId::new(kernel.index() + 1);
        for tensor in iteration.deaths(kernel) {
            let successor =
                successors.iter().position(|&(born, birth)| birth >= begin && footprint(tensor) == footprint(born));
            let act = match (successor, dice.roll(2)) {
                (Some(successor), _) => Act::HandOn(successors.swap_remove(successor).0),
                (None, 0) => Act::Drop,
                _ => continue,
            };
            actions.push(Action { begin, tensor, act, part: None, done_before: None });
        }
    }
    Schedule::new(actions)
}
