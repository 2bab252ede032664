//! What moves when, in terms of an iteration: the same in every iteration.
//!
//! A schedule has anchors, not times: each action names the kernel before which it may begin and, where something depends on it, the kernel that waits
//! for its end. Between the two, whoever carries it out begins as soon as a copy engine is free, in the order of the list. So a schedule stays right where
//! the program is slower or faster than the trace was.
//!
//! Whatever a schedule says, a kernel runs with all its tensors on the GPU: what a schedule has not brought in time comes by faults or is fetched, and
//! capacity is whoever carries it out to keep.

use serde::{Deserialize, Serialize};
use trace::{KernelId, TensorId};

use super::machine::Tier;

/// What is done to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Its bytes go to a tier, from where they are. From the GPU: its memory there is free once they have gone.
    Move(Tier),
    /// Memory on the GPU for what it will hold, without contents.
    Allocate,
    /// Its contents are not needed any more: memory is free at once, nothing is copied. Only for what is written before it is read again.
    Drop,
    /// It is dead, and as much of its memory as that tensor takes, which is still to be born, is that one's from now on: nobody makes that memory anew. Only at the
    /// kernel after its last use. It can be handed on to several, one after the other; what is left may be dropped after them.
    HandOn(TensorId),
}

/// Bytes of a tensor, counted from its first: whole blocks of [`Part::BLOCK_BYTES`], the last of which may reach beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The first of them.
    pub from_bytes: u64,
    /// One past the last.
    pub to_bytes: u64,
}

impl Part {
    /// What managed memory moves at once.
    pub const BLOCK_BYTES: u64 = 2 << 20;

    /// How many.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.to_bytes.saturating_sub(self.from_bytes)
    }
}

/// Something done to a tensor. Kernels are those of the iteration; one past the last is the end of the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// It does not begin before all kernels before this one have ended ...
    pub begin: KernelId,
    /// ... and what it is done to.
    pub tensor: TensorId,
    /// What is done.
    pub act: Act,
    /// To which part of the tensor; all of it if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// This kernel does not begin before the action is done; the next one of that number after [`Self::begin`], in this iteration or the next. `None`:
    /// nobody waits for it but a kernel that uses the tensor, which waits for every move of it to the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_before: Option<KernelId>,
}

/// What is done in an iteration, in every one. A tensor that is away at the end of the iteration is away at the beginning of the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    actions: Vec<Action>,
    /// What so many kernels from the next one on use is kept where moves to the GPU need room: those wait. What kernels fault on takes room as ever.
    #[serde(default, skip_serializing_if = "is_zero")]
    keeps: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(keeps: &usize) -> bool {
    *keeps == 0
}

impl Schedule {
    /// A schedule of these actions; those that begin at the same kernel stay in the order in which they are given.
    #[must_use]
    pub fn new(mut actions: Vec<Action>) -> Self {
        actions.sort_by_key(|action| action.begin);
        Self { actions, keeps: 0 }
    }

    /// The same, where what so many kernels from the next one on use is kept from making room for moves.
    #[must_use]
    pub fn keeping(self, keeps: usize) -> Self {
        Self { keeps, ..self }
    }

    /// Of how many kernels from the next one on what they use makes no room for moves.
    #[must_use]
    pub fn keeps(&self) -> usize {
        self.keeps
    }

    /// All actions by the kernel at which they begin, then in the order in which they are to be issued.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The actions that begin at a kernel.
    #[must_use]
    pub fn at(&self, kernel: KernelId) -> &[Action] {
        let from = self.actions.partition_point(|action| action.begin < kernel);
        let to = self.actions.partition_point(|action| action.begin <= kernel);
        self.actions.get(from..to).unwrap_or_default()
    }

    /// Who waits for what, by the kernel that waits: (kernel, the action's place among [`Self::actions`]).
    #[must_use]
    pub fn waits(&self) -> Vec<(KernelId, usize)> {
        let mut waits: Vec<_> = self
            .actions
            .iter()
            .enumerate()
            .filter_map(|(place, action)| action.done_before.map(|kernel| (kernel, place)))
            .collect();
        waits.sort_unstable();
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(begin: u32, tensor: u32, done_before: Option<u32>) -> Action {
        let done_before = done_before.map(KernelId);
        Action { begin: KernelId(begin), tensor: TensorId(tensor), act: Act::Move(Tier::Host), part: None, done_before }
    }

    #[test]
    fn actions_of_one_kernel_keep_the_order_in_which_they_were_given() {
        let (late, first, second) = (action(7, 0, Some(1)), action(3, 2, None), action(3, 1, Some(5)));
        let schedule = Schedule::new(vec![late, first, second]);
        assert_eq!(schedule.actions(), [first, second, late]);
        assert_eq!(schedule.at(KernelId(3)), [first, second]);
        assert_eq!(schedule.at(KernelId(4)), []);
        assert_eq!(schedule.waits(), [(KernelId(1), 2), (KernelId(5), 1)]);
    }
}
