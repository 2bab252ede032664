//! Advice that the program has given on where its memory lies, by its calls.

use std::ops::Range;

use call_ring::advice::Subject;

/// Most ranges. In a program with more of them, all memory counts as advised.
const RANGES_MAX: usize = 2048;

/// Ranges with advice.
#[derive(Clone, Debug, Default)]
pub(super) struct Advised {
    ranges: Vec<(Subject, Range<u64>)>,
    is_all: bool,
    /// Whether GPUs were ever to access memory where it is.
    has_access: bool,
}

impl Advised {
    /// Notes a call with this `CUmem_advise`.
    pub(super) fn advise(&mut self, advice: u32, address: u64, bytes: u64) {
        let range = address..address.saturating_add(bytes);
        match Subject::of(advice) {
            (Subject::Access, is_given) => self.has_access |= is_given,
            (subject, true) => self.add(subject, range),
            (subject, false) => self.remove(&range, |there| there == subject),
        }
    }

    /// Notes that the memory of a range is freed, and its advice with it.
    pub(super) fn free(&mut self, range: &Range<u64>) {
        self.remove(range, |_| true);
    }

    /// Notes that the advice on a range is not known.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        self.add(Subject::Unknown, range);
    }

    /// Whether there is advice on a part of a range.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        self.is_all || self.ranges.iter().any(|(_, there)| overlaps(there, range))
    }

    /// Whether there ever was advice that GPUs access memory where it is.
    pub(super) const fn has_access(&self) -> bool {
        self.has_access
    }

    fn add(&mut self, subject: Subject, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.remove(&range, |there| there == subject);
        self.push(subject, range);
    }

    fn push(&mut self, subject: Subject, range: Range<u64>) {
        if self.is_all {
            return;
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push((subject, range));
        } else {
            (self.is_all, self.ranges) = (true, Vec::new());
        }
    }

    fn remove(&mut self, range: &Range<u64>, is_meant: impl Fn(Subject) -> bool) {
        let is_cut = |(subject, there): &mut (Subject, Range<u64>)| is_meant(*subject) && overlaps(there, range);
        for (subject, there) in self.ranges.extract_if(.., is_cut).collect::<Vec<_>>() {
            for rest in [there.start..range.start, range.end..there.end] {
                if !rest.is_empty() {
                    self.push(subject, rest);
                }
            }
        }
    }
}

const fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
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
        assert!(advised.ranges.len() <= RANGES_MAX && advised.has(&(u64::MAX - 1..u64::MAX)));
    }
}
