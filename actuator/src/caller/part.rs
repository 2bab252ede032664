//! Part of a step for one call.

use std::ops::Range;

use model::{Action, Step};
use sys::uvm::pages::{CALL_MAX_BYTES, PageRange};

/// Block of the driver, its unit of tracking, migration and eviction.
pub(super) const BLOCK_BYTES: u64 = 2 << 20;

/// Part of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) step: Step,
    /// Pages of the call; `None` if nothing is mapped.
    pub(super) pages: Option<PageRange>,
}

/// First part of a step, which must not be empty; `mapped` is in the order of addresses.
pub(super) fn next_part(step: &Step, mapped: &[Range<u64>], move_bytes: u64) -> Part {
    let at = mapped.partition_point(|range| range.end <= step.begin);
    let next = mapped.get(at).filter(|range| range.start < step.end);
    let until = |end: u64| Step { end, ..*step };
    match next {
        Some(range) if range.start <= step.begin => {
            let unit = match step.action {
                Action::Migrate(_) => move_bytes,
                Action::Touch(_) => BLOCK_BYTES,
                // Each end of a call splits the driver's range for good, so parts are as large as a
                // call may be.
                Action::Advise(_) | Action::Withdraw(_) => CALL_MAX_BYTES,
            };
            // Up to a multiple of the unit, so that the parts after the first are whole units.
            let whole = (step.begin / unit + 1).saturating_mul(unit);
            let part = until(step.end.min(range.end).min(whole));
            let named = match step.action {
                // One page suffices for its whole block.
                Action::Touch(_) => part.bytes().min(page_bytes()),
                _ => part.bytes(),
            };
            Part { step: part, pages: PageRange::new(part.begin, named) }
        }
        Some(range) => Part { step: until(range.start), pages: None },
        None => Part { step: *step, pages: None },
    }
}

fn page_bytes() -> u64 {
    procfs::page_size()
}

#[cfg(test)]
mod tests {
    use model::{Advice, GpuUuid, Place};

    use super::*;

    const MIB: u64 = 1 << 20;
    const GPU: GpuUuid = GpuUuid([1; 16]);

    /// Parts of a step from `begin` up to `end` in MiB, as (begin, end, bytes of the call).
    fn parts(action: Action, begin: u64, end: u64, mapped: &[Range<u64>]) -> Vec<(u64, u64, u64)> {
        let mapped: Vec<_> = mapped.iter().map(|range| range.start * MIB..range.end * MIB).collect();
        let mut left = Step { begin: begin * MIB, end: end * MIB, action };
        let mut parts = Vec::new();
        while left.begin < left.end {
            let Part { step, pages } = next_part(&left, &mapped, 2 * MIB);
            assert!(step.begin == left.begin && step.end > step.begin && step.end <= left.end);
            assert!(pages.is_none_or(|pages| pages.begin() == step.begin));
            parts.push((step.begin / MIB, step.end / MIB, pages.map_or(0, PageRange::bytes)));
            left.begin = step.end;
        }
        parts
    }

    #[test]
    fn migrations_are_cut_at_block_boundaries() {
        let parts = parts(Action::Migrate(Place::Host), 3, 8, from_ref(&(0..100)));
        assert_eq!(parts, [(3, 4, MIB), (4, 6, 2 * MIB), (6, 8, 2 * MIB)]);
    }

    #[test]
    fn unmapped_memory_is_not_touched() {
        let parts = parts(Action::Migrate(Place::Gpu(GPU)), 0, 12, &[3..5, 6..7, 20..30]);
        assert_eq!(parts, [(0, 3, 0), (3, 4, MIB), (4, 5, MIB), (5, 6, 0), (6, 7, MIB), (7, 12, 0)]);
    }

    #[test]
    fn adjacent_mappings_are_separate_ranges() {
        let parts = parts(Action::Advise(Advice::ReadDuplication), 0, 4, &[0..1, 1..4]);
        assert_eq!(parts, [(0, 1, MIB), (1, 4, 3 * MIB)]);
    }

    #[test]
    fn renewal_touches_the_first_requested_page_of_a_block() {
        let parts = parts(Action::Touch(GPU), 1, 6, from_ref(&(0..5)));
        assert_eq!(parts, [(1, 2, page_bytes()), (2, 4, page_bytes()), (4, 5, page_bytes()), (5, 6, 0)]);
    }

    #[test]
    fn advice_is_cut_only_at_the_maximum_call_size() {
        let parts = parts(Action::Withdraw(Advice::AccessedBy(GPU)), 30, 80, from_ref(&(0..100)));
        assert_eq!(parts, [(30, 32, 2 * MIB), (32, 64, 32 * MIB), (64, 80, 16 * MIB)]);
    }

    #[test]
    fn range_at_the_end_of_the_address_space_is_accepted() {
        let begin = u64::MAX - 3 * MIB + 1;
        let step = Step { begin, end: u64::MAX - 4095, action: Action::Migrate(Place::Host) };
        let part = next_part(&step, from_ref(&(begin..u64::MAX)), 2 * MIB);
        assert_eq!(part.step.bytes(), MIB);
    }

    fn from_ref(range: &Range<u64>) -> &[Range<u64>] {
        std::slice::from_ref(range)
    }
}
