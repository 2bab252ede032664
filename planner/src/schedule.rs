//! Schedules: actions on tensors by kernel, the same in every iteration.
//!
//! A schedule has anchors, not times. Each action names the kernel before which it may begin, and
//! the kernel that waits for its end, if one depends on it. Between the two, the executor begins as
//! soon as a copy engine is free, in the order of the list. So a schedule stays correct where the
//! program is slower or faster than the trace was.
//!
//! A kernel always runs with all its tensors on the GPU. Tensors that a schedule has not migrated
//! in time are fetched by faults or on demand. The executor enforces the capacity.

use serde::{Deserialize, Serialize};
use trace::{KernelId, TensorId};

use super::machine::Tier;

/// Action on a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Migrates the tensor to a tier from its current one. Its memory on the GPU is free after the
    /// migration.
    Move(Tier),
    /// Allocates memory on the GPU without contents.
    Allocate,
    /// Drops contents that are not needed any more: memory is free at once, without a copy. Only
    /// for tensors that are written before they are read again.
    Drop,
    /// Hands memory of a dead tensor on to a tensor that is still to be born, as much as that
    /// takes, so that it is not populated anew. Only at the kernel after its last use. Several
    /// tensors can get parts of it, one after the other; the rest may be dropped after them.
    HandOn(TensorId),
}

/// Bytes of a tensor, counted from its first: whole blocks of [`Part::BLOCK_BYTES`], the last of
/// which may reach beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The first byte.
    pub from_bytes: u64,
    /// One past the last byte.
    pub to_bytes: u64,
}

impl Part {
    /// Bytes that managed memory migrates at once.
    pub const BLOCK_BYTES: u64 = 2 << 20;

    /// Number of bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.to_bytes.saturating_sub(self.from_bytes)
    }
}

/// An action on a tensor. Kernels are those of the iteration; one past the last is the end of the
/// iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// It does not begin before all kernels before this one have ended.
    pub begin: KernelId,
    /// The tensor.
    pub tensor: TensorId,
    /// The kind of action.
    pub act: Act,
    /// Part of the tensor; all of it if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// This kernel does not begin before the action is done. It is the next one of that number
    /// after [`Self::begin`], in this iteration or the next. With `None` only kernels that use the
    /// tensor wait; they wait for each of its migrations to the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_before: Option<KernelId>,
}

/// Actions of every iteration. A tensor that is not on the GPU at the end of an iteration is not
/// there at the beginning of the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    actions: Vec<Action>,
    /// Kernels, from the next one on, whose tensors are protected from eviction by migrations to
    /// the GPU: these migrations wait. Faults evict them as ever.
    #[serde(default, skip_serializing_if = "is_zero")]
    keeps: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(keeps: &usize) -> bool {
    *keeps == 0
}

impl Schedule {
    /// A schedule of these actions; those that begin at the same kernel stay in the given order.
    #[must_use]
    pub fn new(mut actions: Vec<Action>) -> Self {
        actions.sort_by_key(|action| action.begin);
        Self { actions, keeps: 0 }
    }

    /// Protects the tensors of this many next kernels from eviction by migrations.
    #[must_use]
    pub fn keeping(self, keeps: usize) -> Self {
        Self { keeps, ..self }
    }

    /// Number of next kernels whose tensors are protected from eviction by migrations.
    #[must_use]
    pub fn keeps(&self) -> usize {
        self.keeps
    }

    /// All actions by the kernel at which they begin, then in the order of issue.
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

    /// Waits by kernel: (kernel, index of the action in [`Self::actions`]).
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
