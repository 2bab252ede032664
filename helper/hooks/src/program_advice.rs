//! The program's own advice, which uvmd's advice never replaces.
//!
//! A table of ranges, updated in any mode. An entry is added before the driver is called. After an
//! overflow, or if the lock is not acquired, uvmd gives no advice, as if all memory were advised.
//! When uvmd undoes advice, only known ranges of the same subject count: otherwise its advice could
//! stay in force for ever. This may undo later advice of the program whose subject is unknown.

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::advice;

use crate::{blocks::TableUnavailable, lock::Lock, mapping, parts::Range, system::Errno};

/// Capacity of the table.
const RANGES_MAX: usize = 2048;
const RANGE_WORDS: usize = 3;

/// Subject of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject(u64);

impl Subject {
    const READ_DUPLICATION: Self = Self(1);
    /// Preferred location.
    pub(crate) const LOCATION: Self = Self(2);
    /// Unknown advice, which may be on any subject.
    pub(crate) const UNKNOWN: Self = Self(3);
    /// Attachment to a stream, or to the host: it counts as advice on every subject.
    pub(crate) const ATTACHMENT: Self = Self(5);

    /// Access by a device; each device is a subject of its own.
    fn access(device: i32) -> Self {
        Self(4 | u64::from(device.cast_unsigned()) << 8)
    }

    /// Subject of a `CUmem_advise`, and whether the advice is set rather than unset.
    pub(crate) fn of(advice: u32, device: i32) -> (Self, bool) {
        let (subject, is_set) = advice::Subject::from_advice(advice);
        let subject = match subject {
            advice::Subject::ReadDuplication => Self::READ_DUPLICATION,
            advice::Subject::Location => Self::LOCATION,
            advice::Subject::Access => Self::access(device),
            advice::Subject::Unknown => Self::UNKNOWN,
        };
        (subject, is_set)
    }

    fn includes(self, other: Self) -> bool {
        self == other || other == Self::UNKNOWN || other == Self::ATTACHMENT
    }
}

/// Table of ranges with the program's advice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramAdvice {
    lock: Lock,
    /// Version, incremented by every update.
    version: &'static AtomicU64,
    count: &'static AtomicU64,
    /// 1 once a range could not be inserted: all memory counts as advised.
    has_overflowed: &'static AtomicU64,
    ranges: &'static [AtomicU64],
}

/// Entry of the table. Entries of one subject never touch each other.
#[derive(Clone, Copy, Debug)]
struct Entry {
    range: Range,
    subject: Subject,
}

impl ProgramAdvice {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = mapping::private(8 + RANGES_MAX * RANGE_WORDS)?;
        let (head, ranges) = words.split_at_checked(8).ok_or(Errno(0))?;
        let [lock, version, count, has_overflowed, ..] = head else { return Err(Errno(0)) };
        Ok(Self { lock: Lock::new(lock), version, count, has_overflowed, ranges })
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(0).min(RANGES_MAX)
    }

    fn words(&self, at: usize) -> Option<&'static [AtomicU64; RANGE_WORDS]> {
        self.ranges.as_chunks().0.get(at)
    }

    fn get(&self, at: usize) -> Entry {
        let [begin, end, subject] =
            self.words(at).map_or([0; RANGE_WORDS], |words| words.each_ref().map(|word| word.load(Ordering::Relaxed)));
        Entry { range: Range { begin, end }, subject: Subject(subject) }
    }

    fn set(&self, at: usize, Entry { range, subject }: Entry) {
        if let Some([begin, end, word]) = self.words(at) {
            begin.store(range.begin, Ordering::Relaxed);
            end.store(range.end, Ordering::Relaxed);
            word.store(subject.0, Ordering::Relaxed);
        }
    }

    /// Version, incremented by every update.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Adds an entry; false if the table is full.
    fn push(&self, entry: Entry) -> bool {
        let count = self.len();
        let has_room = count < RANGES_MAX;
        if has_room {
            self.set(count, entry);
            self.count.store(count as u64 + 1, Ordering::Relaxed);
        }
        has_room
    }

    fn swap_remove(&self, at: usize) {
        let last = self.len().saturating_sub(1);
        self.set(at, self.get(last));
        self.count.store(last as u64, Ordering::Relaxed);
    }

    /// Changes the table under its lock. Returns false on the first failure only; from then on, all
    /// memory counts as advised.
    fn update(&self, change: impl FnOnce() -> bool) -> bool {
        let is_updated = self.has_overflowed.load(Ordering::Relaxed) != 0
            || self.lock.with(change).unwrap_or(false)
            || self.has_overflowed.swap(1, Ordering::Relaxed) != 0;
        // After the change: a reader of this version sees the change.
        self.version.fetch_add(1, Ordering::AcqRel);
        is_updated
    }

    /// Adds advice, merged with adjacent ranges of its subject. Returns false on the first failure
    /// only.
    pub(crate) fn insert(&self, range: Range, subject: Subject) -> bool {
        self.update(|| {
            let mut merged = Entry { range, subject };
            let mut at = 0;
            while at < self.len() {
                let Entry { range: Range { begin, end }, subject: other } = self.get(at);
                if other == subject && begin <= merged.range.end && merged.range.begin <= end {
                    merged.range = Range { begin: begin.min(merged.range.begin), end: end.max(merged.range.end) };
                    self.swap_remove(at);
                } else {
                    at += 1;
                }
            }
            self.push(merged)
        })
    }

    /// Removes the advice on a subject from a range, or with `None` all advice, as for a free.
    /// Returns false on the first failure only.
    pub(crate) fn remove(&self, range: Range, subject: Option<Subject>) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.update(|| {
            let mut has_room = true;
            let mut at = 0;
            while at < self.len() {
                let entry = self.get(at);
                let Range { begin, end } = entry.range;
                let is_selected = subject.is_none_or(|subject| subject == entry.subject);
                if !is_selected || end <= range.begin || range.end <= begin {
                    at += 1;
                    continue;
                }
                self.swap_remove(at);
                let before = Range { begin, end: range.begin };
                let after = Range { begin: range.end, end };
                for rest in [before, after].into_iter().filter(|rest| rest.begin < rest.end) {
                    // Appended, so that the loop visits it again, and keeps it.
                    has_room &= self.push(Entry { range: rest, ..entry });
                }
            }
            has_room
        })
    }

    /// Pages of the program's first known advice on this subject that shares a page with a range.
    ///
    /// # Errors
    /// Fails if the lock is not acquired.
    pub(crate) fn first_in(&self, range: Range, subject: Subject) -> Result<Option<Range>, TableUnavailable> {
        let first = self.lock.with(|| {
            let entries = (0..self.len()).map(|at| self.get(at));
            let found = entries.filter(|entry| entry.subject == subject && entry.range.shares_a_page(range));
            found.map(|entry| entry.range.pages()).min_by_key(|pages| pages.begin)
        });
        first.ok_or(TableUnavailable)
    }

    /// Whether the program has given advice on a page of the range: on this subject, or with `None`
    /// on any. True if unknown.
    pub(crate) fn overlaps(&self, range: Range, subject: Option<Subject>) -> bool {
        let found = self.lock.with(|| {
            (0..self.len()).map(|at| self.get(at)).any(|entry| {
                subject.is_none_or(|subject| subject.includes(entry.subject)) && entry.range.shares_a_page(range)
            })
        });
        self.has_overflowed.load(Ordering::Relaxed) != 0 || found.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: u64, end: u64) -> Range {
        Range { begin: begin << 12, end: end << 12 }
    }

    #[test]
    fn advice_stays_until_it_is_unset_or_the_memory_is_freed() {
        let table = ProgramAdvice::new().unwrap();
        let (location, is_set) = Subject::of(3, 0);
        assert!(is_set && table.insert(range(10, 20), location));
        assert!(table.overlaps(range(19, 30), None) && table.overlaps(range(5, 11), Some(Subject::LOCATION)));
        assert!(!table.overlaps(range(20, 30), None) && !table.overlaps(range(0, 10), None));
        assert!(table.remove(range(12, 14), Some(Subject::of(4, -1).0)));
        assert!(!table.overlaps(range(12, 14), None));
        assert!(table.overlaps(range(11, 12), None) && table.overlaps(range(14, 15), None));
        assert!(table.remove(range(0, 100), None));
        assert!(!table.overlaps(range(0, 100), None));
    }

    #[test]
    fn each_update_increments_the_version() {
        let table = ProgramAdvice::new().unwrap();
        let before = table.version();
        assert!(table.insert(range(1, 2), Subject::LOCATION));
        let inserted = table.version();
        assert!(!table.overlaps(range(5, 6), None) && table.version() == inserted && inserted != before);
        assert!(table.remove(range(1, 2), None) && table.version() != inserted);
    }

    #[test]
    fn subjects_are_removed_independently() {
        let table = ProgramAdvice::new().unwrap();
        for (advice, device) in [(1, -1), (5, 0), (5, 1)] {
            assert!(table.insert(range(1, 2), Subject::of(advice, device).0));
        }
        assert!(!table.overlaps(range(1, 2), Some(Subject::LOCATION)));
        assert!(table.remove(range(1, 2), Some(Subject::of(6, 0).0)));
        assert!(table.remove(range(1, 2), Some(Subject::of(2, 0).0)));
        assert!(table.overlaps(range(1, 2), None));
        assert!(table.remove(range(1, 2), Some(Subject::of(6, 1).0)));
        assert!(!table.overlaps(range(1, 2), None));
    }

    #[test]
    fn unknown_advice_counts_for_every_subject() {
        let table = ProgramAdvice::new().unwrap();
        let (subject, is_set) = Subject::of(77, 0);
        assert!(is_set && table.insert(range(1, 2), subject));
        assert!(table.overlaps(range(1, 2), Some(Subject::LOCATION)));
    }

    #[test]
    fn memory_attached_to_a_stream_counts_as_advised_until_it_is_detached() {
        let table = ProgramAdvice::new().unwrap();
        assert!(table.insert(range(1, 2), Subject::ATTACHMENT));
        assert!(table.overlaps(range(1, 2), Some(Subject::LOCATION)) && table.overlaps(range(1, 2), None));
        assert_eq!(table.first_in(range(1, 2), Subject::LOCATION), Ok(None), "uvmd's own advice can be withdrawn");
        assert!(table.insert(range(1, 2), Subject::UNKNOWN) && table.remove(range(1, 2), Some(Subject::ATTACHMENT)));
        assert!(table.overlaps(range(1, 2), None), "other advice stays");
    }

    #[test]
    fn first_in_finds_known_advice_on_its_subject_only() {
        let table = ProgramAdvice::new().unwrap();
        let first = |begin, end| table.first_in(range(begin, end), Subject::LOCATION);
        assert_eq!(first(0, 100), Ok(None));
        for (advised, subject) in [
            (range(50, 60), Subject::LOCATION),
            (Range { begin: 0x1_4100, end: 0x1_6001 }, Subject::LOCATION),
            (range(0, 10), Subject::READ_DUPLICATION),
            (range(0, 10), Subject::UNKNOWN),
        ] {
            assert!(table.insert(advised, subject));
        }
        let expected = [
            ((0, 20), None),
            ((0, 21), Some(range(20, 23))),
            ((22, 100), Some(range(20, 23))),
            ((23, 100), Some(range(50, 60))),
            ((60, 100), None),
        ];
        for ((begin, end), pages) in expected {
            assert_eq!(first(begin, end), Ok(pages), "{begin}");
        }
        // The lock is held throughout.
        assert_eq!(table.lock.with(|| first(0, 100)), Some(Err(TableUnavailable)));
        table.has_overflowed.store(1, Ordering::Relaxed);
        assert!(table.overlaps(range(30, 40), None));
        assert_eq!(first(30, 40), Ok(None));
    }

    #[test]
    fn partly_advised_page_is_advised() {
        let table = ProgramAdvice::new().unwrap();
        assert!(table.insert(Range { begin: 0x1100, end: 0x1200 }, Subject::LOCATION));
        assert!(table.overlaps(range(1, 2), None) && !table.overlaps(range(2, 3), None));
    }

    #[test]
    fn all_memory_is_advised_when_the_table_is_full() {
        let table = ProgramAdvice::new().unwrap();
        // Adjacent ranges merge into one.
        assert!((0..3 * RANGES_MAX as u64).all(|at| table.insert(range(at, at + 1), Subject::LOCATION)));
        assert!(table.remove(range(0, u64::MAX >> 12), None));
        assert!((0..RANGES_MAX as u64).all(|at| table.insert(range(2 * at, 2 * at + 1), Subject::LOCATION)));
        assert!(!table.overlaps(range(1, 2), None));
        assert!(!table.insert(range(1 << 30, 2 << 30), Subject::LOCATION));
        assert!(table.overlaps(range(1, 2), None));
        // Only the first failure is reported.
        assert!(table.insert(range(1 << 30, 2 << 30), Subject::LOCATION));
        assert!(table.remove(range(0, 1), None) && table.overlaps(range(0, 1), None));
    }

    #[test]
    fn ranges_match_a_page_map() {
        const PAGES: usize = 48;
        let subjects = [Subject::READ_DUPLICATION, Subject::LOCATION, Subject::access(0)];
        let table = ProgramAdvice::new().unwrap();
        let mut map = [[false; PAGES]; 3];
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let begin = random(PAGES as u64);
            let end = begin + 1 + random(PAGES as u64 - begin);
            let (one, kind) = (random(3), random(8));
            let (is_insertion, is_for_all) = (kind < 4, kind == 7);
            let subject = subjects[usize::try_from(one).unwrap()];
            assert!(match kind {
                0..4 => table.insert(range(begin, end), subject),
                4..7 => table.remove(range(begin, end), Some(subject)),
                _ => table.remove(range(begin, end), None),
            });
            for (number, (pages, subject)) in (0..).zip(map.iter_mut().zip(subjects)) {
                for (page, is_advised) in (0..).zip(pages) {
                    if (begin..end).contains(&page) && (is_for_all || number == one) {
                        *is_advised = is_insertion;
                    }
                    assert_eq!(table.overlaps(range(page, page + 1), Some(subject)), *is_advised);
                }
            }
        }
    }
}
