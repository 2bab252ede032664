//! Events that contradict the layout are not counted, and the contradiction is reported.

use abi::{DropReason, SelfTest};
use probes_test::{
    bench::{Bench, GpuFault, Migration, Space},
    image::{self, Image},
};

const PROGRAMS: &[&str] = &["uvm_register", "uvm_destroy", "uvm_destroyed", "uvm_notify"];
const SPACE: u64 = 0xffff_8881_2345_6780;

/// Event on a bench.
type Event = Box<dyn Fn(&Bench, &Space)>;

/// Raises the events for each family, and checks that each of them fails this self-test and counts
/// nothing.
fn fail(test: SelfTest, events: &[Event]) {
    for family in image::families() {
        let Some(mut bench) = Bench::only(PROGRAMS, &family) else { return };
        let (space, _) = bench.register(SPACE);
        for (event, failed) in events.iter().zip(1..) {
            event(&bench, &space);
            assert_eq!(bench.failed(), [(test, failed)], "{family}");
            assert_eq!(bench.lost(), [(DropReason::SelfTest, failed)], "{family}");
        }
        assert_eq!(bench.keys(), 0, "{family}");
    }
}

fn fault(fault: GpuFault) -> Event {
    changed(fault, |entry| entry)
}

/// Fault with a modified entry.
fn changed(fault: GpuFault, change: impl Fn(Image) -> Image + 'static) -> Event {
    Box::new(move |bench, space| bench.gpu_fault(space, &fault, &change))
}

fn migration(migration: Migration) -> Event {
    Box::new(move |bench, space| bench.migration(space, &migration))
}

#[test]
fn fault_of_another_va_space_than_its_event_fails() {
    let other = changed(GpuFault::default(), |entry| entry.with("fbe.va_space", (SPACE + 8).to_ne_bytes()));
    fail(SelfTest::VaSpace, &[other]);
}

#[test]
fn processor_beyond_the_last_fails() {
    fail(
        SelfTest::Processor,
        &[
            fault(GpuFault { gpu: 257, ..GpuFault::default() }),
            migration(Migration { to: 0x8000_0001, ..Migration::default() }),
            migration(Migration { from: 257, ..Migration::default() }),
        ],
    );
}

#[test]
fn fault_address_within_a_page_fails() {
    let within =
        changed(GpuFault::default(), |entry| entry.with("fbe.fault_address", 0x7f00_0020_1008u64.to_ne_bytes()));
    fail(SelfTest::FaultAddress, &[within]);
}

#[test]
fn access_type_beyond_the_last_or_outside_its_mask_fails() {
    let write = GpuFault { access: 2, ..GpuFault::default() };
    let outside = changed(write, |entry| entry.with("fbe.access_type_mask", 0b1_1011u32.to_ne_bytes()));
    fail(SelfTest::AccessType, &[fault(GpuFault { access: 5, ..GpuFault::default() }), outside]);
}

#[test]
fn fault_entry_without_instances_fails() {
    fail(SelfTest::Instances, &[fault(GpuFault { instances: 0, ..GpuFault::default() })]);
}

#[test]
fn invalid_flag_fails() {
    fail(
        SelfTest::Flag,
        &[
            fault(GpuFault { is_duplicate: 2, ..GpuFault::default() }),
            Box::new(|bench, space| bench.cpu_fault(space, 0x80)),
        ],
    );
}

#[test]
fn migration_not_in_whole_pages_of_one_block_fails() {
    let bad = [(0x1008, 4096), (0x1000, 4100), (0x1000, 0), (0x1000, (2 << 20) + 4096), (0x1000, u64::MAX - 4095)];
    fail(
        SelfTest::MigrationBytes,
        &bad.map(|(address, bytes)| migration(Migration { address, bytes, ..Migration::default() })),
    );
}

#[test]
fn cause_beyond_the_last_fails() {
    fail(SelfTest::MigrationCause, &[migration(Migration { cause: 9, ..Migration::default() })]);
}

#[test]
fn migration_from_a_gpu_to_itself_fails() {
    fail(SelfTest::MigrationProcessors, &[migration(Migration { from: 1, to: 1, ..Migration::default() })]);
}
