//! Sums of resident bytes over blocks, with certain bounds.

use std::ops::{AddAssign, SubAssign};

use abi::block::BLOCK_BYTES;
use model::Residency;

/// Sum over blocks, or the contribution of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resident {
    /// Resident bytes, by the latest records.
    pub(super) bytes: u64,
    /// Bytes of blocks whose records cannot have been dropped since.
    pub(super) certain_bytes: u64,
    /// Bytes of those blocks, resident or not: those of other blocks are unknown.
    pub(super) certain_span_bytes: u64,
}

impl AddAssign for Resident {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.certain_bytes += other.certain_bytes;
        self.certain_span_bytes += other.certain_span_bytes;
    }
}

impl SubAssign for Resident {
    fn sub_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.certain_bytes = self.certain_bytes.saturating_sub(other.certain_bytes);
        self.certain_span_bytes = self.certain_span_bytes.saturating_sub(other.certain_span_bytes);
    }
}

impl Resident {
    /// Marks the sum as uncertain, as records were dropped.
    pub(super) const fn doubt(&mut self) {
        (self.certain_bytes, self.certain_span_bytes) = (0, 0);
    }

    /// Residency with its bounds, where `span_bytes` is the maximum; `None` if unknown.
    pub(super) fn bounded(&self, knowledge: &Knowledge, span_bytes: Option<u64>) -> Residency {
        if knowledge.is_complete() {
            return Residency::exactly(self.bytes);
        }
        let min_bytes = self.certain_bytes;
        let doubtful = span_bytes.map(|span| span.saturating_sub(self.certain_span_bytes));
        let max_bytes = doubtful.map_or(u64::MAX, |doubtful| min_bytes.saturating_add(doubtful));
        Residency { bytes: self.bytes.clamp(min_bytes, max_bytes), min_bytes, max_bytes }
    }
}

/// Completeness of the records of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge {
    /// Whether there are gaps: memory from before the probes, dropped records, or forgotten blocks.
    has_gaps: bool,
    /// Latest possible time of the last dropped record, ns since boot.
    lost_ns: u64,
}

impl Knowledge {
    /// Whether every block is known, so that those without records are not resident.
    pub(super) const fn is_complete(&self) -> bool {
        !self.has_gaps
    }

    /// Marks blocks without records as possibly resident.
    pub(super) const fn has_gaps(&mut self) {
        self.has_gaps = true;
    }

    /// Marks records as possibly dropped until this time.
    pub(super) fn lost(&mut self, until_ns: u64) {
        self.has_gaps = true;
        self.lost_ns = self.lost_ns.max(until_ns);
    }

    /// Latest possible time of the last dropped record, ns since boot.
    pub(super) const fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    /// Contribution of a part of a block, with this many bytes resident at the time of its record.
    pub(super) const fn of(&self, recorded_ns: u64, bytes: u64, span_bytes: u64) -> Resident {
        if recorded_ns > self.lost_ns {
            Resident { bytes, certain_bytes: bytes, certain_span_bytes: span_bytes }
        } else {
            Resident { bytes, certain_bytes: 0, certain_span_bytes: 0 }
        }
    }
}

/// Bytes of a block between two addresses.
pub(super) fn overlap(number: u64, begin: u64, end: u64) -> u64 {
    let first = number.saturating_mul(BLOCK_BYTES);
    end.min(first.saturating_add(BLOCK_BYTES)).saturating_sub(begin.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn gaps(lost_ns: u64) -> Knowledge {
        let mut knowledge = Knowledge::default();
        knowledge.lost(lost_ns);
        knowledge
    }

    #[test]
    fn residency_is_exact_without_losses() {
        let mut sum = Resident::default();
        sum += Knowledge::default().of(5, 3 * MIB, 2 * MIB);
        assert_eq!(sum.bounded(&Knowledge::default(), None), Residency::exactly(3 * MIB));
    }

    #[test]
    fn records_before_a_loss_give_the_estimate_and_later_ones_the_bounds() {
        let knowledge = gaps(10);
        let mut sum = Resident::default();
        sum += knowledge.of(10, MIB, 2 * MIB);
        sum += knowledge.of(11, 2 * MIB, 2 * MIB);
        let expected = Residency { bytes: 3 * MIB, min_bytes: 2 * MIB, max_bytes: 10 * MIB };
        assert_eq!(sum.bounded(&knowledge, Some(10 * MIB)), expected);
        assert_eq!(sum.bounded(&knowledge, None), Residency { max_bytes: u64::MAX, ..expected });
        sum.doubt();
        assert_eq!(
            sum.bounded(&knowledge, Some(2 * MIB)),
            Residency { bytes: 2 * MIB, min_bytes: 0, max_bytes: 2 * MIB }
        );
    }

    #[test]
    fn block_at_the_end_of_a_range_overlaps_partly() {
        assert_eq!(overlap(3, 6 * MIB, 7 * MIB), MIB);
        assert_eq!(overlap(3, 0, 100 * MIB), 2 * MIB);
        assert_eq!(overlap(3, 9 * MIB, 100 * MIB), 0);
    }
}
