//! The driver's prefetcher: which granules of a block come along with those that faulted.
//!
//! A binary tree stands over the block's granules. For each fault the largest subtree is taken of which more than the threshold is resident or faulted; of a
//! block that ends early, subtrees end there too. The driver's leaves are pages of 4 KiB; it fills the 64 KiB around a fault before it counts, so leaves of
//! 64 KiB give the same.

use crate::{
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
    units::{GRANULES_PER_BLOCK, Mask},
};

/// What is to become resident in a block that has the granules `whole`: the faulted ones and what the tree adds, those that are resident among them.
#[must_use]
pub fn region(resident: Mask, faulted: Mask, whole: Mask, threshold_percent: u32) -> Mask {
    let occupied = resident | faulted;
    let mut wanted = faulted;
    let mut rest = faulted;
    while rest != 0 {
        let region = largest(occupied, rest.trailing_zeros(), whole, threshold_percent);
        wanted |= region;
        // Other faults in it have the same one: what is above it is not dense enough for them either.
        rest &= !region;
    }
    wanted
}

fn largest(occupied: Mask, leaf: u32, whole: Mask, threshold_percent: u32) -> Mask {
    let mut largest = 1 << leaf;
    let mut leaves = 2;
    while leaves <= GRANULES_PER_BLOCK {
        let subtree = whole & (Mask::MAX >> (GRANULES_PER_BLOCK - leaves)) << (leaf / leaves * leaves);
        if (occupied & subtree).count_ones() * 100 > subtree.count_ones() * threshold_percent {
            largest = subtree;
        }
        leaves *= 2;
    }
    largest
}

/// The same by pages, where some thrash: the 64 KiB around a fault are filled only where no page of theirs does, pages that thrash bring nothing along, and are
/// brought along by none.
pub(crate) fn region_of_pages(
    resident: PageMask,
    faulted: PageMask,
    thrashing: PageMask,
    whole: Mask,
    threshold_percent: u32,
) -> PageMask {
    let filled = faulted.granules() & !thrashing.granules() & whole;
    let occupied = resident | faulted | PageMask::of_granules(filled);
    let whole = PageMask::of_granules(whole);
    let mut wanted = PageMask::default();
    for page in (faulted & !thrashing).iter() {
        // Other faults in a region have the same one.
        if !wanted.has(page) {
            wanted = wanted | largest_of_pages(occupied, page, whole, threshold_percent as usize);
        }
    }
    faulted | (wanted & !thrashing)
}

fn largest_of_pages(occupied: PageMask, leaf: usize, whole: PageMask, threshold_percent: usize) -> PageMask {
    let mut largest = PageMask::of_page(leaf);
    let mut leaves = 2;
    while leaves <= PAGES_PER_BLOCK {
        let first = leaf / leaves * leaves;
        let subtree = whole & PageMask::of_range(first, first + leaves);
        if (occupied & subtree).count() * 100 > subtree.count() * threshold_percent {
            largest = subtree;
        }
        leaves *= 2;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grow(resident: Mask, faulted: Mask, threshold_percent: u32) -> Mask {
        region(resident, faulted, Mask::MAX, threshold_percent) & !resident
    }

    #[test]
    fn a_lone_fault_brings_its_64_kib() {
        assert_eq!(grow(0, 1 << 9, 51), 1 << 9);
    }

    #[test]
    fn in_a_block_that_ends_early_half_of_what_there_is_counts() {
        let whole = 0b11_1111;
        assert_eq!(region(0, 0b1_1000, whole, 51), 0b1_1000);
        assert_eq!(
            region(0b10_0000, 0b1_1000, whole, 51),
            0b11_1000,
            "both leaves of the third pair, one of the second"
        );
        assert_eq!(region(0b10_0100, 0b1_1000, whole, 51), whole, "four of six");
        assert_eq!(region(0b100, 0b1_1000, whole, 51), 0b1_1100);
    }

    #[test]
    fn half_a_subtree_is_not_enough_and_more_than_half_is() {
        assert_eq!(grow(0b01, 0b10, 51), 0b10);
        assert_eq!(grow(0b0011, 0b0100, 51), 0b1100);
        assert_eq!(grow(0, 0xffff, 51), 0xffff);
        assert_eq!(grow(0, 0x1_ffff, 51), Mask::MAX);
    }

    #[test]
    fn a_dense_subtree_far_up_is_taken_across_sparse_ones_below() {
        // 24 granules on the right resident, one fault on the left: its own pairs are empty, the whole is dense.
        assert_eq!(grow(0xffff_ff00, 1, 51), 0xff);
    }

    #[test]
    fn what_is_resident_does_not_come_again() {
        assert_eq!(grow(Mask::MAX, 1, 51), 0);
    }

    #[test]
    fn every_fault_has_the_region_the_driver_would_give_it_alone() {
        let mut state = 0x1234_5678_u32;
        for _ in 0..20_000 {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                state
            };
            let (resident, faulted) = (next() & next(), next() & next() & next());
            let faulted = faulted & !resident;
            let each = (0..32).filter(|leaf| faulted >> leaf & 1 == 1);
            let union = each.fold(0, |union, leaf| union | largest(resident | faulted, leaf, Mask::MAX, 51));
            assert_eq!(grow(resident, faulted, 51), union & !resident);
        }
    }

    #[test]
    fn where_nothing_thrashes_pages_and_granules_have_the_same_regions() {
        let mut state = 0x9e37_79b9_u32;
        for round in 0..2_000 {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                state
            };
            let whole = if round % 3 == 0 { Mask::MAX >> (next() % 31) } else { Mask::MAX };
            let (resident, granules) = (next() & next() & whole, next() & next() & next() & whole);
            let granules = granules & !resident;
            // One page of each granule, anywhere in it.
            let faults = (0..32).filter(|granule| granules >> granule & 1 == 1);
            let faulted = faults.fold(PageMask::default(), |mask, granule| {
                mask | PageMask::of_page(granule * 16 + next() as usize % 16)
            });
            let pages = region_of_pages(PageMask::of_granules(resident), faulted, PageMask::default(), whole, 51);
            let expected = region(resident, granules, whole, 51) & !resident;
            assert_eq!(pages & !PageMask::of_granules(resident), PageMask::of_granules(expected));
        }
    }

    #[test]
    fn a_page_that_thrashes_comes_alone_and_neither_fills_its_64_kib_nor_brings_more() {
        let none = PageMask::default();
        let fault = PageMask::of_page(40);
        assert_eq!(region_of_pages(none, fault, fault, Mask::MAX, 51), fault);
        // Its neighbour thrashes: the 64 KiB are not filled.
        assert_eq!(region_of_pages(none, fault, PageMask::of_page(47), Mask::MAX, 51), fault);
        assert_eq!(region_of_pages(none, fault, PageMask::of_page(48), Mask::MAX, 51).granules(), 0b100);
        // A dense block comes but for what thrashes.
        let resident = PageMask::of_granules(Mask::MAX << 12);
        let wanted = region_of_pages(resident, PageMask::of_page(0), PageMask::of_page(100), Mask::MAX, 51);
        assert_eq!(wanted, !PageMask::of_page(100));
    }
}
