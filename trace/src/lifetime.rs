//! Lifetimes of the tensors of an iteration, and the memory that they take.
//!
//! A persistent tensor is alive at every kernel. Any other is born with the first kernel that uses
//! it and dead after the last, whatever the access.

use crate::{
    id::{Id, KernelId, Table, TensorId},
    iteration::Iteration,
};

/// Kernels `first`, `first + 1`, ..., `end` excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelRange {
    /// First kernel.
    pub first: KernelId,
    /// One past the last kernel.
    pub end: KernelId,
}

impl KernelRange {
    /// The kernels in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = KernelId> + ExactSizeIterator {
        (self.first.index()..self.end.index()).map(KernelId::new)
    }

    /// Whether the range contains the kernel.
    #[must_use]
    pub fn contains(self, kernel: KernelId) -> bool {
        self.first <= kernel && kernel < self.end
    }
}

/// Consecutive kernels that do not use a tensor, between two that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First kernel after a use; one past the last kernel if the gap begins with the next
    /// iteration.
    pub first: KernelId,
    /// Next use. If [`Self::wraps`], a kernel of the next iteration, and not after `first`.
    pub next_use: KernelId,
    /// Whether the gap contains the end of the iteration.
    pub wraps: bool,
}

/// Peak of the bytes alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// First kernel at the peak.
    pub kernel: KernelId,
    /// Bytes alive.
    pub bytes: u64,
}

impl Iteration {
    /// Kernels at which a tensor is alive; `None` for an unused one that is not persistent.
    #[must_use]
    pub fn lifetime(&self, tensor: TensorId) -> Option<KernelRange> {
        if self.tensors()[tensor].persistent {
            return Some(KernelRange { first: KernelId(0), end: self.end() });
        }
        let (first, last) = (self.uses(tensor).first()?, self.uses(tensor).last()?);
        Some(KernelRange { first: first.kernel, end: KernelId::new(last.kernel.index() + 1) })
    }

    /// Tensors born at a kernel, in the order of its operands; none of them persistent.
    pub fn births(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.transient_operands(kernel)
            .filter(move |&tensor| self.uses(tensor).first().is_some_and(|first| first.kernel == kernel))
    }

    /// Tensors that are dead after a kernel.
    pub fn deaths(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.transient_operands(kernel)
            .filter(move |&tensor| self.uses(tensor).last().is_some_and(|last| last.kernel == kernel))
    }

    fn transient_operands(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        let operands = self.operands(kernel).iter().map(|operand| operand.tensor);
        operands.filter(|&tensor| !self.tensors()[tensor].persistent)
    }

    /// Gaps between the uses of a tensor, in order. The gap of a persistent tensor around the end
    /// of the iteration is last.
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
            // A use by the last kernel and one by the first have no gap between them.
            if gap.first < self.end() || gap.next_use > KernelId(0) {
                gaps.push(gap);
            }
        }
        gaps
    }

    /// Duration of a gap without stalls.
    #[must_use]
    pub fn gap_ns(&self, gap: Gap) -> u64 {
        let (from, to) = (self.start_ns(gap.first), self.start_ns(gap.next_use));
        if gap.wraps { self.duration_ns() - from + to } else { to - from }
    }

    /// Bytes alive at each kernel, persistent ones included.
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

    /// Peak of the bytes alive, persistent ones included.
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

    /// Bytes of all tensors, regardless of lifetime.
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
