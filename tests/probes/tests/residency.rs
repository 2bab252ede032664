//! Records of blocks made resident: copies, and the number of resident pages at each GPU.

use abi::{
    DropReason, RecordKind,
    block::{BLOCK_BYTES, SLOT_BYTES},
};
use collector::Records;
use probes_test::{
    bench::{Bench, Migration},
    driver::{self, MakeResident},
    image,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const START: u64 = 0x7f00_0020_0000;

const ALL_PAGES: MakeResident =
    MakeResident { block: 0, destination: 1, first: 0, outer: 512, mask: 0, cause: 0, is_duplicate: false, status: 0 };

/// Address, first page, GPU and resident pages of each record of residency.
fn residencies(bench: &mut Bench) -> Vec<(u64, u16, u32, u16)> {
    let records = bench.blocks().into_iter().filter(|record| record.kind == RecordKind::Residency as u16);
    records.map(|record| (record.address, record.first_page, record.gpu, record.resident_pages)).collect()
}

/// Changes of the only VA space without a record.
fn stale(bench: &mut Bench) -> u64 {
    bench.probes().spaces().unwrap()[0].records.stale
}

#[test]
fn in_each_family_the_destination_has_what_was_there_and_what_was_asked_for() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (space, _) = bench.register(SPACE);
        let block = bench.block_with(&space, START, &[(1, [0xff, 0, 0, 0, 0, 0, 0, 1 << 63])]);
        let mask = [0xfff_u64, 0, 0, 0, 1, 0, 0, u64::MAX];
        for is_duplicate in [false, true] {
            let request = MakeResident {
                block: block.address(),
                first: 4,
                outer: 500,
                mask: mask.as_ptr() as u64,
                is_duplicate,
                ..ALL_PAGES
            };
            // A full copy does not change the resulting residency.
            driver::make_resident(&request, || {
                bench.migration(&space, &Migration { bytes: 57 * 4096, ..Migration::default() });
            });
        }
        // 12 of the first word's pages, one of the fifth's, and of the last 52 requested ones and
        // one resident before.
        assert_eq!(residencies(&mut bench), [(START, 0, 1, 66); 2], "{family}");
        assert_eq!(bench.lost(), [], "{family}");
    }
}

#[test]
fn in_each_family_what_goes_to_the_host_or_to_another_gpu_is_taken_from_those_that_had_it() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (space, _) = bench.register(SPACE);
        // In the second word of the processor mask, if it has several.
        let last = bench.gpu_max().min(65);
        let half = [u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0, 0, 0, 0];
        let block = bench.block_with(&space, START, &[(1, half), (2, [0, 0, 0, 0, 0, 0, 0, 1]), (last, half)]);
        let request = MakeResident { block: block.address(), outer: 100, ..ALL_PAGES };
        driver::make_resident(&MakeResident { destination: 0, ..request }, || {});
        // Nothing is copied: it may have been at the host as well. One GPU held none of it.
        assert_eq!(residencies(&mut bench), [(START, 0, 1, 156), (START, 0, last, 156)], "{family}");
        driver::make_resident(&MakeResident { destination: last, ..request }, || {});
        assert_eq!(residencies(&mut bench), [(START, 0, last, 256), (START, 0, 1, 156)], "{family}");
        // If copies are allowed, no GPU loses any.
        driver::make_resident(&MakeResident { destination: 0, is_duplicate: true, ..request }, || {});
        assert_eq!(residencies(&mut bench), [], "{family}");
    }
}

#[test]
fn what_is_pushed_out_while_another_block_is_made_resident_is_told_of_both() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let (block, full) = (bench.block(&space, START), [(1, [u64::MAX; 8])]);
    let other = bench.block_with(&space, START + BLOCK_BYTES, &full);
    driver::make_resident(&MakeResident { block: block.address(), ..ALL_PAGES }, || {
        let out = MakeResident { block: other.address(), destination: 0, cause: 4, ..ALL_PAGES };
        driver::make_resident(&MakeResident { status: 0x51, ..out }, || {});
        driver::make_resident(&out, || {});
    });
    assert_eq!(residencies(&mut bench), [(START + BLOCK_BYTES, 0, 1, 0), (START, 0, 1, 512)]);
}

#[test]
fn what_cannot_be_followed_as_it_is_pushed_out_does_not_end_what_it_makes_room_for() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    driver::make_resident(&MakeResident { block: block.address(), status: 0x51, ..ALL_PAGES }, || {
        let nowhere = MakeResident { block: block.address(), destination: 9999, cause: 4, ..ALL_PAGES };
        driver::make_resident(&nowhere, || {});
    });
    assert_eq!((bench.blocks(), stale(&mut bench)), (vec![], 2));
    assert_eq!(bench.lost(), [(DropReason::Unreadable, 1)]);
}

#[test]
fn where_pushing_out_failed_it_is_untold_as_it_may_be_that_its_return_was_missed() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    let out = MakeResident { block: block.address(), destination: 0, cause: 4, ..ALL_PAGES };
    driver::make_resident(&MakeResident { status: 0x51, ..out }, || {});
    assert_eq!((bench.blocks(), stale(&mut bench)), (vec![], 1));
}

#[test]
fn where_more_gpus_have_something_of_a_block_than_are_told_of_that_is_untold() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let gpus: Vec<_> = (1..=17).map(|gpu| (gpu, [u64::MAX; 8])).collect();
    for (had_by, expected) in [(16, 0), (17, 1)] {
        let block = bench.block_with(&space, START, &gpus[..had_by]);
        driver::make_resident(&MakeResident { block: block.address(), destination: 0, ..ALL_PAGES }, || {});
        assert_eq!((residencies(&mut bench).len(), stale(&mut bench)), (16, expected));
    }
}

#[test]
fn a_split_whose_return_was_missed_is_untold_and_not_taken_for_the_next_one() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(9, [u64::MAX; 8])]);
    let nobodys = bench.block(&bench.space(SPACE + 4096), START);
    let other = block.address();
    // The driver never does this: the probes see it when a return is missed.
    driver::split(block.address(), &other, 0, || driver::split(nobodys.address(), &other, 0, || {}));
    assert_eq!((residencies(&mut bench), stale(&mut bench)), (vec![], 1));
}

#[test]
fn a_block_that_goes_and_cannot_be_read_is_untold() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let data = image::Family::named(FAMILY).image("evd.size").with("blkdestroy.block", 8_u64.to_ne_bytes());
    bench.notify(&space, "BLOCK_DESTROY", &data);
    assert_eq!((bench.blocks(), stale(&mut bench)), (vec![], 1));
    assert_eq!(bench.lost(), [(DropReason::Unreadable, 1)]);
}

#[test]
fn nothing_is_told_where_it_failed() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    let request = MakeResident { block: block.address(), status: 0x66, ..ALL_PAGES };
    driver::make_resident(&request, || {});
    driver::make_resident(&MakeResident { destination: 0, ..request }, || {});
    assert_eq!(residencies(&mut bench), []);
}

#[test]
fn a_block_that_is_split_is_told_of_as_two_each_with_the_page_that_it_begins_at() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let old = bench.block_with(&space, START, &[(9, [u64::MAX; 8])]).of_bytes(100 * 4096);
    let new = bench.block_with(&space, START + 100 * 4096, &[(9, [1; 8])]).of_bytes(412 * 4096);
    let other = new.address();
    driver::split(old.address(), &other, 0x51, || {});
    assert_eq!(residencies(&mut bench), []);
    driver::split(old.address(), &other, 0, || {});
    assert_eq!(residencies(&mut bench), [(START, 0, 9, 100), (START, 100, 9, 7)]);
    // A migration from one of them does not affect the other.
    let request = MakeResident { block: new.address(), destination: 0, outer: 412, ..ALL_PAGES };
    driver::make_resident(&request, || {});
    assert_eq!(residencies(&mut bench), [(START, 100, 9, 1)]);
}

#[test]
fn in_each_family_a_block_that_is_given_back_is_gone_unless_its_va_space_is_not_known() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (space, record) = bench.register(SPACE);
        bench.destroy_block(&space, &bench.block(&space, START + 8 * 4096));
        let [gone] = bench.blocks()[..] else { panic!("{family}") };
        assert_eq!((gone.kind, gone.generation), (RecordKind::Gone as u16, record.generation), "{family}");
        assert_eq!((gone.address, gone.first_page, gone.gpu), (START, 8, 0), "{family}");
        let nobodys = bench.space(SPACE + 4096);
        bench.destroy_block(&nobodys, &bench.block(&nobodys, START));
        assert_eq!((bench.blocks().len(), bench.lost()), (0, vec![]), "{family}");
    }
}

#[test]
fn copies_of_one_kind_within_a_move_are_told_together() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    let piece = |at: u64, from| Migration { from, to: 1, address: START + at * SLOT_BYTES, bytes: 8192, cause: 0 };
    driver::make_resident(&MakeResident { block: block.address(), ..ALL_PAGES }, || {
        for at in [0, 3, 5] {
            bench.migration(&space, &piece(at, 0));
        }
        bench.migration(&space, &piece(7, 2));
    });
    let records = bench.blocks();
    let copies = records.iter().filter(|record| record.kind <= RecordKind::CopyDtod as u16);
    let copies: Vec<_> =
        copies.map(|copy| (copy.kind, copy.address, copy.gpu, copy.events, copy.bytes, copy.slots)).collect();
    let [htod, dtod] = [RecordKind::CopyHtod, RecordKind::CopyDtod].map(|kind| kind as u16);
    assert_eq!(copies, [(htod, START, 1, 3, 24576, 0b10_1001), (dtod, START, 1, 1, 8192, 1 << 7)]);
    assert_eq!(bench.lost(), []);
}

#[test]
fn what_was_copied_before_a_move_failed_is_told() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    driver::make_resident(&MakeResident { block: block.address(), status: 0x51, ..ALL_PAGES }, || {
        bench.migration(&space, &Migration { address: START, bytes: 4096, ..Migration::default() });
    });
    let records: Vec<_> = bench.blocks().iter().map(|record| (record.kind, record.bytes)).collect();
    assert_eq!(records, [(RecordKind::CopyHtod as u16, 4096)]);
}

#[test]
fn residency_is_told_however_many_other_records_are_left_out() {
    let few = Records { max_per_second: 10, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, few) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    for _ in 0..1000 {
        bench.cpu_fault(&space, 0);
        driver::make_resident(&MakeResident { block: block.address(), ..ALL_PAGES }, || {});
    }
    assert_eq!(residencies(&mut bench).len(), 1000);
    let losses = bench.probes().spaces().unwrap()[0].records;
    assert!(losses.sampled_out > 500 && (losses.dropped, losses.stale) == (0, 0), "{losses:?}");
}

#[test]
fn a_quarter_of_the_ring_is_kept_for_residency_and_what_finds_no_room_there_is_untold() {
    let small = Records { ring_bytes: 4096, max_per_second: 1_000_000, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, small) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    for _ in 0..1000 {
        bench.cpu_fault(&space, 0);
    }
    let resident = MakeResident { block: block.address(), ..ALL_PAGES };
    for _ in 0..10 {
        driver::make_resident(&resident, || {});
    }
    assert_eq!(stale(&mut bench), 0);
    for _ in 0..100 {
        driver::make_resident(&resident, || {});
    }
    let (stale, told) = (stale(&mut bench), residencies(&mut bench).len() as u64);
    assert!(stale > 50 && told >= 10, "{stale} {told}");
    assert_eq!(stale + told, 110);
    assert_eq!(bench.lost(), []);
}

#[test]
fn a_move_whose_return_was_missed_is_untold_from_the_threads_next_one_on() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    let resident = MakeResident { block: block.address(), ..ALL_PAGES };
    // The driver never does this: the probes see it when a return is missed.
    driver::make_resident(&resident, || {
        bench.migration(&space, &Migration { address: START, bytes: 4096, ..Migration::default() });
        driver::make_resident(&resident, || {});
    });
    let records: Vec<_> = bench.blocks().iter().map(|record| record.kind).collect();
    let told = [RecordKind::CopyHtod, RecordKind::Residency, RecordKind::Populated];
    assert_eq!(records, told.map(|kind| kind as u16));
    assert_eq!(stale(&mut bench), 1);
}
