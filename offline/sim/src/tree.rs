//! The driver's tree prefetcher: granules of a block that are fetched together with faulted ones.
//!
//! A binary tree stands over the block's granules. Each fault selects the largest subtree whose
//! share of resident or faulted granules exceeds the threshold. In a block that ends early,
//! subtrees end there too. The driver's leaves are pages of 4 KiB. It fills the 64 KiB around a
//! fault before it counts, so leaves of 64 KiB give the same result.

use crate::{
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
    units::{GRANULES_PER_BLOCK, Mask},
};

/// Granules to make resident in a block with the granules `allocated`: the faulted ones, and those
/// that the tree adds. Resident ones may be among them.
#[must_use]
pub fn region(resident: Mask, faulted: Mask, allocated: Mask, threshold_percent: u32) -> Mask {
    let occupied = resident | faulted;
    let mut selected = faulted;
    let mut remaining = faulted;
    while remaining != 0 {
        let region = largest(occupied, remaining.trailing_zeros(), allocated, threshold_percent);
        selected |= region;
        // Other faults in the region select the same one: the trees above it are not dense enough
        // for them either.
        remaining &= !region;
    }
    selected
}

fn largest(occupied: Mask, leaf: u32, allocated: Mask, threshold_percent: u32) -> Mask {
    let mut largest = 1 << leaf;
    let mut leaves = 2;
    while leaves <= GRANULES_PER_BLOCK {
        let subtree = allocated & (Mask::MAX >> (GRANULES_PER_BLOCK - leaves)) << (leaf / leaves * leaves);
        if (occupied & subtree).count_ones() * 100 > subtree.count_ones() * threshold_percent {
            largest = subtree;
        }
        leaves *= 2;
    }
    largest
}

/// Pages to make resident, where some thrash. The 64 KiB around a fault are filled only if none of
/// their pages thrashes. Thrashing pages prefetch nothing, and are not prefetched.
pub(crate) fn region_of_pages(
    resident: PageMask,
    faulted: PageMask,
    thrashing: PageMask,
    allocated: Mask,
    threshold_percent: u32,
) -> PageMask {
    let filled = faulted.granules() & !thrashing.granules() & allocated;
    let occupied = resident | faulted | PageMask::of_granules(filled);
    let allocated = PageMask::of_granules(allocated);
    let mut selected = PageMask::default();
    for page in (faulted & !thrashing).iter() {
        // Other faults in a region select the same one.
        if !selected.has(page) {
            selected = selected | largest_of_pages(occupied, page, allocated, threshold_percent as usize);
        }
    }
    faulted | (selected & !thrashing)
}

fn largest_of_pages(occupied: PageMask, leaf: usize, allocated: PageMask, threshold_percent: usize) -> PageMask {
    let mut largest = PageMask::of_page(leaf);
    let mut leaves = 2;
    while leaves <= PAGES_PER_BLOCK {
        let first = leaf / leaves * leaves;
        let subtree = allocated & PageMask::of_range(first, first + leaves);
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
    fn in_a_block_that_ends_early_the_threshold_applies_to_allocated_granules() {
        let allocated = 0b11_1111;
        assert_eq!(region(0, 0b1_1000, allocated, 51), 0b1_1000);
        assert_eq!(
            region(0b10_0000, 0b1_1000, allocated, 51),
            0b11_1000,
            "both leaves of the third pair, one of the second"
        );
        assert_eq!(region(0b10_0100, 0b1_1000, allocated, 51), allocated, "four of six");
        assert_eq!(region(0b100, 0b1_1000, allocated, 51), 0b1_1100);
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
        // 24 granules on the right are resident, one on the left faults: its own pairs are empty,
        // the block is dense.
        assert_eq!(grow(0xffff_ff00, 1, 51), 0xff);
    }

    #[test]
    fn resident_granules_are_not_fetched_again() {
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
            let allocated = if round % 3 == 0 { Mask::MAX >> (next() % 31) } else { Mask::MAX };
            let (resident, granules) = (next() & next() & allocated, next() & next() & next() & allocated);
            let granules = granules & !resident;
            // One page of each granule, at any position in it.
            let faults = (0..32).filter(|granule| granules >> granule & 1 == 1);
            let faulted = faults.fold(PageMask::default(), |mask, granule| {
                mask | PageMask::of_page(granule * 16 + next() as usize % 16)
            });
            let pages = region_of_pages(PageMask::of_granules(resident), faulted, PageMask::default(), allocated, 51);
            let expected = region(resident, granules, allocated, 51) & !resident;
            assert_eq!(pages & !PageMask::of_granules(resident), PageMask::of_granules(expected));
        }
    }

    #[test]
    fn a_thrashing_page_is_fetched_alone_and_neither_fills_its_64_kib_nor_prefetches() {
        let none = PageMask::default();
        let fault = PageMask::of_page(40);
        assert_eq!(region_of_pages(none, fault, fault, Mask::MAX, 51), fault);
        // Its neighbour thrashes: the 64 KiB are not filled.
        assert_eq!(region_of_pages(none, fault, PageMask::of_page(47), Mask::MAX, 51), fault);
        assert_eq!(region_of_pages(none, fault, PageMask::of_page(48), Mask::MAX, 51).granules(), 0b100);
        // A dense block becomes resident except for thrashing pages.
        let resident = PageMask::of_granules(Mask::MAX << 12);
        let selected = region_of_pages(resident, PageMask::of_page(0), PageMask::of_page(100), Mask::MAX, 51);
        assert_eq!(selected, !PageMask::of_page(100));
    }
}
