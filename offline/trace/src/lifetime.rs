//! When tensors of an iteration live, and how much memory that takes.
//!
//! A persistent tensor lives at every kernel. Any other is born with the first kernel that uses it and dead after the last, whatever they do to it.

use crate::{
    id::{Id, KernelId, Table, TensorId},
    iteration::Iteration,
};

/// Kernels `first`, `first + 1`, ... up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelRange {
    /// The first.
    pub first: KernelId,
    /// One past the last.
    pub end: KernelId,
}

impl KernelRange {
    /// The kernels in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = KernelId> + ExactSizeIterator {
        (self.first.index()..self.end.index()).map(KernelId::new)
    }

    /// Whether the kernel is one of them.
    #[must_use]
    pub fn contains(self, kernel: KernelId) -> bool {
        self.first <= kernel && kernel < self.end
    }
}

/// A run of kernels that do not use a tensor, between two that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first kernel after a use; one past the last kernel where a gap begins with the next iteration.
    pub first: KernelId,
    /// The next use. Where [`Self::wraps`], one in the next iteration, and not after `first`.
    pub next_use: KernelId,
    /// It holds the end of the iteration.
    pub wraps: bool,
}

/// The most bytes alive at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The first kernel with so many.
    pub kernel: KernelId,
    /// How many.
    pub bytes: u64,
}

impl Iteration {
    /// The kernels at which a tensor is alive; `None` for one that is not persistent and never used.
    #[must_use]
    pub fn lifetime(&self, tensor: TensorId) -> Option<KernelRange> {
        if self.tensors()[tensor].persistent {
            return Some(KernelRange { first: KernelId(0), end: self.end() });
        }
        let (first, last) = (self.uses(tensor).first()?, self.uses(tensor).last()?);
        Some(KernelRange { first: first.kernel, end: KernelId::new(last.kernel.index() + 1) })
    }

    /// The tensors born at each kernel, in the order of the kernel's operands. Those of the iteration before are not.
    pub fn births(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.own(kernel).filter(move |&tensor| self.uses(tensor).first().is_some_and(|first| first.kernel == kernel))
    }

    /// The tensors that are dead once a kernel has run.
    pub fn deaths(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.own(kernel).filter(move |&tensor| self.uses(tensor).last().is_some_and(|last| last.kernel == kernel))
    }

    fn own(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        let operands = self.operands(kernel).iter().map(|operand| operand.tensor);
        operands.filter(|&tensor| !self.tensors()[tensor].persistent)
    }

    /// When a tensor is alive and idle, in order. That of a persistent tensor which holds the end of the iteration comes last.
    #[must_use]
    pub fn gaps(&self, tensor: TensorId) -> Vec<Gap> {
        let uses = self.uses(tensor);
        let after = |kernel: KernelId| KernelId::new(kernel.index() + 1);
        let pairs = uses.iter().zip(uses.iter().skip(1));
        let mut gaps: Vec<_> = pairs
            .map(|(from, to)| Gap { first: after(from.kernel), next_use: to.kernel, wraps: false })
            .filter(|gap| gap.first < gap.next_use)
            .collect();
        if let (true, [first, .., last] | [first @ last]) = (self.tensors()[tensor].persistent, uses) {
            let gap = Gap { first: after(last.kernel), next_use: first.kernel, wraps: true };
            // Used by the last kernel and by the first: nothing between.
            if gap.first < self.end() || gap.next_use > KernelId(0) {
                gaps.push(gap);
            }
        }
        gaps
    }

    /// How long a gap lasts if nothing holds anything up.
    #[must_use]
    pub fn gap_ns(&self, gap: Gap) -> u64 {
        let (from, to) = (self.start_ns(gap.first), self.start_ns(gap.next_use));
        if gap.wraps { self.duration_ns() - from + to } else { to - from }
    }

    /// Bytes alive at each kernel, persistent ones among them.
    #[must_use]
    pub fn live_bytes(&self) -> Table<KernelId, u64> {
        let mut live = self.persistent_bytes();
        let bytes = |tensor: TensorId| self.tensors()[tensor].bytes;
        let at_each = self.kernels().ids().map(|kernel| {
            live += self.births(kernel).map(bytes).sum::<u64>();
            let now = live;
            live -= self.deaths(kernel).map(bytes).sum::<u64>();
            now
        });
        at_each.collect()
    }

    /// The most bytes alive at once, persistent ones among them.
    #[must_use]
    pub fn peak(&self) -> Peak {
        let mut peak = Peak { kernel: KernelId(0), bytes: 0 };
        for (kernel, &bytes) in self.live_bytes().iter() {
            if bytes > peak.bytes {
                peak = Peak { kernel, bytes };
            }
        }
        peak
    }

    /// Bytes of all persistent tensors.
    #[must_use]
    pub fn persistent_bytes(&self) -> u64 {
        self.tensors().values().iter().filter(|tensor| tensor.persistent).map(|tensor| tensor.bytes).sum()
    }

    /// Bytes of all tensors, whenever they live.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.tensors().values().iter().map(|tensor| tensor.bytes).sum()
    }

    /// Bytes that a kernel needs on the GPU.
    #[must_use]
    pub fn working_set_bytes(&self, kernel: KernelId) -> u64 {
        self.operands(kernel).iter().map(|operand| self.tensors()[operand.tensor].bytes).sum()
    }
}
