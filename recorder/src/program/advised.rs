//! Advice of the program on the location of its memory, by its calls.

use std::ops::Range;

use call_ring::advice::Subject;

use crate::map::Map;

/// Maximum number of ranges. In a program with more, all memory counts as advised.
const RANGES_MAX: usize = 2048;

/// Ranges with advice.
#[derive(Clone, Debug, Default)]
pub(super) struct Advised {
    duplicated: Ranges,
    located: Ranges,
    unknown: Ranges,
    is_all: bool,
    /// Whether remote access by GPUs was ever advised.
    has_access: bool,
}

/// Disjoint ranges: ends by begins.
#[derive(Clone, Debug, Default)]
struct Ranges(Map<u64, u64>);

impl Ranges {
    /// Range that contains an address.
    fn with(&self, address: u64) -> Option<Range<u64>> {
        let (begin, end) = self.0.last_up_to(address)?;
        (address < *end).then_some(begin..*end)
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && (self.with(range.start).is_some() || self.0.first_in(range.clone()).is_some())
    }

    fn add(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.remove(&range);
            self.0.insert(range.start, range.end);
        }
    }

    fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some(first) = self.with(range.start) {
            self.0.remove(first.start);
            for rest in [first.start..range.start, range.end..first.end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
        // A range that extends past the end is the last one.
        while let Some((begin, end)) = self.0.first_in(range.clone()) {
            let end = *end;
            self.0.remove(begin);
            if range.end < end {
                self.0.insert(range.end, end);
            }
        }
    }
}

impl Advised {
    /// Records a call with this `CUmem_advise`.
    pub(super) fn advise(&mut self, advice: u32, address: u64, bytes: u64) {
        let range = address..address.saturating_add(bytes);
        let (subject, is_given) = Subject::of(advice);
        let ranges = match subject {
            Subject::Access => {
                self.has_access |= is_given;
                return;
            }
            Subject::ReadDuplication => &mut self.duplicated,
            Subject::Location => &mut self.located,
            Subject::Unknown => &mut self.unknown,
        };
        if is_given {
            ranges.add(range);
        } else {
            ranges.remove(&range);
        }
        self.bound();
    }

    /// Removes the advice on a range whose memory is freed.
    pub(super) fn free(&mut self, range: &Range<u64>) {
        for ranges in [&mut self.duplicated, &mut self.located, &mut self.unknown] {
            ranges.remove(range);
        }
        self.bound();
    }

    /// Records that the advice on a range is unknown.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        self.unknown.add(range);
        self.bound();
    }

    /// Whether part of a range has advice.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        self.is_all || self.all().into_iter().any(|ranges| ranges.overlaps(range))
    }

    /// Whether remote access by GPUs was ever advised.
    pub(super) const fn has_access(&self) -> bool {
        self.has_access
    }

    const fn all(&self) -> [&Ranges; 3] {
        [&self.duplicated, &self.located, &self.unknown]
    }

    /// Stops tracking single ranges if there are too many.
    fn bound(&mut self) {
        let count: usize = self.all().into_iter().map(|Ranges(ranges)| ranges.len()).sum();
        if self.is_all || count > RANGES_MAX {
            *self = Self { is_all: true, has_access: self.has_access, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_on_the_place_is_known_until_it_is_taken_back_or_the_memory_freed() {
        let mut advised = Advised::default();
        advised.advise(3, 0x1000, 0x3000);
        assert!(advised.has(&(0..0x1001)) && !advised.has(&(0..0x1000)) && !advised.has(&(0x4000..0x5000)));
        advised.advise(1, 0x1000, 0x1000);
        advised.advise(4, 0x1000, 0x2000);
        let has = |advised: &Advised| [0x1000, 0x2000, 0x3000].map(|page| advised.has(&(page..page + 0x1000)));
        assert_eq!(has(&advised), [true, false, true], "reads are duplicated still");
        advised.free(&(0..0x3000));
        assert_eq!(has(&advised), [false, false, true]);
        assert!(!advised.has_access());
        advised.advise(5, 0x1000, 0x1000);
        assert_eq!(has(&advised), [false, false, true], "accesses let memory move");
        assert!(advised.has_access());
    }

    #[test]
    fn advice_that_is_not_known_counts() {
        let mut advised = Advised::default();
        advised.forget(0..4096);
        advised.advise(4, 0, 4096);
        assert!(advised.has(&(0..1)));
        advised.advise(u32::MAX, 8192, u64::MAX);
        assert!(advised.has(&(u64::MAX - 1..u64::MAX)));
    }

    #[test]
    fn program_that_advises_everywhere_has_all_of_its_memory_advised() {
        let mut advised = Advised::default();
        for page in 0..5000 {
            advised.advise(3, page << 13, 4096);
        }
        assert!(
            advised.is_all
                && advised.all().into_iter().all(|Ranges(ranges)| ranges.len() == 0)
                && advised.has(&(u64::MAX - 1..u64::MAX))
        );
    }
}
