//! Limits of what a program claims of its memory.
//!
//! Whatever records its calls can record any. Of an allocation, the size is known from them alone, so
//! that it is compared with what the node has. Managed memory is also seen from outside: it is mapped.
//! Where mappings are not known, as without permission for /proc, only the size limits a claim.

use std::ops::Range;

use crate::{ranges::Ranges, refusal::Refusal};

/// Limits of claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Most bytes of an allocation: those of the node's memory and its GPUs' together.
    pub allocation_bytes_max: u64,
    /// Managed memory that the process has mapped; `None` if that is not known.
    pub mapped: Option<Ranges>,
}

/// None: nothing is known of the node.
impl Default for ClaimLimits {
    fn default() -> Self {
        Self { allocation_bytes_max: u64::MAX, mapped: None }
    }
}

impl ClaimLimits {
    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.mapped.as_ref().map_or(0, Ranges::heap_bytes)
    }

    /// Checks the size of an allocation.
    pub(crate) const fn check(&self, claimed_bytes: u64) -> Result<(), Refusal> {
        let limit_bytes = self.allocation_bytes_max;
        if claimed_bytes > limit_bytes { Err(Refusal::ClaimTooLarge { claimed_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// Number of [areas](Self::areas) of a range.
    pub(crate) fn count(&self, is_managed: bool, range: &Range<u64>) -> usize {
        self.mapped_of(is_managed).map_or(1, |mapped| mapped.places(range).len())
    }

    /// Areas of an allocation that are there and overlap with a range of it.
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

    /// Bytes of these managed allocations that are not there; 0 if mappings are not known.
    pub(crate) fn unmapped_bytes(&self, allocations: impl Iterator<Item = Range<u64>>) -> u64 {
        let bytes = |mapped: &Ranges| allocations.collect::<Ranges>().without(mapped).bytes();
        self.mapped.as_ref().map_or(0, bytes)
    }

    fn mapped_of(&self, is_managed: bool) -> Option<&Ranges> {
        self.mapped.as_ref().filter(|_| is_managed)
    }
}
