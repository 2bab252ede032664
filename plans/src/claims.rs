//! Limits on the memory that a program claims.
//!
//! Recorded calls are not trusted: a program can record anything. The size of an allocation is
//! known only from its record, so it is compared with the node's memory. Managed memory is also
//! mapped, and uvmd can read the mappings. If it cannot, as without permission for /proc, only the
//! size limits a claim.

use std::ops::Range;

use crate::{ranges::Ranges, refusal::Refusal};

/// Limits on claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Maximum bytes of an allocation: the memory of the node and of its GPUs together.
    pub allocation_bytes_max: u64,
    /// Managed memory mapped by the process; `None` if unknown.
    pub mapped: Option<Ranges>,
}

/// No limits, as for an unknown node.
impl Default for ClaimLimits {
    fn default() -> Self {
        Self { allocation_bytes_max: u64::MAX, mapped: None }
    }
}

impl ClaimLimits {
    /// Heap bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.mapped.as_ref().map_or(0, Ranges::heap_bytes)
    }

    /// Checks the size of an allocation.
    pub(crate) const fn check(&self, claimed_bytes: u64) -> Result<(), Refusal> {
        let limit_bytes = self.allocation_bytes_max;
        if claimed_bytes > limit_bytes { Err(Refusal::ClaimTooLarge { claimed_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// Number of [areas](Self::areas) of a range.
    pub(crate) fn area_count(&self, is_managed: bool, range: &Range<u64>) -> usize {
        self.mapped_of(is_managed).map_or(1, |mapped| mapped.overlap_indices(range).len())
    }

    /// Mapped areas of an allocation that overlap a range of it; all of the allocation if mappings
    /// are unknown or it is not managed.
    pub(crate) fn areas<'a>(
        &'a self,
        is_managed: bool,
        allocation: &Range<u64>,
        range: &Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let (begin, end) = (allocation.start, allocation.end);
        let mapped = self.mapped_of(is_managed);
        let whole = mapped.is_none().then(|| allocation.clone());
        let areas = mapped.map(|mapped| mapped.overlapping(range)).unwrap_or_default();
        let areas = areas.iter().map(move |area| area.start.max(begin)..area.end.min(end));
        areas.chain(whole)
    }

    /// Bytes of managed allocations that are not mapped; 0 if mappings are unknown.
    pub(crate) fn unmapped_bytes(&self, allocations: impl Iterator<Item = Range<u64>>) -> u64 {
        let bytes = |mapped: &Ranges| allocations.collect::<Ranges>().difference(mapped).bytes();
        self.mapped.as_ref().map_or(0, bytes)
    }

    fn mapped_of(&self, is_managed: bool) -> Option<&Ranges> {
        self.mapped.as_ref().filter(|_| is_managed)
    }
}
