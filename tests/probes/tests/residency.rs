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
fn destination_in_each_family_has_its_earlier_and_the_requested_pages() {
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
fn migration_in_each_family_removes_pages_from_their_former_gpus() {
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
fn nested_eviction_is_recorded_for_both_blocks() {
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
fn untracked_nested_eviction_does_not_end_the_outer_migration() {
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
fn failed_eviction_makes_residency_stale() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    let out = MakeResident { block: block.address(), destination: 0, cause: 4, ..ALL_PAGES };
    driver::make_resident(&MakeResident { status: 0x51, ..out }, || {});
    assert_eq!((bench.blocks(), stale(&mut bench)), (vec![], 1));
}

#[test]
fn residency_on_more_gpus_than_recorded_is_stale() {
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
fn split_with_a_missed_return_is_stale_and_not_taken_for_the_next_one() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(9, [u64::MAX; 8])]);
    let unknown = bench.block(&bench.space(SPACE + 4096), START);
    let other = block.address();
    // The driver never does this: the probes see it when a return is missed.
    driver::split(block.address(), &other, 0, || driver::split(unknown.address(), &other, 0, || {}));
    assert_eq!((residencies(&mut bench), stale(&mut bench)), (vec![], 1));
}

#[test]
fn unreadable_destroyed_block_is_stale() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let data = image::Family::named(FAMILY).image("evd.size").with("blkdestroy.block", 8_u64.to_ne_bytes());
    bench.notify(&space, "BLOCK_DESTROY", &data);
    assert_eq!((bench.blocks(), stale(&mut bench)), (vec![], 1));
    assert_eq!(bench.lost(), [(DropReason::Unreadable, 1)]);
}

#[test]
fn failed_migration_records_no_residency() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block_with(&space, START, &[(1, [u64::MAX; 8])]);
    let request = MakeResident { block: block.address(), status: 0x66, ..ALL_PAGES };
    driver::make_resident(&request, || {});
    driver::make_resident(&MakeResident { destination: 0, ..request }, || {});
    assert_eq!(residencies(&mut bench), []);
}

#[test]
fn split_block_is_recorded_as_two_with_their_first_pages() {
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
fn destroyed_block_of_a_known_va_space_is_gone_in_each_family() {
    for family in image::families() {
        let Some(mut bench) = Bench::new(&family) else { return };
        let (space, record) = bench.register(SPACE);
        bench.destroy_block(&space, &bench.block(&space, START + 8 * 4096));
        let [gone] = bench.blocks()[..] else { panic!("{family}") };
        assert_eq!((gone.kind, gone.generation), (RecordKind::Gone as u16, record.generation), "{family}");
        assert_eq!((gone.address, gone.first_page, gone.gpu), (START, 8, 0), "{family}");
        let unknown = bench.space(SPACE + 4096);
        bench.destroy_block(&unknown, &bench.block(&unknown, START));
        assert_eq!((bench.blocks().len(), bench.lost()), (0, vec![]), "{family}");
    }
}

#[test]
fn copies_of_one_kind_within_a_migration_share_a_record() {
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
fn copy_to_the_host_on_the_way_to_another_gpu_has_a_kind_of_its_own() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let block = bench.block(&space, START);
    let copy = |from, to| Migration { from, to, address: START, bytes: 8192, cause: 0 };
    let mut copies = |destination, migrations: &[Migration]| -> Vec<(u16, u32)> {
        let request = MakeResident { block: block.address(), destination, ..ALL_PAGES };
        driver::make_resident(&request, || migrations.iter().for_each(|each| bench.migration(&space, each)));
        let records = bench.blocks().into_iter().filter(|record| record.bytes > 0);
        records.filter(|record| record.kind != RecordKind::Populated as u16).map(|copy| (copy.kind, copy.gpu)).collect()
    };
    let [htod, dtoh, staged] =
        [RecordKind::CopyHtod, RecordKind::CopyDtoh, RecordKind::CopyStaged].map(|kind| kind as u16);
    assert_eq!(copies(1, &[copy(2, 0), copy(0, 1)]), [(staged, 2), (htod, 1)]);
    assert_eq!(copies(0, &[copy(2, 0)]), [(dtoh, 2)], "its destination is the host");
    assert_eq!(bench.lost(), []);
}

#[test]
fn copies_before_a_failed_migration_are_recorded() {
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
fn residency_is_recorded_even_if_other_records_are_sampled_out() {
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
fn quarter_of_the_ring_is_reserved_for_residency_and_the_excess_is_stale() {
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
    let (stale, reported) = (stale(&mut bench), residencies(&mut bench).len() as u64);
    assert!(stale > 50 && reported >= 10, "{stale} {reported}");
    assert_eq!(stale + reported, 110);
    assert_eq!(bench.lost(), []);
}

#[test]
fn migration_with_a_missed_return_is_stale_from_its_threads_next_one_on() {
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
    let reported = [RecordKind::CopyHtod, RecordKind::Residency, RecordKind::Populated];
    assert_eq!(records, reported.map(|kind| kind as u16));
    assert_eq!(stale(&mut bench), 1);
}
