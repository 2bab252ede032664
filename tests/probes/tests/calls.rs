//! Calls of processes count for the file's VA space, and a tool's calls not for the application.

use abi::{ApiCall, Kind, count::REQUESTED_BY_TOOL};
use probes_test::{
    bench::{Bench, Migration},
    driver::{self, Call},
    image,
    uprobe::in_another_process,
};

const PROGRAMS: &[&str] = &[
    "uvm_register",
    "uvm_destroy",
    "uvm_destroyed",
    "uvm_notify",
    "uvm_migrate",
    "uvm_migrated",
    "uvm_set_preferred_location",
    "uvm_discard",
];
const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const PARAMETERS: [u64; 4] = [0x7f00_0020_0000, 3 << 20, 0, 0];

#[test]
fn calls_of_the_process_itself_are_counted_by_kind_with_their_bytes() {
    for family in image::families() {
        let Some(mut bench) = Bench::only(PROGRAMS, &family) else { return };
        let (space, record) = bench.register(SPACE);
        let file = bench.file(&space);
        for call in [Call::Migrate, Call::Migrate, Call::SetPreferredLocation, Call::Discard] {
            driver::call_api(call, PARAMETERS.as_ptr() as u64, file.as_ptr() as u64);
        }
        let expected = [
            ((0, Kind::ApiCall, ApiCall::Migrate as u16), (2, 6 << 20)),
            ((0, Kind::ApiCall, ApiCall::SetPreferredLocation as u16), (1, 3 << 20)),
            ((0, Kind::ApiCall, ApiCall::Discard as u16), (1, 3 << 20)),
        ];
        assert_eq!(bench.counts(record.generation), expected.into(), "{family}");
    }
}

#[test]
fn length_beyond_the_address_space_adds_no_bytes() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let file = bench.file(&space);
    for length in [1 << 47, (1 << 47) + 1, u64::MAX] {
        driver::call_api(Call::Migrate, [0, length].as_ptr() as u64, file.as_ptr() as u64);
    }
    let expected = [((0, Kind::ApiCall, ApiCall::Migrate as u16), (3, 1 << 47))];
    assert_eq!(bench.counts(record.generation), expected.into());
}

#[test]
fn calls_and_migrations_by_another_process_are_distinguished() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let file = bench.file(&space);
    // On the stack, which the other process has from the start; it would have to fault in a
    // constant's page.
    let parameters = std::hint::black_box(PARAMETERS);
    in_another_process(|| {
        driver::call_api(Call::Migrate, parameters.as_ptr() as u64, file.as_ptr() as u64);
        bench.migration(&space, &Migration { cause: 6, ..Migration::default() });
        // The driver's own migrations may run in any process.
        bench.migration(&space, &Migration { cause: 0, ..Migration::default() });
    })
    .unwrap();
    bench.migration(&space, &Migration { cause: 6, ..Migration::default() });
    let expected = [
        ((0, Kind::ToolCall, ApiCall::Migrate as u16), (1, 3 << 20)),
        ((1, Kind::CopyHtod, 6 | REQUESTED_BY_TOOL), (1, 65536)),
        ((1, Kind::CopyHtod, 0), (1, 65536)),
        ((1, Kind::CopyHtod, 6), (1, 65536)),
    ];
    assert_eq!(bench.counts(record.generation), expected.into());
}
