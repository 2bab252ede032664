//! Parts of a block: granules, or pages where a granule is split.

use std::ops::{BitAnd, BitOr, Not};

use crate::units::{GRANULES_PER_BLOCK, Mask, PAGE_BYTES, PAGES_PER_GRANULE, mask_bytes, runs};

/// Pages of a block.
pub(crate) const PAGES_PER_BLOCK: usize = 512;
const GRANULE: u64 = (1 << PAGES_PER_GRANULE) - 1;

/// Granules or pages of a block, so that the same code works for both.
pub(crate) trait BlockMask:
    Copy + Eq + Default + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
    /// Granules that contain any part of the mask.
    fn granules(self) -> Mask;
    /// Pages of the mask.
    fn pages(self) -> PageMask;
    fn bytes(self) -> u64;
    /// Bytes of each run of adjacent elements; each is one transfer.
    fn runs(self) -> impl Iterator<Item = u64>;

    /// Bytes of each transfer, if some pages are transferred separately from the others.
    fn transfers(self, separate: PageMask) -> Vec<u64> {
        if separate.is_empty() {
            return self.runs().collect();
        }
        let pages = self.pages();
        (pages & separate).runs().chain((pages & !separate).runs()).collect()
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl BlockMask for Mask {
    fn granules(self) -> Mask {
        self
    }

    fn pages(self) -> PageMask {
        PageMask::of_granules(self)
    }

    fn bytes(self) -> u64 {
        mask_bytes(self)
    }

    fn runs(self) -> impl Iterator<Item = u64> {
        runs(self)
    }
}

/// Pages of one block, the first in the lowest bit of the first word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageMask([u64; PAGES_PER_BLOCK / 64]);

impl PageMask {
    /// All pages of granules.
    pub(crate) fn of_granules(granules: Mask) -> Self {
        let mut pages = Self::default();
        for granule in (0..GRANULES_PER_BLOCK as usize).filter(|granule| granules >> granule & 1 == 1) {
            if let Some(word) = pages.0.get_mut(granule / 4) {
                *word |= GRANULE << (granule % 4 * 16);
            }
        }
        pages
    }

    pub(crate) fn of_page(page: usize) -> Self {
        let mut pages = Self::default();
        pages.insert(page);
        pages
    }

    /// Pages from `first` up to `end`, exclusive.
    pub(crate) fn of_range(first: usize, end: usize) -> Self {
        let mut pages = Self::default();
        (first..end.min(PAGES_PER_BLOCK)).for_each(|page| pages.insert(page));
        pages
    }

    pub(crate) fn insert(&mut self, page: usize) {
        if let Some(word) = self.0.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
    }

    pub(crate) fn has(self, page: usize) -> bool {
        self.0.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    pub(crate) fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..PAGES_PER_BLOCK).filter(move |&page| self.has(page))
    }

    /// Runs of adjacent pages.
    pub(crate) fn each_run(self) -> impl Iterator<Item = Self> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = (at..PAGES_PER_BLOCK).find(|&page| self.has(page))?;
            at = (first..PAGES_PER_BLOCK).find(|&page| !self.has(page)).unwrap_or(PAGES_PER_BLOCK);
            Some(Self::of_range(first, at))
        })
    }

    /// Granules whose pages are all in the mask.
    pub(crate) fn whole_granules(self) -> Mask {
        !(!self).granules()
    }
}

impl BitAnd for PageMask {
    type Output = Self;

    fn bitand(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        self
    }
}

impl BitOr for PageMask {
    type Output = Self;

    fn bitor(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        self
    }
}

impl Not for PageMask {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

impl BlockMask for PageMask {
    fn granules(self) -> Mask {
        let has_some = |granule: &u32| {
            self.0.get(*granule as usize / 4).is_some_and(|word| word >> (granule % 4 * 16) & GRANULE != 0)
        };
        (0..GRANULES_PER_BLOCK).filter(has_some).fold(0, |granules, granule| granules | 1 << granule)
    }

    fn pages(self) -> PageMask {
        self
    }

    fn bytes(self) -> u64 {
        self.count() as u64 * PAGE_BYTES
    }

    fn runs(self) -> impl Iterator<Item = u64> {
        self.each_run().map(Self::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_mask_converts_to_whole_and_partial_granules() {
        let pages = PageMask::of_granules(0b101) | PageMask::of_page(500);
        assert_eq!((pages.granules(), pages.whole_granules()), (0b101 | 1 << 31, 0b101));
        assert_eq!((pages.count(), pages.bytes()), (33, 33 * PAGE_BYTES));
        assert_eq!(PageMask::of_granules(Mask::MAX), !PageMask::default());
    }

    #[test]
    fn adjacent_pages_are_one_transfer() {
        let pages = PageMask::of_range(60, 70) | PageMask::of_page(80) | PageMask::of_range(511, 512);
        assert_eq!(pages.runs().collect::<Vec<_>>(), [10 * PAGE_BYTES, PAGE_BYTES, PAGE_BYTES]);
        assert_eq!(PageMask::of_granules(0b110).runs().collect::<Vec<_>>(), runs(0b110).collect::<Vec<_>>());
    }

    #[test]
    fn separate_pages_split_the_transfers_around_them() {
        let (granule, separate): (Mask, _) = (0b10, PageMask::of_range(20, 23) | PageMask::of_page(40));
        assert_eq!(granule.transfers(separate), [3, 4, 9].map(|pages| pages * PAGE_BYTES));
        assert_eq!(PageMask::of_range(20, 30).transfers(separate), [3, 7].map(|pages| pages * PAGE_BYTES));
        assert_eq!(granule.transfers(PageMask::default()), [16 * PAGE_BYTES]);
    }
}
